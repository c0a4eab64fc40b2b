#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <runtime/operators/contract.h>

#include <memory>
#include <string>
#include <vector>

struct lua_State;

/// What the dispatcher knows under one name, prepared for calls from Lua. Collected once in a process, by any thread.
namespace triage::lua {

/// What a parameter takes. Symbolic integers of newer LibTorch count as plain ones.
enum class ParamKind : uint8_t {
  tensor,
  scalar,
  integer,
  real,
  boolean,
  text,
  dtype,
  layout,
  memory_format,
  device,
  generator,
  tensors,
  optional_tensors,
  integers,
  reals,
  booleans,
  scalars,
  foreign  // streams, storages, script classes: Lua has no such values
};

struct OverloadParam {
  std::string name;
  ParamKind kind = ParamKind::foreign;
  bool optional = false;  // takes None
  bool keyword_only = false;
  bool out = false;      // an `out=` tensor
  bool written = false;  // changed in place
  int length = 0;        // `int[2]`: one number stands for two; 0: any length
  bool has_default = false;
  c10::IValue default_value;
};

struct Overload {
  c10::OperatorHandle handle;
  std::vector<OverloadParam> params;
  int self = -1;                                  // index of the parameter named `self`
  int positional = 0;                             // parameters that may be given by position; they come first
  bool writes_out = false;                        // an `out=` variant
  bool creates = false;                           // takes dtype, layout, device, pin_memory: makes a tensor
  bool writes = false;                            // to some argument
  const operators::Contract* contract = nullptr;  // null: only trusted scripts may call it
  bool one_device = false;                        // refuses numbers of the host beside tensors of a GPU, or copies them

  const c10::FunctionSchema& schema() const { return handle.schema(); }
  /// "sum(self: Tensor, dim: {int} = nil, keepdim: boolean = false, {dtype: dtype = nil}) -> Tensor"
  std::string signature() const;
};

struct Operator {
  std::string name;                 // "aten::sum"
  std::vector<Overload> overloads;  // those that return their result first, `out=` variants last

  std::string base() const { return name.substr(name.rfind(':') + 1); }
};

/// Null where the dispatcher has no callable operator of that name ("aten::add"). The result lives forever.
const Operator* find_operator(const std::string& name);

/// One exact overload ("triage::push", "where"); null where there is none.
const Overload* find_overload(const std::string& name, const std::string& overload);

/// Names in the namespace of `name` that a person may have meant, the closest first; at most three, none that is far
/// off.
std::vector<std::string> close_operators(const std::string& name);

/// Whether calls of this state are held to contracts: those of policies are, unless the host trusts them.
bool by_contract(lua_State* L);

/// Whether scripts of this state may call the overload, and any of an operator: it has a contract, or they may call
/// all.
bool may_call(lua_State* L, const Overload& overload);
bool may_call(lua_State* L, const Operator& op);

/// "Tensor", "int", "{int}", "dtype"
std::string type_name(const OverloadParam& param);

}  // namespace triage::lua
