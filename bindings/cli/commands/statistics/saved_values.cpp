// Statistics from a file, which may hold anything.
#include <fmt/format.h>
#include <triage/error.h>

#include <cmath>

#include "bindings/cli/commands/statistics/counted_values.h"
#include "runtime/files/disk.h"
#include "runtime/files/json.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Saved = nlohmann::json;

constexpr const char* expected = "expected what value_statistics_json writes, or `triage statistics --json`";

const Saved& field_of(const Saved& entry, const char* name) {
  const auto field = entry.find(name);
  if (field == entry.end()) throw files::Malformed(fmt::format("an entry has no `{}`; {}", name, expected));
  return *field;
}

std::string text_of(const Saved& entry, const char* name) {
  const Saved& field = field_of(entry, name);
  if (!field.is_string()) throw files::Malformed(fmt::format("`{}` is no text; {}", name, expected));
  return field.get<std::string>();
}

uint64_t count_of(const Saved& entry, const char* name) {
  const Saved& field = field_of(entry, name);
  if (!field.is_number_unsigned()) throw files::Malformed(fmt::format("`{}` is no count; {}", name, expected));
  return field.get<uint64_t>();
}

std::optional<double> number_of(const Saved& entry, const char* name) {
  const Saved& field = field_of(entry, name);
  if (field.is_null()) return std::nullopt;
  if (!field.is_number() || !std::isfinite(field.get<double>()))
    throw files::Malformed(fmt::format("`{}` is no number; {}", name, expected));
  return field.get<double>();
}

ValueStatistics statistics_of(const Saved& entry) {
  if (!entry.is_object()) throw files::Malformed(fmt::format("an entry of `statistics` is no object; {}", expected));
  ValueStatistics one;
  one.location = text_of(entry, "location");
  one.dtype = text_of(entry, "dtype");
  one.limit = number_of(entry, "limit").value_or(0);
  one.minimum = number_of(entry, "min");
  one.maximum = number_of(entry, "max");
  one.batches = count_of(entry, "batches");
  one.values = count_of(entry, "values");
  one.near_limit = count_of(entry, "near_limit");
  one.saturated = count_of(entry, "saturated");
  one.zeros = count_of(entry, "zeros");
  one.nan = count_of(entry, "nan");
  one.inf = count_of(entry, "inf");
  return one;
}

}  // namespace

CountedValues values_of_file(const std::string& path) {
  CountedValues found{"file", path, 0, {}, "", {}};
  try {
    const Saved json = files::parse_json(files::read_text(path), "it");
    if (!json.is_object() || !json.contains("statistics") || !json["statistics"].is_array())
      throw files::Malformed(fmt::format("it has no list `statistics`; {}", expected));
    for (const Saved& entry : json["statistics"]) found.statistics.push_back(statistics_of(entry));
  } catch (const files::Malformed& error) {
    throw FileError(fmt::format("{}: {}", messages::one_line(path), error.what()));
  }
  return found;
}

}  // namespace triage::cli
