#include "runtime/backends/fused/loop_call.h"

#include <algorithm>

namespace triage::fused {

/// To turn rows into lanes and back takes as long as to read them a few times: up to about so many positions it pays;
/// where each position takes long, as exp does, up to more.
LaneChoice::LaneChoice(const Loops& loops) {
  const bool expensive = std::any_of(loops.values.begin(), loops.values.end(), [](const LoopValue& value) {
    return value.expensive && value.place == Place::element;
  });
  longest_ = expensive ? 64 : 16;
  for (const RowExtent& extent : loops.extents)
    if (extent.segments >= 0 && extent.inner < 0) segments_.push_back(extent.positions);
}

Lanes LaneChoice::operator()(at::ArrayRef<int64_t> extents) const {
  const auto is_short = [&](int64_t count) { return count <= longest_; };
  if (extents.empty()) return Lanes::positions;
  if (std::all_of(extents.begin(), extents.end(), is_short)) return Lanes::rows;
  const bool short_segments = std::all_of(segments_.begin(), segments_.end(), [&](int32_t positions) {
    return is_short(extents[static_cast<size_t>(positions)]);
  });
  return !segments_.empty() && short_segments ? Lanes::segments : Lanes::positions;
}

}  // namespace triage::fused
