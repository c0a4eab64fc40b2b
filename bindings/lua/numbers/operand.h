#pragma once
#include <ATen/core/Tensor.h>

#include <lua.hpp>

/// What arithmetic on symbolic numbers is given, and the calls that it records.
namespace triage::lua {

/// A tensor of the graph, or a plain number.
struct NumericOperand {
  at::Tensor tensor;
  at::Scalar number;
  bool whole = false;

  bool symbolic() const { return tensor.defined(); }
  void make_double(lua_State* L);
  /// A tensor in any case: a plain number becomes a constant of the graph.
  at::Tensor as_tensor() const;
};

/// The value at `index` is a symbolic number of the capture that runs, or a plain number.
bool is_operand(lua_State* L, int index);
NumericOperand read_operand(lua_State* L, int index);

at::Tensor as_double(lua_State* L, const at::Tensor& number);

/// "pow", "sqrt", ...: runtime/graph/evaluation/number_math.h.
at::Tensor record_math(lua_State* L, const char* function, const NumericOperand& a);
at::Tensor record_math(lua_State* L, const char* function, const NumericOperand& a, const NumericOperand& b);

}  // namespace triage::lua
