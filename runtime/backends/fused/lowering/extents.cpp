// The positions of a row, looked at whole or as segments, and which tensors have values at which of them.
#include <c10/util/accumulate.h>

#include <algorithm>

#include "runtime/backends/fused/lowering/extents.h"

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

int32_t Extents::of(std::vector<int64_t> sizes) {
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (loops_.extents[i].sizes == sizes) return static_cast<int32_t>(i);
  return fresh(std::move(sizes));
}

int32_t Extents::fresh(std::vector<int64_t> sizes) {
  loops_.extents.push_back({std::move(sizes)});
  return static_cast<int32_t>(loops_.extents.size() - 1);
}

bool Extents::split(int32_t extent, const std::vector<bool>& outside) {
  if (at(extent).segments >= 0) return this->outside(extent) == outside || turn_around(extent, outside);
  const int32_t whole = root(extent);
  if (is_part(whole)) return false;  // a segment has no segments
  const auto before = loops_.extents;
  const bool again = at(whole).segments >= 0;
  if (!make_parts(extent, outside) || !(again ? split_as(extent, whole) : has_parts_of_values(extent))) {
    loops_.extents = before;
    return false;
  }
  if (again || whole == extent) return true;
  for (RowExtent& other : loops_.extents)  // values have the extent that is split
    if (other.same == whole) other.same = extent;
  at(whole).same = extent;
  at(extent).same = -1;
  return true;
}

/// Writes down which dims number segments, and which positions.
bool Extents::make_parts(int32_t extent, const std::vector<bool>& outside) {
  const auto first = std::find(outside.begin(), outside.end(), false);
  const auto behind = std::find(first, outside.end(), true);
  if (std::find(behind, outside.end(), false) != outside.end()) return false;
  const std::vector<int64_t> sizes = at(extent).sizes;
  const auto dim = [&](auto place) { return sizes.begin() + (place - outside.begin()); };
  std::vector<int64_t> around(sizes.begin(), dim(first));
  around.insert(around.end(), dim(behind), sizes.end());
  const int32_t segments = of(around);
  int32_t positions = of({dim(first), dim(behind)});
  if (segments == positions)
    positions = fresh({dim(first), dim(behind)});  // of one size when captured; that need not stay so
  if (at(segments).segments >= 0 || at(positions).segments >= 0) return false;
  int32_t inner = behind == outside.end() ? -1 : segments;
  if (inner >= 0 && first != outside.begin()) inner = fresh({dim(behind), sizes.end()});
  at(extent).segments = segments, at(extent).positions = positions, at(extent).inner = inner;
  return true;
}

// --- extents of the same positions, one of which (`root`) values have

int32_t Extents::root(int32_t extent) const {
  if (extent < 0) return extent;
  const int32_t same = at(extent).same;
  return same < 0 ? extent : same;
}

bool Extents::has_parts_of_values(int32_t index) const {
  const RowExtent& extent = at(index);
  return root(extent.segments) == extent.segments && root(extent.positions) == extent.positions &&
         root(extent.inner) == extent.inner;
}

/// Of an extent that values have.
bool Extents::is_part(int32_t extent) const {
  return std::any_of(loops_.extents.begin(), loops_.extents.end(), [&](const RowExtent& whole) {
    return whole.same < 0 && (whole.segments == extent || whole.positions == extent || whole.inner == extent);
  });
}

bool Extents::link(int32_t a, int32_t b) {
  int32_t kept = root(a), gone = root(b);
  if (kept == gone) return true;
  if (is_part(gone) || at(gone).segments >= 0) std::swap(kept, gone);
  if (is_part(gone) || (is_part(kept) && at(gone).segments >= 0)) return false;
  if (at(gone).segments >= 0 && !split_as(gone, kept)) return false;
  for (RowExtent& other : loops_.extents)
    if (other.same == gone) other.same = kept;
  at(gone).same = kept;
  return true;
}

/// Whether the parts of `extent` are as many as those of `other`, in the same order; then these are the same too.
bool Extents::split_as(int32_t extent, int32_t other) {
  const RowExtent one = at(extent), whole = at(other);
  const auto count = [&](int32_t part) { return c10::multiply_integers(at(part).sizes); };
  if ((one.inner < 0) != (whole.inner < 0) || count(one.segments) != count(whole.segments) ||
      count(one.positions) != count(whole.positions) || (one.inner >= 0 && count(one.inner) != count(whole.inner)))
    return false;
  at(extent).same = other;  // its parts need not be what values have
  return link(whole.segments, one.segments) && link(whole.positions, one.positions) &&
         (one.inner < 0 || link(whole.inner, one.inner));
}

/// Which dims number the segments of an extent.
std::vector<bool> Extents::outside(int32_t index) const {
  const auto rank = [&](int32_t part) { return at(part).sizes.size(); };
  const RowExtent& extent = at(index);
  std::vector<bool> dims(extent.sizes.size(), true);
  const size_t behind = extent.inner < 0 ? 0 : rank(extent.inner), first = rank(extent.segments) - behind;
  for (size_t i = 0; i < rank(extent.positions); ++i) dims[first + i] = false;
  return dims;
}

/// Positions become segments, and the other way round, as long as nothing is reduced over them.
bool Extents::turn_around(int32_t index, std::vector<bool> wanted) {
  RowExtent& extent = at(index);
  wanted.flip();
  const bool reduced = std::any_of(loops_.values.begin(), loops_.values.end(), [&](const LoopValue& value) {
    return value.kind == LoopValue::Kind::reduce && value.place == Place::element &&
           are_same(loops_.values[static_cast<size_t>(value.operands[0])].extent, index);
  });
  for (const RowExtent& other : loops_.extents)
    if (other.same == index && other.segments >= 0) return false;
  if (reduced || extent.same >= 0 || outside(index) != wanted || (extent.inner >= 0 && extent.inner != extent.segments))
    return false;
  std::swap(extent.segments, extent.positions);
  extent.inner = extent.inner < 0 ? extent.segments : -1;
  return true;
}

std::optional<int32_t> Extents::again(int32_t first, const std::vector<bool>& outside) {
  for (size_t i = 0; i < loops_.extents.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (loops_.extents[i].again == first && this->outside(index) == outside) return index;
  }
  const RowExtent whole = at(first);
  std::vector<bool> turned = outside;
  turned.flip();
  const auto begin = std::find(outside.begin(), outside.end(), false), end = std::find(begin, outside.end(), true);
  if (std::find(end, outside.end(), false) != outside.end()) return std::nullopt;
  RowExtent made{whole.sizes};
  made.again = first;
  if (turned == this->outside(first) && (whole.inner < 0 || whole.inner == whole.segments)) {
    made.segments = whole.positions, made.positions = whole.segments;
    made.inner = end == outside.end() ? -1 : made.segments;
  } else {
    const auto dim = [&](auto place) { return whole.sizes.begin() + (place - outside.begin()); };
    std::vector<int64_t> around(whole.sizes.begin(), dim(begin));
    around.insert(around.end(), dim(end), whole.sizes.end());
    made.segments = fresh(around), made.positions = fresh({dim(begin), dim(end)});
    if (end != outside.end())
      made.inner = begin == outside.begin() ? made.segments : fresh({dim(end), whole.sizes.end()});
  }
  loops_.extents.push_back(made);
  Reshape same{first, static_cast<int32_t>(loops_.extents.size() - 1), {}};
  for (size_t dim = 0; dim < made.sizes.size(); ++dim)
    same.sizes.push_back({Reshape::ReshapeSize::From::dim, static_cast<int64_t>(dim)});
  loops_.reshapes.push_back(std::move(same));
  return loops_.reshapes.back().to;
}

std::optional<int32_t> Extents::part_of(int32_t extent, const std::vector<bool>& dims) {
  if (all_are(dims, true)) return extent;
  if (at(extent).segments < 0) {
    std::vector<bool> first = dims, second = dims;
    (dims.front() && !dims.back() ? second : first).flip();  // segments in front of positions, where both can be
    if (!split(extent, first) && !split(extent, second)) return std::nullopt;
  }
  std::vector<bool> segments = outside(extent);
  if (dims == segments) return at(extent).segments;
  segments.flip();
  return dims == segments ? std::optional(at(extent).positions) : std::nullopt;
}

bool Extents::covers(const TensorForm& part, const TensorForm& whole) {
  if (part.rank != whole.rank) return false;
  if (part.kind == Kind::row) return whole.kind == Kind::row || whole.kind == Kind::element;
  if (part.kind != Kind::element || whole.kind != Kind::element) return false;
  const auto found = dims_of_own(part.trailing, whole.trailing);
  if (!found || all_are(*found, false)) return false;
  const auto same = part_of(whole.extent, *found);
  return same && are_same(*same, part.extent);
}

}  // namespace triage::fused
