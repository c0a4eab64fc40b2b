// Statistics of values for people, programs and Prometheus.
#include <fmt/format.h>
#include <triage/value_statistics.h>

#include <algorithm>
#include <array>

#include "runtime/messages/metric.h"
#include "runtime/messages/printable.h"

namespace triage {
namespace {

double of_limit(const ValueStatistics& one) { return one.limit > 0 ? one.largest() / one.limit : 0; }

std::string percent(double share) {
  if (share == 0) return "0 %";
  return share < 0.001 ? "<0.1 %" : fmt::format("{:.1f} %", share * 100);
}

std::string share_text(uint64_t count, const ValueStatistics& one) {
  return percent(one.values == 0 ? 0 : static_cast<double>(count) / static_cast<double>(one.values));
}

std::string number_text(const std::optional<double>& number) { return number ? fmt::format("{:.5g}", *number) : "-"; }
std::string number_json(const std::optional<double>& number) { return number ? fmt::format("{}", *number) : "null"; }

using Cells = std::array<std::string, 12>;
constexpr size_t text_columns = 2;  // the others hold numbers

Cells cells_of(const ValueStatistics& one) {
  return {messages::one_line(one.location),
          messages::one_line(one.dtype),  // of a file, it may be anything
          std::to_string(one.batches),
          std::to_string(one.values),
          number_text(one.minimum),
          number_text(one.maximum),
          one.inf > 0 ? "over" : percent(of_limit(one)),
          share_text(one.near_limit, one),
          share_text(one.saturated, one),
          share_text(one.zeros, one),
          std::to_string(one.nan),
          std::to_string(one.inf)};
}

struct ValueMetric {
  const char *name, *type, *help;
  std::optional<double> (*number)(const ValueStatistics& one);
};

template <uint64_t ValueStatistics::*count>
std::optional<double> count_of(const ValueStatistics& one) {
  return static_cast<double>(one.*count);
}

const ValueMetric value_metrics[] = {
    {"value_batches_total", "counter", "Batches in which a location gave values of a dtype.",
     count_of<&ValueStatistics::batches>},
    {"values_total", "counter", "Values that a location gave.", count_of<&ValueStatistics::values>},
    {"value_zeros_total", "counter", "Values that are 0.", count_of<&ValueStatistics::zeros>},
    {"value_near_limit_total", "counter", "Values of at least 1/16 of the limit of their dtype, or Inf.",
     count_of<&ValueStatistics::near_limit>},
    {"value_saturated_total", "counter", "Values at the limit of their dtype, or Inf.",
     count_of<&ValueStatistics::saturated>},
    {"value_nan_total", "counter", "Values that are NaN.", count_of<&ValueStatistics::nan>},
    {"value_inf_total", "counter", "Values that are Inf.", count_of<&ValueStatistics::inf>},
    {"value_min", "gauge", "The smallest finite value.", [](const ValueStatistics& one) { return one.minimum; }},
    {"value_max", "gauge", "The largest finite value.", [](const ValueStatistics& one) { return one.maximum; }},
    {"value_of_limit", "gauge", "The largest finite magnitude, as a share of the limit of the dtype.",
     [](const ValueStatistics& one) -> std::optional<double> { return of_limit(one); }},
};

}  // namespace

std::string value_statistics_text(const std::vector<ValueStatistics>& statistics) {
  std::vector<Cells> rows = {{"location", "dtype", "batches", "values", "min", "max", "of limit", "near limit",
                              "saturated", "zero", "NaN", "Inf"}};
  for (const ValueStatistics& one : statistics) rows.push_back(cells_of(one));
  std::array<size_t, std::tuple_size_v<Cells>> widths{};
  for (const Cells& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      text +=
          i < text_columns ? fmt::format("{:<{}}  ", row[i], widths[i]) : fmt::format("{:>{}}  ", row[i], widths[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string value_statistics_json(const std::vector<ValueStatistics>& statistics) {
  std::string text;
  for (const ValueStatistics& one : statistics)
    text += fmt::format(
        "{}{{\"location\":{},\"dtype\":{},\"limit\":{},\"batches\":{},\"values\":{},\"min\":{},\"max\":{},"
        "\"of_limit\":{},\"near_limit\":{},\"saturated\":{},\"zeros\":{},\"nan\":{},\"inf\":{}}}",
        text.empty() ? "" : ",\n", messages::json_text(one.location), messages::json_text(one.dtype), one.limit,
        one.batches, one.values, number_json(one.minimum), number_json(one.maximum), of_limit(one), one.near_limit,
        one.saturated, one.zeros, one.nan, one.inf);
  return "{\"statistics\":[" + text + "]}\n";
}

std::string value_statistics_metrics(const std::vector<ValueStatistics>& statistics) {
  std::string text;
  for (const ValueMetric& described : value_metrics) {
    messages::Metric metric(text, described.name, described.type, described.help);
    for (const ValueStatistics& one : statistics)
      if (const auto number = described.number(one))
        metric.add(messages::label("location", one.location) + ',' + messages::label("dtype", one.dtype), *number);
  }
  return text;
}

}  // namespace triage
