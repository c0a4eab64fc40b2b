#include "runtime/backends/fused/parts/row_views.h"

#include <algorithm>

namespace triage::fused {
namespace {

using Kind = LoopValue::Kind;
using FormKind = TensorForm::Kind;

class SegmentsToRows {
 public:
  explicit SegmentsToRows(const Loops& loops) : loops_(loops), made_{loops, -1, -1} {}

  std::optional<SegmentsAsRows> run() {
    for (size_t i = 0; i < loops_.extents.size(); ++i)
      if (const Extent& extent = loops_.extents[i]; extent.segments >= 0 && extent.same < 0) {
        if (whole_ >= 0 || extent.inner >= 0) return std::nullopt;
        whole_ = static_cast<int32_t>(i), made_.segments = extent.segments, made_.positions = extent.positions;
      }
    if (whole_ < 0) return std::nullopt;
    made_.loops.extents = {Extent{loops_.extents[static_cast<size_t>(made_.positions)].sizes}};
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
    if (value.opcode == Opcode::count && value.kind == Kind::map) {
      if (root(static_cast<int32_t>(value.numbers[0])) != made_.positions) return false;
      value.numbers[0] = 0;
    }
    if (value.opcode == Opcode::position && value.kind == Kind::map) {
      if (value.numbers[0] < 0) return false;
      value.numbers[0] = -1;
    }
    if (value.place == Place::number) return true;
    if (value.place == Place::row || value.kind == Kind::classify) return false;
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
           (value.kind == Kind::map || value.kind == Kind::input);
  };
  const auto is_column = [](const LoopInput& input) { return input.form.kind == FormKind::column; };
  const bool all = std::all_of(loops.values.begin(), loops.values.end(), one_extent) &&
                   std::none_of(loops.inputs.begin(), loops.inputs.end(), is_column);
  return all && extent >= 0 ? std::optional(extent) : std::nullopt;
}

}  // namespace triage::fused
