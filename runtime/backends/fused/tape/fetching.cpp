// Which memory of the caller comes into the cache while a tape computes.
#include <algorithm>

#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {
namespace {

/// The last of the levels from `begin` to `end` that computes long enough to fetch memory meanwhile: of those with a
/// loop that is slow, else of those with a merge that joins.
Steps::Fetch fetched_in(const Steps& steps, size_t begin, size_t end, int32_t slot) {
  Steps::Fetch last{-1, slot};
  for (size_t i = begin; i < end; ++i)
    for (const Steps::Loop& loop : steps.levels[i].loops) {
      const bool merges = std::any_of(loop.reductions.begin(), loop.reductions.end(),
                                      [](const Steps::Reduction& one) { return one.merged != nullptr; });
      if (loop.slow || (merges && !last.slow)) last.level = static_cast<int32_t>(i);
      last.slow |= loop.slow;
    }
  return last;
}

/// The first level that writes to the output.
size_t level_that_writes(const Steps& steps, int32_t output) {
  const auto is_there = [&](int32_t slot) {
    return slot >= 0 && steps.slot(slot).home == Steps::TapeSlot::Home::output && steps.slot(slot).number == output;
  };
  for (size_t i = 0; i < steps.levels.size(); ++i)
    for (const Steps::Loop& loop : steps.levels[i].loops)
      if (std::any_of(loop.ops.begin(), loop.ops.end(), [&](const Steps::Op& op) { return is_there(op.out); }) ||
          std::any_of(loop.reductions.begin(), loop.reductions.end(),
                      [&](const Steps::Reduction& one) { return is_there(one.stored); }))
        return i;
  return 0;
}

/// Before it is written; else, where one row is written, the next one.
Steps::Fetch fetch_of_output(const Steps& steps, int32_t slot) {
  const size_t written = level_that_writes(steps, steps.slot(slot).number);
  Steps::Fetch fetch = fetched_in(steps, 1, written, slot);
  if (fetch.level >= 0 || written == 0) return fetch;
  fetch = fetched_in(steps, written, written + 1, slot);
  fetch.rows_ahead = 1;
  return fetch;
}

}  // namespace

void choose_fetching(Steps& steps) {
  if (steps.width > 1) return;
  int32_t input = -1, output = -1;
  for (size_t i = 0; i < steps.slots.size(); ++i) {
    if (steps.slots[i].size != 4) continue;
    if (steps.slots[i].home == Steps::TapeSlot::Home::input) input = static_cast<int32_t>(i);
    if (steps.slots[i].home == Steps::TapeSlot::Home::output) output = static_cast<int32_t>(i);
  }
  if (input >= 0) steps.fetched_input = fetched_in(steps, 1, steps.levels.size(), input);
  if (output >= 0) steps.fetched_output = fetch_of_output(steps, output);
}

}  // namespace triage::fused
