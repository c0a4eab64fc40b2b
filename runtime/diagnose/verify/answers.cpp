#include "runtime/diagnose/verify/answers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/config.h>

#include <algorithm>
#include <cmath>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/isolation/poison.h"

namespace triage::diagnose {
namespace {

constexpr size_t entries_shown = 4;

/// Of a record that keeps entries in the order of their arrival: the newest come last.
bool is_in_order(const AccumulationConfig& config) { return config.priority == Priority::chrono; }

/// A bound as elements of this dtype are compared with it.
double sample_bound(const c10::Scalar& bound, const at::Tensor& sample) {
  double number = bound.toDouble();
  if (!sample.is_floating_point()) return number;
  const double last = largest_of(sample.scalar_type());
  if (std::isfinite(number)) number = std::clamp(number, -last, last);
  return at::scalar_tensor(number, sample.scalar_type()).item<double>();
}

bool tells_of_bad(const Record& record, const AccumulationConfig& kept) {
  const auto is_error = [](const flags::UnpackedError& entry) {
    return entry.severity >= Severity::error && entry.code != Code::fallback_value;
  };
  const auto is_repair = [](const flags::UnpackedError& entry) { return entry.code == Code::fallback_value; };
  if (!is_in_order(kept)) return std::any_of(record.begin(), record.end(), is_error);
  Record by_time = record;
  if (kept.order == Order::last) std::reverse(by_time.begin(), by_time.end());
  const auto repair = std::find_if(by_time.rbegin(), by_time.rend(), is_repair);
  return std::any_of(by_time.rbegin(), repair, is_error);
}

/// With as many digits as tell it from its neighbours.
std::string number_text(const at::Tensor& element) {
  if (!element.is_floating_point() && !element.is_complex()) return fmt::format("{}", element.item<int64_t>());
  const double value = element.item<double>();
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Inf" : "-Inf";
  return element.scalar_type() == at::kDouble ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
}

}  // namespace

bool Answers::has_samples(size_t output) const {
  const at::Tensor& tensor = outputs[output];
  return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == samples && !is_flags_output(output);
}

bool Answers::gives_flags() const { return std::find(is_flags.begin(), is_flags.end(), true) != is_flags.end(); }

bool Answers::has_records(size_t output) const {
  return is_flags_output(output) && outputs[output].defined() && outputs[output].dim() == 2 &&
         outputs[output].size(0) == samples;
}

std::vector<Record> Answers::records() const {
  std::vector<Record> records(static_cast<size_t>(samples));
  for (size_t i = 0; i < outputs.size() && i < is_flags.size(); ++i) {
    if (!has_records(i)) continue;
    std::vector<Record> all = flags::unpack_all(outputs[i], {.codes = codes});
    for (size_t row = 0; row < all.size(); ++row)
      records[row].insert(records[row].end(), all[row].begin(), all[row].end());
  }
  return records;
}

bool Answers::tells_of_bad(int64_t row, const AccumulationConfig& kept) const {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (has_records(i) && diagnose::tells_of_bad(flags::unpack(outputs[i], row, {.codes = codes}), kept)) return true;
  return false;
}

std::string text_of(const Record& record) {
  std::string text;
  for (size_t i = 0; i < std::min(record.size(), entries_shown); ++i)
    text += fmt::format("{}{} @ {}", i > 0 ? ", " : "", record[i].code_name, record[i].location_name);
  if (record.size() > entries_shown) text += fmt::format(" and {} more", record.size() - entries_shown);
  return text;
}

std::optional<std::string> not_finite(const Answers& answers, size_t output, int64_t row, const Record& record,
                                      bool only_nan, const AccumulationConfig& kept) {
  const at::Tensor sample = answers.outputs[output].select(0, row);
  if (!sample.is_floating_point() || at::isfinite(sample).all().item<bool>() || answers.tells_of_bad(row, kept))
    return std::nullopt;
  const bool nan = sample.isnan().any().item<bool>();
  if (!nan && only_nan) return std::nullopt;
  const std::string leaves = fmt::format("{} leaves with {}", answers.names[output], nan ? "NaN" : "Inf");
  if (!answers.gives_flags()) return leaves + "; the policy gives no flags";
  if (record.empty()) return leaves + "; its record is clean";
  const bool repaired =
      std::any_of(record.begin(), record.end(), [](const auto& entry) { return entry.code == Code::fallback_value; });
  return fmt::format("{}; its record {}: {}", leaves,
                     repaired ? "says that it was repaired" : "has no error that tells of it", text_of(record));
}

at::Tensor outside(const at::Tensor& values, const OutputRange& range) {
  const bool has_order = !values.is_complex();
  const at::Tensor numbers = has_order ? values.to(at::kDouble) : at::view_as_real(values);
  at::Tensor bad = numbers.isnan();
  if (range.finite) bad = bad.logical_or(numbers.isinf());
  if (!has_order) return bad.any(-1);
  if (range.min) bad = bad.logical_or(numbers.lt(sample_bound(*range.min, values)));
  if (range.max) bad = bad.logical_or(numbers.gt(sample_bound(*range.max, values)));
  return bad;
}

std::optional<std::string> out_of_range(const Answers& answers, size_t output, int64_t row, const OutputRange& range) {
  const at::Tensor sample = answers.outputs[output].select(0, row), bad = outside(sample, range);
  if (!bad.any().item<bool>()) return std::nullopt;
  at::Tensor first = sample.masked_select(bad)[0];
  if (first.is_complex()) first = at::view_as_real(first).abs().amax();
  return fmt::format("{} leaves with {}, and is declared {}", answers.names[output], number_text(first), range.text());
}

int64_t changed_values(const at::Tensor& output, const at::Tensor& input) {
  if (output.sizes() != input.sizes()) return 0;
  return differing(input, output.to(input.scalar_type())).sum().item<int64_t>();
}

}  // namespace triage::diagnose
