#include "runtime/diagnose/verify/blame.h"

#include <ATen/ATen.h>
#include <triage/config.h>
#include <triage/flags.h>

#include <algorithm>
#include <set>
#include <vector>

#include "runtime/diagnose/bits.h"

namespace triage::diagnose {
namespace {

/// A recording, asked from its results back.
class Ways {
 public:
  explicit Ways(const Recording& recording) : recording_(recording), producers_(recording.values.size()) {
    for (size_t i = 0; i < recording.steps.size(); ++i)
      for (const size_t result : recording.steps[i].results) producers_[result] = i;
  }

  std::optional<size_t> producer(size_t value) const { return producers_[value]; }
  const Step& step(size_t index) const { return recording_.steps[index]; }
  const Value& value(size_t index) const { return recording_.values[index]; }
  std::optional<size_t> output(size_t index) const {
    return index < recording_.outputs.size() ? recording_.outputs[index] : std::nullopt;
  }

 private:
  const Recording& recording_;
  std::vector<std::optional<size_t>> producers_;
};

bool is_data(const Value& value) {
  return value.tensor.defined() && !value.is_flags && (value.tensor.is_floating_point() || value.tensor.is_complex());
}

bool has_not_finite(const Value& value) { return is_data(value) && !at::isfinite(value.tensor).all().item<bool>(); }

/// What `where` does not take is not on the way.
bool is_taken(const Ways& ways, const Step& step, size_t read, size_t result) {
  const Value &from = ways.value(read), &to = ways.value(result);
  if (step.op.rfind("aten::where", 0) != 0 || from.tensor.sizes() != to.tensor.sizes()) return true;
  return (from.tensor.eq(to.tensor) | (from.tensor.isnan() & to.tensor.isnan()))
      .logical_and(at::isfinite(from.tensor).logical_not())
      .any()
      .item<bool>();
}

bool is_full(const Value& flags) {
  if (!flags.tensor.defined() || flags.tensor.dim() != 2 || flags.tensor.size(0) != 1) return false;
  return static_cast<int64_t>(flags::unpack(flags.tensor, 0).size()) >= get_config().num_slots;
}

/// The first operator that was to add an entry to a full record, and did not.
std::optional<Step> lost_an_entry(const Recording& recording) {
  for (const Step& step : recording.steps)
    for (const size_t read : step.reads)
      for (const size_t result : step.results) {
        const Value &before = recording.values[read], &after = recording.values[result];
        if (before.is_flags && after.is_flags && is_full(before) && is_full(after) &&
            same_kind(before.tensor, after.tensor) && step.reads.size() + step.results.size() > 2)
          return step;
      }
  return std::nullopt;
}

bool has_bits_of(const Value& value, const at::Tensor& input) {
  return value.tensor.defined() && same_kind(value.tensor, input) && same_bits(value.tensor, input);
}

}  // namespace

std::optional<Step> made_not_finite(const Recording& recording, size_t output) {
  const Ways ways(recording);
  std::optional<size_t> value = ways.output(output);
  std::optional<Step> last;
  std::set<size_t> seen;
  while (value && seen.insert(*value).second) {
    const std::optional<size_t> producer = ways.producer(*value);
    if (!producer) break;
    const Step& step = ways.step(*producer);
    if (!last && !step.is_view) last = step;
    const auto from = std::find_if(step.reads.begin(), step.reads.end(), [&](size_t read) {
      return has_not_finite(ways.value(read)) && is_taken(ways, step, read, *value);
    });
    if (from == step.reads.end()) return step;
    value = *from;
  }
  if (const auto lost = lost_an_entry(recording)) return lost;
  return last;
}

std::optional<Step> changed(const Recording& recording, size_t output, const at::Tensor& input) {
  const Ways ways(recording);
  std::optional<size_t> value = ways.output(output);
  std::optional<Step> first;
  std::set<size_t> seen;
  while (value && seen.insert(*value).second && !has_bits_of(ways.value(*value), input)) {
    const std::optional<size_t> producer = ways.producer(*value);
    if (!producer) break;
    const Step& step = ways.step(*producer);
    if (!step.is_view || !first) first = step;
    std::optional<size_t> next;
    for (const size_t read : step.reads) {
      if (has_bits_of(ways.value(read), input)) return step;
      if (!next && same_kind(ways.value(read).tensor, input) && ways.producer(read)) next = read;
    }
    value = next;
  }
  return first;
}

std::optional<Step> first_other(const RunOfSample& one, const RunOfSample& other) {
  const size_t steps = std::min(one.recording.steps.size(), other.recording.steps.size());
  const auto row_of = [](const RunOfSample& run, const Value& value) {
    const at::Tensor& tensor = value.tensor;
    const bool has_samples = tensor.defined() && tensor.dim() > 0 && tensor.size(0) == run.samples;
    return has_samples ? tensor.select(0, run.row) : at::Tensor();
  };
  for (size_t i = 0; i < steps; ++i) {
    const Step &a = one.recording.steps[i], &b = other.recording.steps[i];
    if (a.op != b.op) return std::nullopt;
    for (size_t k = 0; k < std::min(a.results.size(), b.results.size()); ++k) {
      const at::Tensor was = row_of(one, one.recording.values[a.results[k]]);
      const at::Tensor is = row_of(other, other.recording.values[b.results[k]]);
      if (was.defined() && is.defined() && same_kind(was, is) && !same_bits(was, is)) return a;
    }
  }
  return std::nullopt;
}

std::optional<Step> raised(const Recording& recording) {
  return recording.failure.empty() || recording.steps.empty() ? std::nullopt : std::optional(recording.steps.back());
}

}  // namespace triage::diagnose
