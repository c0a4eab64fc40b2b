#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <triage/error.h>
#include <triage/graph.h>

#include <string>
#include <vector>

#include "runtime/graph/argument_type.h"
#include "runtime/operators/contract.h"

/// A graph laid out for the interpreter: everything that can be decided before the first call is decided here, so that
/// a call looks nothing up. Values live in registers: first the inputs, in graph order (read from the caller's array),
/// then the results of the nodes.
namespace triage::eager {

using Register = uint32_t;

struct ArgumentSlot {
  enum class From : uint8_t {
    read,      // a register, needed again later
    take,      // a register, at its last use
    constant,  // an IValue of the plan
    number,    // a register that is read as a number (`kind`)
    list,      // a list with at least one register in it
  };
  From from = From::constant;
  graph::Kind kind = graph::Kind::tensor;
  uint32_t index = 0;  // register, or index into EagerPlan::constants or EagerPlan::lists
};

struct List {
  std::vector<ArgumentSlot> items;
  c10::TypePtr element;
};

struct PlanStep {
  c10::OperatorHandle op;
  uint32_t first_slot;  // into EagerPlan::slots; one for each argument of the schema
  uint32_t num_slots;
  Register first_result;  // results lie side by side
  uint32_t num_results;
  bool returns_list;      // results come as at least one list, to be flattened
  uint32_t first_unused;  // into EagerPlan::unused: results nobody reads
  uint32_t num_unused;
  const operators::Contract* contract = nullptr;  // what it is held to where the graph is not trusted; null: nothing
  operators::AskedAgain asked = operators::AskedAgain::never;  // whether other inputs may take it out of its contract
};

/// Where the step came from: for errors only.
struct StepOrigin {
  std::string text;  // "%3 = aten::mm"
  Source source;
};

struct PlanOutput {
  enum class From : uint8_t { input, constant, result };
  From from;
  uint32_t index;     // input, constant tensor, or register
  bool last = false;  // nobody else reads the register: move it out
};

struct EagerPlan {
  std::string name;
  size_t num_inputs = 0;
  size_t num_registers = 0;
  std::vector<PlanStep> steps;
  std::vector<ArgumentSlot> slots;
  std::vector<c10::IValue> constants;
  std::vector<List> lists;
  std::vector<Register> unused;
  std::vector<PlanOutput> outputs;
  std::vector<at::Tensor> tensors;  // constants and variables, with which outputs must not share memory
  std::vector<StepOrigin> origins;  // one for each step
};

EagerPlan plan_of(const graph::Graph& graph);
size_t bytes(const EagerPlan& plan);

}  // namespace triage::eager
