#pragma once
#include <map>
#include <optional>
#include <vector>

#include "runtime/backends/fused/lowering/extents.h"
#include "runtime/backends/fused/lowering/formula.h"

namespace triage::fused {

/// Elements that are others but in rows where `taken` holds; there they are `value`, one a row.
struct PickedRows {
  Ref taken, value, kept;
};

/// Loops that are being built: each function adds values, opcode by opcode.
class LoopBuilder {
 public:
  /// The formula of these operands, as a tensor of `dtype` holds it.
  Ref map(at::ScalarType dtype, const Formula& formula, const std::vector<Ref>& operands);
  Ref map(at::ScalarType dtype, const char* formula, const std::vector<Ref>& operands) {
    return map(dtype, parse_formula(formula), operands);
  }
  /// The formula as a step on the way to another value.
  Ref step(const char* formula, const std::vector<Ref>& operands) { return steps(parse_formula(formula), operands); }
  Ref as_step(Ref value);
  /// One opcode. It belongs where the largest of its operands does.
  Ref apply(Opcode opcode, std::vector<Ref> operands, std::vector<int64_t> numbers = {},
            std::optional<Type> asked = {});
  /// A size that the host knows: dim `dim` of an extent, or (-1) how many rows there are.
  Ref size_number(int32_t extent, int32_t dim);
  Ref literal(Type type, int64_t bits) { return apply(Opcode::literal, {}, {bits}, type); }
  /// Over all positions of a row, or (`segments`, an extent) over those of each segment.
  Ref reduce(Join join, Ref element, int32_t segments = -1);
  Ref classify(Ref element, Ref largest);
  /// The value in another type, as a step.
  Ref converted(Ref value, Type type);
  /// It costs less to compute it again than to keep it.
  void do_not_keep(Ref ref) { loops_.values[static_cast<size_t>(ref)].expensive = false; }
  const LoopValue& value(Ref ref) const { return loops_.values[static_cast<size_t>(ref)]; }
  /// Whether it is computed from values that belong to segments, or are the same in all of them.
  bool in_segments(Ref ref) const;
  /// An element that a selection of rows made, or conditions on such ones: so what is asked of a row need not wait for
  /// the selection.
  std::optional<PickedRows> picked_rows(Ref element);
  /// How many positions there are to reduce.
  Ref count(Ref element, int32_t segments);
  /// The position of each element in its row, or (`segments`, an extent) in its segment.
  Ref position(Ref element, int32_t segments);
  /// One value in all places of form `shape`. What is computed of it and of others takes the value itself.
  Ref spread(Ref value, const TensorForm& shape);
  Ref bare(Ref ref) const;
  Extents& extents() { return extents_; }

 protected:
  Ref add_value(LoopValue made);
  Ref in_dtype(Ref value, at::ScalarType dtype);
  Ref host_number(HostNumber made, at::ScalarType dtype, std::vector<Ref> operands);

  Loops loops_;
  Extents extents_{loops_};
  int32_t line_ = -1;                                     // of the values that are added, as LoopValue::line
  std::map<Ref, std::optional<PickedRows>> picked_rows_;  // what picked_rows has found

 private:
  std::optional<PickedRows> find_picked_rows(Ref element);
  Ref steps(const Formula& formula, const std::vector<Ref>& operands);
  Ref convert(Ref value, Type type);
  bool takes_bare(std::vector<Ref>& operands) const;
  at::ScalarType joint_dtype(const OpcodeRow& row, const std::vector<Ref>& operands) const;
  int32_t joint_extent(const std::vector<Ref>& operands) const;
};

/// Equal values become one, and what no output needs goes.
void share_equal_values(Loops& loops);

}  // namespace triage::fused
