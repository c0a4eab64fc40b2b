// The positions of a row, looked at whole or as segments, and which tensors have values at which of them.
#include <c10/util/accumulate.h>

#include <algorithm>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {

using Kind = TensorForm::Kind;

std::optional<std::vector<bool>> dims_of_own(const std::vector<int64_t>& part, const std::vector<int64_t>& row) {
  if (part.size() > row.size()) return std::nullopt;
  std::vector<bool> own;
  for (size_t i = 0; i < row.size(); ++i) {
    const size_t missing = row.size() - part.size();
    const int64_t size = i < missing ? 1 : part[i - missing];
    if (size != 1 && size != row[i]) return std::nullopt;
    if (row[i] != 1) own.push_back(size != 1);
  }
  return own;
}

bool all_are(const std::vector<bool>& list, bool value) {
  return std::all_of(list.begin(), list.end(), [&](bool one) { return one == value; });
}

int32_t Lowering::extent_of(std::vector<int64_t> sizes) {
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (loops_.extents[i].sizes == sizes) return static_cast<int32_t>(i);
  loops_.extents.push_back({std::move(sizes)});
  return static_cast<int32_t>(loops_.extents.size() - 1);
}

bool Lowering::split(int32_t extent, const std::vector<bool>& outside) {
  if (extent_at(extent).segments >= 0) return this->outside(extent) == outside || turn_around(extent, outside);
  const int32_t whole = root(extent);
  if (is_part(whole)) return false;  // a segment has no segments
  const auto before = loops_.extents;
  const bool again = extent_at(whole).segments >= 0;
  if (!make_parts(extent, outside) || !(again ? split_as(extent, whole) : has_parts_of_values(extent))) {
    loops_.extents = before;
    return false;
  }
  if (again || whole == extent) return true;
  for (Extent& other : loops_.extents)  // values have the extent that is split
    if (other.same == whole) other.same = extent;
  extent_at(whole).same = extent;
  extent_at(extent).same = -1;
  return true;
}

/// Writes down which dims number segments, and which positions.
bool Lowering::make_parts(int32_t extent, const std::vector<bool>& outside) {
  const auto first = std::find(outside.begin(), outside.end(), false);
  const auto behind = std::find(first, outside.end(), true);
  if (std::find(behind, outside.end(), false) != outside.end()) return false;
  const std::vector<int64_t> sizes = extent_at(extent).sizes;
  const auto at = [&](auto place) { return sizes.begin() + (place - outside.begin()); };
  std::vector<int64_t> around(sizes.begin(), at(first));
  around.insert(around.end(), at(behind), sizes.end());
  const auto fresh = [&](std::vector<int64_t> of) {
    loops_.extents.push_back({std::move(of)});
    return static_cast<int32_t>(loops_.extents.size() - 1);
  };
  const int32_t segments = extent_of(around);
  int32_t positions = extent_of({at(first), at(behind)});
  if (segments == positions)
    positions = fresh({at(first), at(behind)});  // of one size when captured; that need not stay so
  if (extent_at(segments).segments >= 0 || extent_at(positions).segments >= 0) return false;
  int32_t inner = behind == outside.end() ? -1 : segments;
  if (inner >= 0 && first != outside.begin()) inner = fresh({at(behind), sizes.end()});
  extent_at(extent).segments = segments, extent_at(extent).positions = positions, extent_at(extent).inner = inner;
  return true;
}

// --- extents of the same positions, one of which (`root`) values have

int32_t Lowering::root(int32_t extent) const {
  if (extent < 0) return extent;
  const int32_t same = loops_.extents[static_cast<size_t>(extent)].same;
  return same < 0 ? extent : same;
}

bool Lowering::has_parts_of_values(int32_t index) const {
  const Extent& extent = loops_.extents[static_cast<size_t>(index)];
  return root(extent.segments) == extent.segments && root(extent.positions) == extent.positions &&
         root(extent.inner) == extent.inner;
}

/// Of an extent that values have.
bool Lowering::is_part(int32_t extent) const {
  return std::any_of(loops_.extents.begin(), loops_.extents.end(), [&](const Extent& whole) {
    return whole.same < 0 && (whole.segments == extent || whole.positions == extent || whole.inner == extent);
  });
}

/// Makes one of the positions of two extents; false where values of both are looked at in ways that loops cannot join.
bool Lowering::link(int32_t a, int32_t b) {
  int32_t kept = root(a), gone = root(b);
  if (kept == gone) return true;
  if (is_part(gone) || extent_at(gone).segments >= 0) std::swap(kept, gone);
  if (is_part(gone) || (is_part(kept) && extent_at(gone).segments >= 0)) return false;
  if (extent_at(gone).segments >= 0 && !split_as(gone, kept)) return false;
  for (Extent& other : loops_.extents)
    if (other.same == gone) other.same = kept;
  extent_at(gone).same = kept;
  return true;
}

/// Whether the parts of `extent` are as many as those of `other`, in the same order; then these are the same too.
bool Lowering::split_as(int32_t extent, int32_t other) {
  const Extent one = extent_at(extent), whole = extent_at(other);
  const auto count = [&](int32_t part) { return c10::multiply_integers(extent_at(part).sizes); };
  if ((one.inner < 0) != (whole.inner < 0) || count(one.segments) != count(whole.segments) ||
      count(one.positions) != count(whole.positions) || (one.inner >= 0 && count(one.inner) != count(whole.inner)))
    return false;
  extent_at(extent).same = other;  // its parts need not be what values have
  return link(whole.segments, one.segments) && link(whole.positions, one.positions) &&
         (one.inner < 0 || link(whole.inner, one.inner));
}

/// At the end: what is left has the parts that values have.
void Lowering::use_roots() {
  for (LoopValue& value : loops_.values) value.extent = root(value.extent);
}

/// Which dims number the segments of an extent.
std::vector<bool> Lowering::outside(int32_t index) const {
  const auto rank = [&](int32_t part) { return loops_.extents[static_cast<size_t>(part)].sizes.size(); };
  const Extent& extent = loops_.extents[static_cast<size_t>(index)];
  std::vector<bool> dims(extent.sizes.size(), true);
  const size_t behind = extent.inner < 0 ? 0 : rank(extent.inner), first = rank(extent.segments) - behind;
  for (size_t i = 0; i < rank(extent.positions); ++i) dims[first + i] = false;
  return dims;
}

/// Positions become segments, and the other way round, as long as nothing is reduced over them.
bool Lowering::turn_around(int32_t index, std::vector<bool> wanted) {
  Extent& extent = extent_at(index);
  wanted.flip();
  const bool reduced = std::any_of(loops_.values.begin(), loops_.values.end(), [&](const LoopValue& value) {
    return value.kind == LoopValue::Kind::reduce && value.place == Place::element &&
           are_same(this->value(value.operands[0]).extent, index);
  });
  for (const Extent& other : loops_.extents)
    if (other.same == index && other.segments >= 0) return false;
  if (reduced || extent.same >= 0 || outside(index) != wanted || (extent.inner >= 0 && extent.inner != extent.segments))
    return false;
  std::swap(extent.segments, extent.positions);
  extent.inner = extent.inner < 0 ? extent.segments : -1;
  return true;
}

std::optional<int32_t> Lowering::part_of(int32_t extent, const std::vector<bool>& dims) {
  if (all_are(dims, true)) return extent;
  if (extent_at(extent).segments < 0) {
    std::vector<bool> first = dims, second = dims;
    (dims.front() && !dims.back() ? second : first).flip();  // segments in front of positions, where both can be
    if (!split(extent, first) && !split(extent, second)) return std::nullopt;
  }
  std::vector<bool> segments = outside(extent);
  if (dims == segments) return extent_at(extent).segments;
  segments.flip();
  return dims == segments ? std::optional(extent_at(extent).positions) : std::nullopt;
}

bool Lowering::covers(const TensorForm& part, const TensorForm& whole) {
  if (part.rank != whole.rank) return false;
  if (part.kind == Kind::row) return whole.kind == Kind::row || whole.kind == Kind::element;
  if (part.kind != Kind::element || whole.kind != Kind::element) return false;
  const auto found = dims_of_own(part.trailing, whole.trailing);
  if (!found || all_are(*found, false)) return false;
  const auto same = part_of(whole.extent, *found);
  return same && are_same(*same, part.extent);
}

}  // namespace triage::fused
