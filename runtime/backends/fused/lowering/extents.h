#pragma once
#include <optional>
#include <vector>

#include "runtime/backends/fused/loop_ir.h"

namespace triage::fused {

/// The extents of loops that are being built. Several of the same positions have one `root`, which values have.
class Extents {
 public:
  explicit Extents(Loops& loops) : loops_(loops) {}
  RowExtent& at(int32_t extent) const { return loops_.extents[static_cast<size_t>(extent)]; }
  int32_t of(std::vector<int64_t> sizes);
  int32_t root(int32_t extent) const;
  bool are_same(int32_t a, int32_t b) const { return root(a) == root(b); }
  /// Makes one of the positions of two extents; false where loops cannot join the ways in which both are looked at.
  bool link(int32_t a, int32_t b);
  /// Looks at the positions of `extent` as segments, which those of its dims number that are `outside`; false where the
  /// others do not stand side by side, or it is looked at in another way already.
  bool split(int32_t extent, const std::vector<bool>& outside);
  /// An extent of the same sizes, whose segments are numbered by the dims `outside`. Segments become positions, and the
  /// other way round, where these are the same dims; then what belongs to one of them is there for both extents.
  std::optional<int32_t> again(int32_t first, const std::vector<bool>& outside);
  /// Which part of `extent`, the segments or the positions, has these dims, where it is split so or can be.
  std::optional<int32_t> part_of(int32_t extent, const std::vector<bool>& dims);
  /// Whether values of form `part` are there for elements of form `whole`, as they are or the same along some dims.
  bool covers(const TensorForm& part, const TensorForm& whole);

 private:
  int32_t fresh(std::vector<int64_t> sizes);
  bool is_part(int32_t extent) const;
  bool has_parts_of_values(int32_t extent) const;
  bool split_as(int32_t extent, int32_t other);
  bool make_parts(int32_t extent, const std::vector<bool>& outside);
  std::vector<bool> outside(int32_t extent) const;
  bool turn_around(int32_t extent, std::vector<bool> wanted);

  Loops& loops_;
};

/// Along which of the dims of a row's extent a tensor has values of its own. `part` are its last sizes, as many as the
/// row has or fewer; nothing where they do not fit beside it.
std::optional<std::vector<bool>> dims_of_own(const std::vector<int64_t>& part, const std::vector<int64_t>& row);
bool all_are(const std::vector<bool>& list, bool value);

}  // namespace triage::fused
