#include "runtime/diagnose/minify/simplify.h"

#include <ATen/ATen.h>
#include <triage/error.h>

#include <algorithm>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/copy.h"

namespace triage::diagnose {
namespace {

using graph::Copies;
using graph::Graph;
using graph::Kind;
using graph::Value;
using Fill = ProgramInput::Fill;

bool is_odd(const c10::IValue& number) {
  if (number.isDouble()) return number.toDouble() != 0 && number.toDouble() != 1;
  return number.isInt() && number.toInt() != 0 && number.toInt() != 1;
}

bool is_number_there(const c10::Argument& argument) {
  const graph::ArgumentType type = graph::type_of(argument);
  return !type.list && (type.kind == Kind::number || type.kind == Kind::real || type.kind == Kind::tensor);
}

std::vector<Value*> copied(const std::vector<Value*>& values, const Copies& copies) {
  std::vector<Value*> all;
  for (const Value* value : values) all.push_back(copies.at(value));
  return all;
}

}  // namespace

std::vector<ScalarPlace> odd_scalars(const GraphProgram& program) {
  std::vector<ScalarPlace> places;
  const auto& nodes = program.graph.nodes();
  for (size_t i = 0; i < nodes.size(); ++i)
    for (size_t j = 0; j < nodes[i]->operands.size(); ++j) {
      const c10::IValue* constant = nodes[i]->operands[j].constant();
      if (constant && is_odd(*constant) && is_number_there(nodes[i]->op.schema().arguments()[j]))
        places.push_back({i, j});
    }
  return places;
}

GraphProgram with_ones(const GraphProgram& program, const std::vector<ScalarPlace>& places) {
  GraphProgram made = program.clone();
  for (const ScalarPlace& place : places) {
    graph::Operand& operand = made.graph.nodes()[place.node]->operands[place.operand];
    operand = operand.constant()->isDouble() ? c10::IValue(1.0) : c10::IValue(int64_t{1});
  }
  return made;
}

bool is_filled_with(const at::Tensor& constant, int64_t number) { return constant.eq(number).all().item<bool>(); }

GraphProgram with_filled_constant(const GraphProgram& program, size_t constant, int64_t number) {
  GraphProgram made = program.clone();
  Graph simple(program.graph.name());
  Copies copies;
  for (const auto& input : program.graph.inputs()) graph::copy_input(simple, input, copies);
  const auto& constants = program.graph.constants();
  for (size_t i = 0; i < constants.size(); ++i) {
    if (i != constant) {
      graph::copy_constant(simple, constants[i], copies);
      continue;
    }
    const at::Tensor& old = constants[i].tensor;
    at::Tensor filled = at::full_like(old, number);
    filled.unsafeGetTensorImpl()->set_wrapped_number(old.unsafeGetTensorImpl()->is_wrapped_number());
    copies[constants[i].value] = simple.add_constant(filled, constants[i].value->name);
  }
  for (const auto& node : program.graph.nodes()) graph::copy_node(simple, *node, copies);
  simple.set_outputs(copied(program.graph.outputs(), copies));
  made.graph = std::move(simple);
  return made;
}

GraphProgram without_input(const GraphProgram& program, size_t gone) {
  GraphProgram made = program.clone();
  made.inputs.erase(made.inputs.begin() + static_cast<std::ptrdiff_t>(gone));
  Graph simple(program.graph.name());
  Copies copies;
  const auto& inputs = program.graph.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (i != gone) graph::copy_input(simple, inputs[i], copies);
  for (const auto& constant : program.graph.constants()) graph::copy_constant(simple, constant, copies);
  const Value* const stand_in = copies[inputs[gone].value] = simple.new_value();
  for (const auto& node : program.graph.nodes()) {
    graph::Node* twin = graph::copy_node(simple, *node, copies);
    for (Value* result : twin->results) simple.edit(result).meta.reset();  // other sizes, perhaps
    for (graph::Operand& operand : twin->operands)
      if (operand.value() == stand_in) operand = c10::IValue(int64_t{1});
  }
  simple.set_outputs(copied(program.graph.outputs(), copies));
  made.graph = std::move(simple);
  return made;
}

bool simplify_fill(ProgramInput& input, bool is_flags, Fill fill) {
  if (input.fill <= fill) return false;                    // in the order of the enum
  if (is_flags && fill != Fill::zeros) return false;       // other bits are no flags
  if (input.is_number && fill > Fill::ones) return false;  // one number is as simple as another
  input.fill = fill;
  input.values = at::Tensor();
  return true;
}

}  // namespace triage::diagnose
