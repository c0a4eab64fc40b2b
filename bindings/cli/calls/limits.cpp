#include "bindings/cli/calls/limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

const auto& names = *new std::vector<std::string>{"instructions", "seconds", "script_bytes", "tensor_bytes"};

double number_of(const std::string& text, const std::string& value) {
  double number = 0;
  const char* const end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || at != end || !std::isfinite(number) || number < 0)
    throw UsageError(fmt::format("--limits {}: expected a number of 0 (no limit) or more", text));
  return number;
}

/// Exact, and also where it is written as 1e9.
template <typename Integer>
Integer whole_number_of(const std::string& text, const std::string& value) {
  Integer whole = 0;
  const char* const end = value.data() + value.size();
  if (const auto [at, error] = std::from_chars(value.data(), end, whole); error == std::errc() && at == end)
    return whole;
  const double number = number_of(text, value);
  if (number != std::floor(number)) throw UsageError(fmt::format("--limits {}: expected a whole number", text));
  constexpr auto most = std::numeric_limits<Integer>::max();
  return number >= static_cast<double>(most) ? most : static_cast<Integer>(number);
}

void set(Limits& limits, const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals), value = equals == std::string::npos ? "" : text.substr(equals + 1);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UsageError(fmt::format(
        "--limits {}: there is no limit \"{}\"; the limits are instructions, seconds, script_bytes and tensor_bytes{}",
        text, name, did_you_mean(name, names)));
  if (value.empty()) throw UsageError(fmt::format("--limits {}: expected {}=NUMBER", text, name));
  if (name == "instructions") limits.instructions = whole_number_of<uint64_t>(text, value);
  if (name == "seconds") limits.seconds = number_of(text, value);
  if (name == "script_bytes") limits.script_bytes = whole_number_of<size_t>(text, value);
  if (name == "tensor_bytes") limits.tensor_bytes = whole_number_of<size_t>(text, value);
}

}  // namespace

Limits parse_limits(const std::vector<std::string>& texts, const Limits& others) {
  Limits limits = others;
  for (const std::string& text : texts) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) set(limits, part);
  }
  return limits;
}

}  // namespace triage::cli
