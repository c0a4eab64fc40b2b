#pragma once
#include "bindings/lua/tensors/calls/resolve.h"

#include <ATen/core/stack.h>

#include <string>
#include <vector>

/// Flags that follow guarded tensors through operators. Dim 0 is the batch. Which samples the rows of a result are is
/// read from the operator table (runtime/operators/semantics.h); where it does not say so, the call is an error.
namespace triage::lua {

/// The guarded tensors among the arguments of one call.
class GuardedArguments {
 public:
  /// Puts their data in their places on the stack; in lists, too.
  GuardedArguments(lua_State* L, const Arguments& arguments);
  bool empty() const noexcept { return guards_.empty(); }

  /// Before the call, whose arguments are kept. Throws where it would write bad samples into a tensor whose flags do
  /// not tell.
  void prepare(const Overload& overload, const ArgumentBinding& binding, const torch::jit::Stack& arguments,
               const std::string& name);
  /// The flags of a result; undefined where it has none, as an answer (a mask) or a tensor of the same form.
  at::Tensor flags_of(lua_State* L, const at::Tensor& result) const;

 private:
  struct GuardedArgument {
    int index;    // on the stack
    int element;  // of the list there; -1: it is no list
    at::Tensor data, flags;
    int param = -1;
  };
  void take(lua_State* L, int index);
  void take_list(lua_State* L, int index);
  const c10::IValue* argument(const char* name) const;
  bool along_rows(const GuardedArgument& guard, const char* name, int64_t more_dims = 0) const;
  bool beside_rows(const GuardedArgument& guard, const char* name, int64_t more_dims = 0) const;
  bool answers(const at::Tensor& result) const;
  bool keeps(const GuardedArgument& guard, const at::Tensor& result) const;
  bool keeps_by_product(const GuardedArgument& guard, const at::Tensor& result) const;
  bool keeps_in_form(const GuardedArgument& guard) const;
  at::Tensor moved(lua_State* L, const GuardedArgument& guard) const;
  at::Tensor joined(lua_State* L) const;
  at::Tensor selected(lua_State* L) const;
  [[noreturn]] void refuse() const;

  std::vector<GuardedArgument> guards_;
  const Overload* overload_ = nullptr;
  torch::jit::Stack arguments_;
  std::string name_;
};

/// The result that lies on top of the stack becomes a guarded tensor, where it has flags, which move to its device.
void guard_result(lua_State* L, const at::Tensor& flags);

}  // namespace triage::lua
