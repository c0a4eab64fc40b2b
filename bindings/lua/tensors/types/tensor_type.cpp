// The metatable of tensors, and their fields. What indexing, operators and methods do stands in files of their own.
#include "bindings/lua/tensors/types/tensor_type.h"

#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/tensors/types/indexing.h"
#include "bindings/lua/tensors/types/methods.h"
#include "bindings/lua/tensors/types/operators.h"
#include "bindings/lua/tensors/types/print.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/kind_reads.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/tensors/host_memory.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace triage::lua {
namespace {

/// What the recorder has in the place of an input: autograd knows it otherwise than the caller's own.
bool is_recorded_input(const at::Tensor& tensor) {
  const auto* recorder = capture::Recorder::current();
  return recorder && recorder->tensors().original(tensor).defined();
}

struct Field {
  std::string_view name;
  void (*push)(lua_State*, const at::Tensor&);
};

const Field fields[] = {
    {"shape", push_shape},
    {"dtype",
     [](lua_State* L, const at::Tensor& x) {
       capture::KindReads::note_dtype(x);
       push_dtype(L, x.scalar_type());
     }},
    {"device", [](lua_State* L, const at::Tensor& x) { lua_pushstring(L, x.device().str().c_str()); }},
    {"layout", [](lua_State* L, const at::Tensor& x) { push_layout(L, x.layout()); }},
    {"ndim",
     [](lua_State* L, const at::Tensor& x) {
       if (auto* recorder = capture::Recorder::current()) recorder->sizes().read_rank(x);
       lua_pushinteger(L, x.dim());
     }},
    {"itemsize",
     [](lua_State* L, const at::Tensor& x) { lua_pushinteger(L, static_cast<lua_Integer>(x.element_size())); }},
    {"requires_grad",
     [](lua_State* L, const at::Tensor& x) {
       if (auto* recorder = capture::Recorder::current()) recorder->read_requires_grad(x);
       lua_pushboolean(L, check_tensor(L, 1).requires_grad());  // which a break changes
     }},
    {"is_leaf",
     [](lua_State* L, const at::Tensor& x) {
       if (x.requires_grad() && is_recorded_input(x))
         capture::graph_break(capture::Break::autograd, "`is_leaf` reads autograd state",
                              "Read it outside of the compiled code.");
       if (auto* recorder = capture::Recorder::current()) recorder->read_requires_grad(x);
       if (x.requires_grad()) capture::end_segment();  // a tensor that comes later has no node of autograd before
       lua_pushboolean(L, check_tensor(L, 1).is_leaf());
     }},
    {"grad",
     [](lua_State* L, const at::Tensor& x) {
       capture::graph_break(capture::Break::autograd, "`grad` reads autograd state",
                            "Read it outside, and pass it as an argument.");
       const at::Tensor& now = check_tensor(L, 1);  // which a break changes
       const at::Tensor gradient = now.is_leaf() || now.retains_grad() ? now.grad() : at::Tensor();
       if (capture::ProtectInputs::covers(now)) capture::ProtectInputs::add(gradient);
       push_tensor(L, gradient);
     }},
    {"T", [](lua_State* L, const at::Tensor& x) { push_tensor(L, run_for_tensor(L, "aten::numpy_T", "", {x})); }},
    {"mT", [](lua_State* L, const at::Tensor& x) { push_tensor(L, run_for_tensor(L, "aten::mT", "", {x})); }},
};

/// x.name: a method (upvalue 1 is their table), a field, or an operator, which then becomes a method.
int named_index(lua_State* L, const at::Tensor& tensor) {
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  lua_pop(L, 1);
  size_t length = 0;
  const char* text = lua_tolstring(L, 2, &length);
  std::string_view name(text, length);
  for (const Field& field : fields)
    if (field.name == name) {
      field.push(L, tensor);
      return 1;
    }
  push_named_operator(L, std::string(name), true);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, lua_upvalueindex(1));
  return 1;
}

/// A string that names something, and is not one of the strings that stand for dimensions.
bool is_name(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TSTRING) return false;
  std::string_view text = lua_tostring(L, index);
  return text != "..." && text != ":" && text != "new";
}

int tensor_index(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  if (is_name(L, 2)) return named_index(L, tensor);
  push_tensor(L, index(L, tensor, 2));
  return 1;
}

int tensor_newindex(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  if (!is_name(L, 2)) {
    assign(L, tensor, 2, 3);
    return 0;
  }
  std::string_view name = lua_tostring(L, 2);
  if (name == "requires_grad") specialize_number(L, 3);
  if (name == "requires_grad" && lua_isboolean(L, 3)) {
    capture::BranchGuard::refuse_change(tensor, "assigning `requires_grad`");
    touch_autograd("assigning `requires_grad`");
    check_tensor(L, 1).requires_grad_(lua_toboolean(L, 3));
    ++context(L).epoch;  // captured graphs depend on it
  } else if (name == "grad" && lua_isnil(L, 3)) {
    refuse_in_selection(L, "an assignment to `grad`");
    touch_autograd("assigning `grad`");
    check_tensor(L, 1).mutable_grad() = at::Tensor();
  } else {
    throw std::invalid_argument("a tensor has no field '" + std::string(name) + "' that takes " + describe(L, 3) +
                                "; only x.requires_grad = boolean and x.grad = nil can be assigned");
  }
  return 0;
}

/// Not by a C function, as table.unpack, which takes no symbolic number for a length.
bool asked_by_script(lua_State* L) {
  lua_Debug caller{};
  return lua_getstack(L, 1, &caller) && lua_getinfo(L, "S", &caller) && std::strcmp(caller.what, "C") != 0;
}

int tensor_len(lua_State* L) {
  const at::Tensor& tensor = check_tensor(L, 1);
  if (tensor.dim() == 0) throw std::invalid_argument("# of a 0-dim tensor: it has no dimension 0");
  push_size(L, tensor, 0);
  if (!asked_by_script(L)) specialize_number(L, -1);
  return 1;
}

int tensor_tostring(lua_State* L) {
  check_tensor(L, 1);
  capture::graph_break(capture::Break::reads_value, "`tostring` reads the values of a tensor",
                       "Return the tensor, and print it after the compiled code.");
  charge(L, 0);  // and the clock is looked at: each element is an operation
  std::string text = to_text(check_tensor(L, 1));
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

int tensor_concat(lua_State* L) {
  throw std::invalid_argument("`..` joins strings, and one side is " + describe(L, test_tensor(L, 1) ? 1 : 2) +
                              "; write tostring(x), or torch.cat({a, b}, dim) to join tensors");
}

int tensor_call(lua_State* L) {
  lua_Debug caller{};
  const bool loop = lua_getstack(L, 0, &caller) && lua_getinfo(L, "n", &caller) && caller.name &&
                    std::string_view(caller.name) == "for iterator";
  if (loop)
    throw std::invalid_argument(
        "a `for` does not walk over the rows of a tensor; write `for i = 0, #x - 1 do local row = x[i] ... end`, or "
        "work "
        "on all rows at once");
  const bool is_text = lua_type(L, 2) == LUA_TSTRING;
  if (is_text && std::string_view(lua_tostring(L, 2)).find_first_not_of("0123456789-., []") != std::string_view::npos)
    throw std::invalid_argument(
        "a text behind a tensor calls it, also where the text stands in the next line; a comment begins with --, and "
        "a method is called as x:name(...)");
  if (is_text)
    throw std::invalid_argument(
        "x[[0, 2]] calls x with a text in Lua; to gather by a list of indices write x[torch.tensor({0, 2})]");
  throw std::invalid_argument(
      "a tensor cannot be called like a function; index it with x[i], or call a method as x:name(...)");
}

void push_metatable(lua_State* L) {
  static const luaL_Reg functions[] = {{"__newindex", guarded<tensor_newindex>}, {"__len", guarded<tensor_len>},
                                       {"__tostring", guarded<tensor_tostring>}, {"__concat", guarded<tensor_concat>},
                                       {"__call", guarded<tensor_call>},         {nullptr, nullptr}};
  luaL_newlib(L, functions);
  push_methods(L);
  lua_pushcclosure(L, guarded<tensor_index>, 1);
  lua_setfield(L, -2, "__index");
  for (const char* key : {"__name", "__metatable"}) {
    lua_pushliteral(L, "Tensor");
    lua_setfield(L, -2, key);
  }
  add_metamethods(L);
}

}  // namespace

void open_tensor(lua_State* L) {
  push_metatable(L);
  set_tensor_metatable(L);
  add_tensor_methods(L);
  add_comparisons(L);
}

}  // namespace triage::lua
