#include "bindings/cli/commands/verify/verify_report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/files.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/lua_text.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

using Verdict = LawResult::Verdict;
using Json = nlohmann::ordered_json;

constexpr int64_t most_listed = 4096;  // elements of a tensor

/// A number of JSON, or the name of one that JSON does not have.
Json number_json(const at::Tensor& element) {
  if (element.scalar_type() == at::kBool) return element.item<bool>();
  if (!element.is_floating_point()) return element.item<int64_t>();
  const double value = element.item<double>();
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json values_json(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return number_json(tensor);
  Json values = Json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) values.push_back(values_json(tensor[i]));
  return values;
}

std::string line_of(const std::string& source, int line) {
  std::istringstream lines(source);
  std::string text;
  for (int i = 0; i < line; ++i)
    if (!std::getline(lines, text)) return "";
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin);
}

/// The text of the policy, or of a module of it; empty where it is no file.
std::string source_of(const std::string& file, const std::string& path, const std::string& source) {
  const std::filesystem::path named(file), own(path);
  if (named == own || (!named.has_parent_path() && named == own.filename())) return source;
  try {
    return files::read_text(named);
  } catch (const std::exception&) {
    return "";
  }
}

void print_violation(const Violation& violation, const std::string& path, const std::string& source) {
  say("    {}\n", violation.what);
  say("      {}: first seen with {}\n",
      violation.samples == 1 ? "1 sample" : fmt::format("{} samples", violation.samples), violation.sample);
  if (!violation.source.file.empty()) {
    const std::string text = line_of(source_of(violation.source.file, path, source), violation.source.line);
    say("      {}:{}{}{}\n", violation.source.file, violation.source.line,
        violation.op.empty() ? "" : "  " + paint(Paint::error, violation.op), text.empty() ? "" : "  " + text);
  } else if (!violation.op.empty()) {
    say("      {}\n", paint(Paint::error, violation.op));
  }
  for (const auto& [name, tensor] : violation.inputs) say("      {} = {}\n", name, lua::lua_text(tensor));
  const bool several = std::any_of(violation.inputs.begin(), violation.inputs.end(), [](const auto& input) {
    return input.second.dim() > 0 && input.second.size(0) > 1;
  });
  if (several) say("      it is sample {} of these\n", violation.row);
}

Json violation_json(const Violation& violation) {
  Json json = {{"output", violation.output.empty() ? Json() : Json(violation.output)},
               {"what", violation.what},
               {"sample", violation.sample},
               {"samples", violation.samples},
               {"file", nullptr},
               {"line", nullptr},
               {"operator", violation.op.empty() ? Json() : Json(violation.op)},
               {"row", violation.row}};
  if (!violation.source.file.empty()) json["file"] = violation.source.file, json["line"] = violation.source.line;
  json["inputs"] = Json::object();
  for (const auto& [name, tensor] : violation.inputs) {
    Json one = {{"dtype", dtype_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"values", nullptr}};
    if (tensor.numel() <= most_listed && !tensor.is_complex()) one["values"] = values_json(tensor.cpu());
    json["inputs"][name] = std::move(one);
  }
  return json;
}

}  // namespace

void print(const Verification& found, const std::string& path, const std::string& source) {
  say("{}: {} samples, {} calls\n", paint(Paint::heading, found.policy), found.samples, found.calls);
  for (const LawResult& law : found.laws) {
    const std::string name = fmt::format("{:<10}", to_string(law.law));
    switch (law.verdict) {
      case Verdict::held:
        say("  {} {}\n", name, paint(Paint::good, "held"));
        break;
      case Verdict::broken:
        say("  {} {}. The law: {}\n", name, paint(Paint::error, "BROKEN"), text_of(law.law));
        break;
      case Verdict::not_promised:
        say("  {} {}\n", name, paint(Paint::faint, "not promised"));
        break;
      case Verdict::not_tried:
        say("  {} {}: {}\n", name, paint(Paint::faint, "not tried"), law.why);
        break;
    }
    for (const Violation& violation : law.violations) print_violation(violation, path, source);
  }
  for (const std::string& text : found.left_out) say("  left out: {}\n", text);
}

Json to_json(const Verification& found) {
  Json json = {{"policy", found.policy}, {"ok", found.ok()}, {"samples", found.samples}, {"calls", found.calls}};
  json["laws"] = Json::array();
  for (const LawResult& law : found.laws) {
    Json one = {{"law", to_string(law.law)},
                {"verdict", to_string(law.verdict)},
                {"text", text_of(law.law)},
                {"why", law.why.empty() ? Json() : Json(law.why)}};
    one["violations"] = Json::array();
    for (const Violation& violation : law.violations) one["violations"].push_back(violation_json(violation));
    json["laws"].push_back(std::move(one));
  }
  json["left_out"] = found.left_out;
  return json;
}

}  // namespace triage::cli
