#include "runtime/backends/fused/parts/row_views.h"

#include <algorithm>

namespace triage::fused {
namespace {

using ValueKind = LoopValue::Kind;
using FormKind = TensorForm::Kind;

class SegmentsToRows {
 public:
  explicit SegmentsToRows(const Loops& loops) : loops_(loops), made_{loops, -1, -1} {}

  std::optional<SegmentsAsRows> run() {
    for (size_t i = 0; i < loops_.extents.size(); ++i)
      if (const RowExtent& extent = loops_.extents[i]; extent.segments >= 0 && extent.same < 0) {
        if (whole_ >= 0 || extent.inner >= 0) return std::nullopt;
        whole_ = static_cast<int32_t>(i), made_.segments = extent.segments, made_.positions = extent.positions;
      }
    if (whole_ < 0) return std::nullopt;
    made_.loops.extents = {RowExtent{loops_.extents[static_cast<size_t>(made_.positions)].sizes}};
    bool all = true;
    for (LoopValue& value : made_.loops.values) all = all && turn(value);
    for (LoopInput& input : made_.loops.inputs) all = all && turn(input.form);
    for (LoopOutput& output : made_.loops.outputs)
      all = all && turn(output.form) && output.form.kind != FormKind::column;
    return all ? std::optional(std::move(made_)) : std::nullopt;
  }

 private:
  int32_t root(int32_t extent) const {
    const int32_t same = extent < 0 ? -1 : loops_.extents[static_cast<size_t>(extent)].same;
    return same < 0 ? extent : same;
  }

  bool turn(LoopValue& value) const {
    if (value.opcode == Opcode::count && value.kind == ValueKind::map) {
      if (root(static_cast<int32_t>(value.numbers[0])) != made_.positions) return false;
      value.numbers[0] = 0;
    }
    if (value.opcode == Opcode::position && value.kind == ValueKind::map) {
      if (value.numbers[0] < 0) return false;
      value.numbers[0] = -1;
    }
    if (value.place == Place::number) return true;
    if (value.place == Place::row || value.kind == ValueKind::classify) return false;
    if (value.extent != whole_ && value.extent != made_.segments && value.extent != made_.positions) return false;
    value.place = value.extent == made_.segments ? Place::row : Place::element;
    value.extent = value.place == Place::row ? -1 : 0;
    return true;
  }

  bool turn(TensorForm& form) const {
    const int32_t extent = root(form.extent);
    if (form.kind == FormKind::number) return true;
    const bool element = form.kind == FormKind::element && extent == whole_;
    const bool row = form.kind == FormKind::element && extent == made_.segments;
    if (!element && !row && !(form.kind == FormKind::column && extent == made_.positions)) return false;
    if (row) form.kind = FormKind::row;
    form.extent = row ? -1 : 0;
    return true;
  }

  const Loops& loops_;
  SegmentsAsRows made_;
  int32_t whole_ = -1;
};

}  // namespace

std::optional<SegmentsAsRows> segments_as_rows(const Loops& loops) { return SegmentsToRows(loops).run(); }

std::optional<int32_t> extent_of_elementwise(const Loops& loops) {
  int32_t extent = -1;
  const auto one_extent = [&](const LoopValue& value) {
    if (value.place == Place::number) return value.opcode != Opcode::count;
    if (extent < 0) extent = value.extent;
    return value.place == Place::element && value.extent == extent && value.opcode != Opcode::position &&
           (value.kind == ValueKind::map || value.kind == ValueKind::input);
  };
  const auto is_column = [](const LoopInput& input) { return input.form.kind == FormKind::column; };
  const bool all = std::all_of(loops.values.begin(), loops.values.end(), one_extent) &&
                   std::none_of(loops.inputs.begin(), loops.inputs.end(), is_column);
  return all && extent >= 0 ? std::optional(extent) : std::nullopt;
}

RowViews::RowViews(const Loops& loops, bool whole)
    : loops_(loops),
      by_segments_(whole ? std::nullopt : segments_as_rows(loops)),
      elementwise_(by_segments_ || whole ? std::nullopt : extent_of_elementwise(loops)),
      choose_lanes_(loops) {
  c10::SmallVector<int64_t, 4> counts;
  for (const RowExtent& extent : loops.extents) counts.push_back(c10::multiply_integers(extent.sizes));
  captured_ = lanes_of(counts);
  if (elementwise_ && captured_ == Lanes::rows) captured_ = Lanes::positions;  // one row, as long as nothing has gaps
}

/// Those that give the bits of the rows of the batch: segments in lanes are rows in lanes.
Lanes RowViews::lanes_of(at::ArrayRef<int64_t> extents) const {
  const Lanes lanes = choose_lanes_(extents);
  return by_segments_ && lanes == Lanes::segments ? Lanes::rows : lanes;
}

/// Segments are rows where they can be. Elements that lie side by side are one long row where rows are short.
RowLayout RowViews::rows_of(const CallLayout& layout) const {
  RowLayout rows{Lanes::positions, layout.batch, layout.batch, layout.stride, layout.extents};
  const auto item = [&](size_t slot) { return static_cast<int64_t>(c10::elementSize(loops_.inputs[slot].form.dtype)); };
  if (by_segments_) {
    const int64_t segments = layout.count(by_segments_->segments), positions = layout.count(by_segments_->positions);
    rows.count *= segments, rows.block = segments, rows.extents = {positions};
    for (size_t i = 0; i < rows.stride.size(); ++i) {
      const FormKind kind = by_segments_->loops.inputs[i].form.kind;
      rows.stride[i] = kind == FormKind::element ? item(i) * positions : kind == FormKind::row ? item(i) : 0;
    }

    bool all = true;
    for (size_t i = 0; i < rows.stride.size(); ++i) all &= layout.stride[i] == segments * rows.stride[i];
    if (all) rows.block = rows.count;
  }
  rows.lanes = lanes_of(layout.extents);
  if (!elementwise_ || rows.lanes != Lanes::rows) return rows;
  const int64_t positions = rows.extents[static_cast<size_t>(*elementwise_)];
  for (size_t i = 0; i < rows.stride.size(); ++i)
    if (loops_.inputs[i].form.kind == FormKind::element && rows.stride[i] != item(i) * positions) return rows;
  rows.flat = true;
  rows.lanes = Lanes::positions;
  rows.count *= positions;
  return rows;
}

}  // namespace triage::fused
