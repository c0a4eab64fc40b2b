#include "runtime/diagnose/verify/facts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "runtime/diagnose/isolation/poison.h"

namespace triage::diagnose {
namespace {

bool has_rows(const at::Tensor& value, int64_t samples) {
  return value.defined() && value.layout() == at::kStrided && value.dim() > 0 && value.size(0) == samples &&
         value.numel() > 0;
}

bool is_comparison(std::string_view op) {
  const std::string_view name = op.substr(0, op.find('.'));
  return name == "aten::lt" || name == "aten::le" || name == "aten::gt" || name == "aten::ge";
}

/// By sample: whether `value`, of dtype bool and with elements, is `wanted` somewhere. A search reads thousands of
/// masks, and LibTorch's `any` of a dim is slow.
std::vector<bool> any_of_rows(const at::Tensor& value, bool wanted = true) {
  const at::Tensor rows = value.to(at::kCPU).contiguous();
  const auto* const first = static_cast<const char*>(rows.data_ptr());
  const auto row_bytes = static_cast<size_t>(rows.numel() / rows.size(0));
  std::vector<bool> any(static_cast<size_t>(rows.size(0)));
  for (size_t i = 0; i < any.size(); ++i) any[i] = std::memchr(first + i * row_bytes, wanted, row_bytes) != nullptr;
  return any;
}

/// By sample: whether a float is NaN or infinite: times 0 it is NaN, and so is the sum.
std::vector<bool> not_finite_rows(const at::Tensor& value) {
  return any_of_rows(value.reshape({value.size(0), -1}).mul(0).sum(1).isnan());
}

class FactsReader {
 public:
  FactsReader(const Recording& recording, int64_t samples) : recording_(recording), samples_(samples) {}

  std::vector<SampleFact> read() && {
    std::set<size_t> made;
    for (const RecordedStep& step : recording_.steps) made.insert(step.results.begin(), step.results.end());
    std::set<size_t> given;  // masks of the inputs
    for (const RecordedStep& step : recording_.steps)
      for (const size_t read : step.reads)
        if (!made.count(read) && given.insert(read).second) add_sides({"", read, 0}, read, "a mask given", false);
    for (const RecordedStep& step : recording_.steps) add_step(step);
    return std::move(facts_);
  }

 private:
  struct FactPlace {
    std::string text;
    size_t call, result;
  };

  void add_step(const RecordedStep& step) {
    const std::string text =
        step.source.file.empty() ? step.op : fmt::format("{} of line {}", step.op, step.source.line);
    const size_t call = calls_[text]++;
    for (size_t i = 0; i < step.results.size(); ++i) {
      add_sides({text, call, i}, step.results[i], text, is_comparison(step.op));
      add_not_finite({text, call, i}, step, text);
    }
  }

  void add(const FactPlace& place, SampleFact::Kind kind, std::string what, bool compares, std::vector<bool> samples) {
    facts_.push_back({{place.text, place.call, place.result, kind}, std::move(what), compares, std::move(samples)});
  }

  void add_sides(const FactPlace& place, size_t index, const std::string& text, bool compares) {
    const at::Tensor& value = recording_.values[index].tensor;
    if (!has_rows(value, samples_)) return;
    if (recording_.values[index].is_flags) return add_records(place, value, text);
    if (value.scalar_type() != at::kBool) return;
    add(place, SampleFact::Kind::is_true, text + " is true", compares, any_of_rows(value));
    add(place, SampleFact::Kind::is_false, text + " is false", compares, any_of_rows(value, false));
  }

  void add_records(const FactPlace& place, const at::Tensor& flags, const std::string& text) {
    std::vector<bool> has_entry = any_of_rows(flags.ne(0));
    std::vector<bool> is_clean = has_entry;
    is_clean.flip();
    add(place, SampleFact::Kind::is_true, "the record of " + text + " has an entry", false, std::move(has_entry));
    add(place, SampleFact::Kind::is_false, "the record of " + text + " is clean", false, std::move(is_clean));
  }

  /// Of a view, what it shows was there before.
  void add_not_finite(const FactPlace& place, const RecordedStep& step, const std::string& text) {
    const at::Tensor& value = recording_.values[step.results[place.result]].tensor;
    if (step.is_view || !has_rows(value, samples_) || !is_real(value.scalar_type())) return;
    std::vector<bool> made = not_finite_rows(value);
    if (std::none_of(made.begin(), made.end(), [](bool one) { return one; })) return;
    for (const size_t read : step.reads) {
      const at::Tensor& from = recording_.values[read].tensor;
      if (!has_rows(from, samples_) || !is_real(from.scalar_type())) continue;
      const std::vector<bool> had = not_finite_rows(from);
      for (size_t i = 0; i < made.size(); ++i) made[i] = made[i] && !had[i];
    }
    add(place, SampleFact::Kind::not_finite, text + " makes NaN or Inf", true, std::move(made));
  }

  const Recording& recording_;
  const int64_t samples_;
  std::map<std::string, size_t> calls_;
  std::vector<SampleFact> facts_;
};

}  // namespace

std::vector<SampleFact> facts_of(const Recording& recording, int64_t samples) {
  return FactsReader(recording, samples).read();
}

}  // namespace triage::diagnose
