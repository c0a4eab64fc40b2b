#include "runtime/diagnose/verify/facts.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

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

/// By sample: whether `value`, of dtype bool, is true somewhere.
std::vector<bool> any_of_rows(const at::Tensor& value) {
  const at::Tensor rows = value.reshape({value.size(0), -1}).any(1).to(at::kCPU).contiguous();
  const bool* const first = rows.data_ptr<bool>();
  return std::vector<bool>(first, first + rows.numel());
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
    add(place, SampleFact::Kind::is_false, text + " is false", compares, any_of_rows(value.logical_not()));
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
    if (step.is_view || !has_rows(value, samples_) || !value.is_floating_point()) return;
    std::vector<bool> made = any_of_rows(at::isfinite(value).logical_not());
    if (std::none_of(made.begin(), made.end(), [](bool one) { return one; })) return;
    for (const size_t read : step.reads) {
      const at::Tensor& from = recording_.values[read].tensor;
      if (!has_rows(from, samples_) || !from.is_floating_point()) continue;
      const std::vector<bool> had = any_of_rows(at::isfinite(from).logical_not());
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
