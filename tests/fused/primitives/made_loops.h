#pragma once
#include <doctest/doctest.h>
#include <runtime/backends/fused/loop_call.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace triage::fused {

/// Loops that are made by hand.
struct MadeLoops {
  Loops loops;

  explicit MadeLoops(int64_t positions = 5) { loops.extents.push_back({{positions}, false, -1, -1, -1}); }

  Ref add(LoopValue value) {
    loops.values.push_back(std::move(value));
    return static_cast<Ref>(loops.values.size() - 1);
  }
  Ref input(TensorForm form, Type type) {
    LoopValue value;
    value.kind = LoopValue::Kind::input;
    value.place = form.kind == TensorForm::Kind::element ? Place::element : Place::row;
    value.type = type;
    value.dtype = form.dtype;
    value.extent = form.extent;
    value.slots = type == Type::record ? static_cast<int32_t>(form.words * 4) : 0;
    value.slot = static_cast<int32_t>(loops.inputs.size());
    loops.inputs.push_back({loops.inputs.size(), form});
    return add(std::move(value));
  }
  Ref element(Type type) { return input(element_form(type), type); }
  Ref record() {
    TensorForm form;
    form.kind = TensorForm::Kind::record;
    form.dtype = at::kLong, form.rank = 2, form.words = 1;
    return input(form, Type::record);
  }
  TensorForm element_form(Type type) const {
    TensorForm form;
    form.kind = TensorForm::Kind::element;
    form.dtype = dtype_of(type), form.rank = 2, form.extent = 0, form.trailing = loops.extents[0].sizes;
    return form;
  }
  Ref map(Opcode opcode, std::vector<Ref> operands, std::vector<int64_t> numbers = {}, std::optional<Type> asked = {}) {
    std::vector<Type> types;
    LoopValue made;
    made.opcode = opcode, made.place = operands.empty() ? Place::number : Place::row;
    for (const Ref ref : operands) {
      const LoopValue& from = loops.values[static_cast<size_t>(ref)];
      types.push_back(from.type);
      made.slots = std::max(made.slots, from.slots);
      if (from.place != Place::element) continue;
      made.place = Place::element, made.extent = 0;
    }
    const auto type = result_type(opcode, types, asked);
    REQUIRE_MESSAGE(type.has_value(), std::string(row_of(opcode).name));
    made.type = *type, made.dtype = dtype_of(*type);
    if (opcode == Opcode::record_empty) made.slots = static_cast<int32_t>(numbers[0]), made.place = Place::row;
    if (*type != Type::record) made.slots = 0;
    made.operands = std::move(operands), made.numbers = std::move(numbers);
    return add(std::move(made));
  }
  Ref literal(Type type, double number) {
    return map(Opcode::literal, {}, {is_real(type) ? bits_of_real(type, number) : static_cast<int64_t>(number)}, type);
  }
  void store(Ref ref) {
    const LoopValue& value = loops.values[static_cast<size_t>(ref)];
    TensorForm form = element_form(value.type);
    if (value.place != Place::element) form.kind = TensorForm::Kind::row, form.rank = 1, form.trailing = {};
    if (value.type == Type::record) form.kind = TensorForm::Kind::record, form.rank = 2, form.words = value.slots / 4;
    loops.outputs.push_back({ref, form});
  }
};

/// Every opcode of every letter's types, each as an output. `done`: the names of those that are there.
MadeLoops all_opcodes(std::set<std::string>& done);

/// How loops are run by results_of.
struct Trial {
  Lanes lanes = Lanes::positions;
  int64_t rows = 19;
  bool edges = false;    // inputs hold NaN, Inf, zeros of both signs, the largest and the smallest; else small numbers
  bool for_gpu = false;  // not a tape, but as the CPU runs what is written for a GPU (tests/gpu_on_host.h)
};
/// The bytes of all outputs.
std::vector<std::string> results_of(const Loops& loops, const Trial& trial);

}  // namespace triage::fused
