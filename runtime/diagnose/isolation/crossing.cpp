#include <algorithm>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/isolation/recording.h"
#include "runtime/diagnose/isolation/rows.h"

namespace triage::diagnose {
namespace {

constexpr size_t none = static_cast<size_t>(-1);

/// The steps that made the values, of the first `common` steps.
std::vector<size_t> producers_of(const Recording& recording, size_t common) {
  std::vector<size_t> producer(recording.values.size(), none);
  for (size_t i = 0; i < common; ++i)
    for (const size_t result : recording.steps[i].results) producer[result] = i;
  return producer;
}

/// What is known of each value that both recordings have.
class Crossed {
 public:
  Crossed(const Recording& clean, const Recording& poisoned, int64_t samples, int64_t row, size_t common)
      : clean_(clean),
        poisoned_(poisoned),
        samples_(samples),
        row_(row),
        producer_(producers_of(clean, common)),
        known_(clean.values.size()) {}

  bool operator()(size_t value) {
    if (value >= clean_.values.size() || value >= poisoned_.values.size()) return false;
    if (!known_[value]) {
      const Value &was = clean_.values[value], &is = poisoned_.values[value];
      Spread spread = spread_of(was.tensor, is.tensor, samples_, row_, was.is_flags);
      if (spread == Spread::others && (is_seen_through_view(value) || is_slice(value))) spread = Spread::own_sample;
      known_[value] = spread;
    }
    return *known_[value] == Spread::others;
  }
  bool any(const std::vector<size_t>& values) {
    return std::any_of(values.begin(), values.end(), [this](size_t value) { return (*this)(value); });
  }
  size_t producer(size_t value) const { return producer_[value]; }

 private:
  /// One sample alone has no others beside it, and one that is expanded is still that sample.
  bool is_seen_through_view(size_t value) {
    const size_t step = producer_[value];
    return step != none && clean_.steps[step].is_view && !any(clean_.steps[step].reads) &&
           same_kind(clean_.values[value].tensor, poisoned_.values[value].tensor);
  }

  /// A part of the batch that was copied keeps the dims of what it is taken from; a reduction loses that of the
  /// samples, or has one index there.
  bool is_slice(size_t value) {
    const Value& was = clean_.values[value];
    const auto dim = dim_of_one_index(was.tensor, poisoned_.values[value].tensor, samples_, was.is_flags);
    if (!dim || producer_[value] == none) return false;
    const std::vector<size_t>& reads = clean_.steps[producer_[value]].reads;
    return !any(reads) && std::any_of(reads.begin(), reads.end(), [&](size_t read) {
      const at::Tensor &from = clean_.values[read].tensor, &from_bad = poisoned_.values[read].tensor;
      if (!from.defined() || from.dim() != was.tensor.dim()) return false;
      return from.size(*dim) == samples_ || dim_of_one_index(from, from_bad, samples_, false) == dim;
    });
  }

  const Recording &clean_, &poisoned_;
  int64_t samples_, row_;
  std::vector<size_t> producer_;
  std::vector<std::optional<Spread>> known_;
};

/// From an output back through what crossed, to the first step that read nothing of that kind.
std::optional<size_t> on_the_way_to(size_t output, const Recording& clean, Crossed& crossed) {
  std::vector<size_t> open{output};
  std::vector<bool> seen(clean.values.size());
  std::optional<size_t> first;
  while (!open.empty()) {
    const size_t value = open.back();
    open.pop_back();
    if (value >= seen.size() || seen[value] || !crossed(value) || crossed.producer(value) == none) continue;
    seen[value] = true;
    const size_t step = crossed.producer(value);
    const std::vector<size_t>& reads = clean.steps[step].reads;
    if (crossed.any(reads))
      open.insert(open.end(), reads.begin(), reads.end());
    else if (!first || step < *first)
      first = step;
  }
  return first;
}

}  // namespace

size_t common_steps(const Recording& a, const Recording& b) {
  const size_t count = std::min(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < count; ++i) {
    const RecordedStep &one = a.steps[i], &other = b.steps[i];
    if (one.op != other.op || one.source.line != other.source.line || one.reads != other.reads ||
        one.results != other.results)
      return i;
  }
  return count;
}

bool is_view(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  });
}

std::optional<size_t> first_crossing(const Recording& clean, const Recording& poisoned, int64_t samples, int64_t row,
                                     std::optional<size_t> output) {
  const size_t common = common_steps(clean, poisoned);
  Crossed crossed(clean, poisoned, samples, row, common);
  if (!poisoned.failure.empty()) {
    const bool in_last = common + 1 == poisoned.steps.size() && poisoned.steps[common].results.empty() &&
                         common < clean.steps.size() && clean.steps[common].op == poisoned.steps[common].op;
    const bool behind_last = poisoned.raised_by_next && common == poisoned.steps.size() && common < clean.steps.size();
    if (in_last || behind_last) return common;
  } else if (output && *output < clean.outputs.size() && clean.outputs[*output]) {
    const size_t value = *clean.outputs[*output];
    if (const auto found = on_the_way_to(value, clean, crossed)) return found;
    // An output that shows one sample in the places of others.
    const size_t last = crossed.producer(value);
    if (last != none && clean.steps[last].is_view) return last;
  }
  // Control flow of a script connects values that no operator connects.
  for (size_t i = 0; i < common; ++i)
    if (crossed.any(clean.steps[i].results) && !crossed.any(clean.steps[i].reads)) return i;
  return std::nullopt;
}

}  // namespace triage::diagnose
