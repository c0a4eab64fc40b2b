#include <algorithm>

#include "runtime/diagnose/isolation/recording.h"
#include "runtime/diagnose/isolation/rows.h"

namespace triage::diagnose {
namespace {

/// How far two recordings went the same way.
size_t common_steps(const Recording& a, const Recording& b) {
  const size_t count = std::min(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < count; ++i) {
    const Step &one = a.steps[i], &other = b.steps[i];
    if (one.op != other.op || one.source.line != other.source.line || one.reads != other.reads ||
        one.results != other.results)
      return i;
  }
  return count;
}

/// What is known of each value that both recordings have.
class Crossed {
 public:
  Crossed(const Recording& clean, const Recording& poisoned, int64_t samples, int64_t row)
      : clean_(clean), poisoned_(poisoned), samples_(samples), row_(row), known_(clean.values.size()) {}

  bool operator()(size_t value) {
    if (value >= clean_.values.size() || value >= poisoned_.values.size()) return false;
    if (!known_[value])
      known_[value] = spread_of(clean_.values[value].tensor, poisoned_.values[value].tensor, samples_, row_,
                                clean_.values[value].is_flags);
    return *known_[value] == Spread::others;
  }
  bool any(const std::vector<size_t>& values) {
    return std::any_of(values.begin(), values.end(), [this](size_t value) { return (*this)(value); });
  }

 private:
  const Recording &clean_, &poisoned_;
  int64_t samples_, row_;
  std::vector<std::optional<Spread>> known_;
};

/// From an output back through what crossed, to the first step that read nothing of that kind.
std::optional<size_t> on_the_way_to(size_t output, const Recording& clean, size_t common, Crossed& crossed) {
  constexpr size_t none = static_cast<size_t>(-1);
  std::vector<size_t> producer(clean.values.size(), none), open{output};
  for (size_t i = 0; i < common; ++i)
    for (const size_t result : clean.steps[i].results) producer[result] = i;
  std::vector<bool> seen(clean.values.size());
  std::optional<size_t> first;
  while (!open.empty()) {
    const size_t value = open.back();
    open.pop_back();
    if (value >= seen.size() || seen[value] || !crossed(value) || producer[value] == none) continue;
    seen[value] = true;
    const size_t step = producer[value];
    const std::vector<size_t>& reads = clean.steps[step].reads;
    if (crossed.any(reads))
      open.insert(open.end(), reads.begin(), reads.end());
    else if (!first || step < *first)
      first = step;
  }
  return first;
}

}  // namespace

std::optional<size_t> first_crossing(const Recording& clean, const Recording& poisoned, int64_t samples, int64_t row,
                                     std::optional<size_t> output) {
  const size_t common = common_steps(clean, poisoned);
  Crossed crossed(clean, poisoned, samples, row);
  if (!poisoned.failure.empty()) {
    const bool in_last = common + 1 == poisoned.steps.size() && poisoned.steps[common].results.empty() &&
                         common < clean.steps.size() && clean.steps[common].op == poisoned.steps[common].op;
    const bool behind_last = poisoned.raised_by_next && common == poisoned.steps.size() && common < clean.steps.size();
    if (in_last || behind_last) return common;
  } else if (output && *output < clean.outputs.size() && clean.outputs[*output]) {
    if (const auto found = on_the_way_to(*clean.outputs[*output], clean, common, crossed)) return found;
  }
  // Control flow of a script connects values that no operator connects.
  for (size_t i = 0; i < common; ++i)
    if (crossed.any(clean.steps[i].results) && !crossed.any(clean.steps[i].reads)) return i;
  return std::nullopt;
}

}  // namespace triage::diagnose
