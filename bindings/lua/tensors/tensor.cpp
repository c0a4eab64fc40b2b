// The Tensor userdata: ownership, memory accounts, fields. What indexing, operators and methods do stands in files of
// their own.
#include "bindings/lua/tensors/tensor.h"
#include "bindings/lua/stack.h"
#include "bindings/lua/table_fields.h"

#include "bindings/lua/loading/effects.h"
#include "bindings/lua/numbers/number.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/tensors/call.h"
#include "bindings/lua/tensors/constants.h"
#include "bindings/lua/tensors/convert.h"
#include "bindings/lua/tensors/indexing.h"
#include "bindings/lua/tensors/methods.h"
#include "bindings/lua/tensors/operators.h"
#include "bindings/lua/tensors/print.h"
#include "bindings/lua/userdata.h"
#include "runtime/capture/branch_guard.h"
#include "runtime/capture/following/follower.h"
#include "runtime/capture/host_memory.h"
#include "runtime/capture/recorder.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace triage::lua {
namespace {

/// `tensor` is undefined once the box was finalized.
struct TensorBox {
  at::Tensor tensor;
  const void* storage = nullptr;  // under which Context::storages counts it
  at::Tensor original = {};       // of an input that a recorder knows as `tensor`

  /// What the script has: the recorder's tensor while that records, the caller's own before, afterwards, and beside it.
  const at::Tensor& current() const {
    if (!original.defined()) return tensor;
    const auto* recorder = capture::Recorder::current();
    return recorder && recorder->knows(tensor) ? tensor : original;
  }
};

const char tensor_metatable = 0;  // its address is the registry key
constexpr const char* methods_key = "triage.tensor.methods";
constexpr int64_t collect_after = 64 << 20;  // bytes of new tensors after which their garbage is looked for

/// Scripts may hold the metatable's functions (they cannot: __metatable is protected; but our own chunks can), so every
/// one of them checks what it is given.
TensorBox* test_box(lua_State* L, int index) { return test_userdata<TensorBox>(L, index, &tensor_metatable); }

void count_in(Context& own, TensorBox& box) {
  ++own.live_tensors;
  const at::Tensor& tensor = box.tensor;
  if (!tensor.has_storage() || tensor.is_meta()) return;
  box.storage = tensor.storage().unsafeGetStorageImpl();
  Context::Storage& storage = own.storages[box.storage];
  if (storage.tensors++ > 0) return;
  if (storage.held) {  // it comes back
    own.held_bytes -= storage.bytes;
    own.tensor_bytes -= storage.bytes;
    storage.held.reset();
  }
  storage.bytes = static_cast<int64_t>(tensor.storage().nbytes());
  own.tensor_bytes += storage.bytes;
}

/// Whether a capture, or autograd, may hold memory that Lua lets go. Of interest to a budget alone: without one, nothing would
/// ever take the entries away.
bool may_hold(const Context& own) {
  return own.limits.tensor_bytes &&
         (capture::Recorder::current() || capture::Follower::current() || c10::GradMode::is_enabled());
}

bool storage_is_shared(const at::Tensor& tensor) { return tensor.has_storage() && tensor.storage().use_count() > 1; }

/// `shared`: others than the box have the memory.
void count_out(Context& own, TensorBox& box, bool shared) {
  --own.live_tensors;
  auto found = own.storages.find(box.storage);
  if (found == own.storages.end()) return;
  if (--found->second.tensors > 0) return;
  if (shared && may_hold(own)) {
    found->second.held = box.tensor.storage().getWeakStorageImpl();
    own.held_bytes += found->second.bytes;
    return;
  }
  own.tensor_bytes -= found->second.bytes;
  own.collected_at = std::min<int64_t>(own.collected_at, own.tensor_bytes);
  own.storages.erase(found);
}

/// Lua's collector sees a pointer where there are megabytes: ask it to run when as many bytes came as were left alive.
void collect_garbage(lua_State* L, Context& own) {
  int64_t fresh = own.tensor_bytes - own.collected_at;
  if (fresh <= std::max<int64_t>(collect_after, own.collected_at)) return;
  lua_gc(L, LUA_GCCOLLECT);
  own.collected_at = own.tensor_bytes;
}

int tensor_gc(lua_State* L) {
  TensorBox* box = test_box(L, 1);
  if (!box || !box->tensor.defined()) return 0;
  count_out(context(L), *box, box->tensor.use_count() > 1 || storage_is_shared(box->tensor));
  box->tensor = box->original = at::Tensor();
  return 0;
}

/// What the recorder has in the place of an input: autograd knows it otherwise than the caller's own.
bool is_recorded_input(const at::Tensor& tensor) {
  const auto* recorder = capture::Recorder::current();
  return recorder && recorder->original(tensor).defined();
}

struct Field {
  std::string_view name;
  void (*push)(lua_State*, const at::Tensor&);
};

const Field fields[] = {
    {"shape", push_shape},
    {"dtype", [](lua_State* L, const at::Tensor& x) { push_dtype(L, x.scalar_type()); }},
    {"device", [](lua_State* L, const at::Tensor& x) { lua_pushstring(L, x.device().str().c_str()); }},
    {"layout", [](lua_State* L, const at::Tensor& x) { push_layout(L, x.layout()); }},
    {"ndim",
     [](lua_State* L, const at::Tensor& x) {
       if (auto* recorder = capture::Recorder::current()) recorder->read_rank(x);
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
         capture::graph_break(capture::Break::autograd, "`is_leaf` reads what autograd keeps",
                              "Read it outside of the compiled code.");
       if (auto* recorder = capture::Recorder::current()) recorder->read_requires_grad(x);
       lua_pushboolean(L, check_tensor(L, 1).is_leaf());
     }},
    {"grad",
     [](lua_State* L, const at::Tensor& x) {
       capture::graph_break(capture::Break::autograd, "`grad` reads what autograd keeps",
                            "Read it outside, and pass it as an argument.");
       const at::Tensor& now = check_tensor(L, 1);  // which a break changes
       const at::Tensor gradient = now.is_leaf() || now.retains_grad() ? now.grad() : at::Tensor();
       if (capture::ProtectInputs::covers(now)) capture::ProtectInputs::add(gradient);
       push_optional_tensor(L, gradient);
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
  if (name == "requires_grad") settle_number(L, 3);
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
  if (!asked_by_script(L)) settle_number(L, -1);
  return 1;
}

int tensor_tostring(lua_State* L) {
  check_tensor(L, 1);
  capture::graph_break(capture::Break::reads_value, "`tostring` reads the values of a tensor",
                       "Return the tensor, and print it behind the compiled code.");
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
  throw std::invalid_argument(
      "a tensor cannot be called like a function; index it with x[i], or call a method as x:name(...)");
}

void push_metatable(lua_State* L) {
  static const luaL_Reg functions[] = {{"__gc", guarded<tensor_gc>},
                                       {"__newindex", guarded<tensor_newindex>},
                                       {"__len", guarded<tensor_len>},
                                       {"__tostring", guarded<tensor_tostring>},
                                       {"__concat", guarded<tensor_concat>},
                                       {"__call", guarded<tensor_call>},
                                       {nullptr, nullptr}};
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

std::string describe_number(lua_State* L, int index) {
  std::string text = lua_isinteger(L, index) ? "int " : "float ";
  lua_pushvalue(L, index);  // lua_tostring changes the value in place
  text += lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

std::string describe_tensor(const at::Tensor& tensor) {
  std::string text = "Tensor " + dtype_name(tensor.scalar_type()).substr(6) + "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) text += (i ? ", " : "") + std::to_string(tensor.size(i));
  return text + "]";
}

}  // namespace

void push_tensor(lua_State* L, at::Tensor tensor) {
  if (!tensor.defined()) return lua_pushnil(L);
  reserve(L, 0, "too many tensors");
  TensorBox& box = push_userdata(L, TensorBox{std::move(tensor), nullptr}, &tensor_metatable);
  if (const auto* recorder = capture::Recorder::current()) box.original = recorder->original(box.tensor);
  Context& own = context(L);
  count_in(own, box);
  collect_garbage(L, own);
  if (own.limits.tensor_bytes && own.tensor_bytes > static_cast<int64_t>(own.limits.tensor_bytes)) charge(L, 0, 0);
}

void set_data(lua_State* L, int index, const at::Tensor& data) {
  check_tensor(L, index);
  TensorBox& box = *test_box(L, index);
  Context& own = context(L);
  count_out(own, box, storage_is_shared(box.tensor));
  box.storage = nullptr;
  box.tensor.set_data(data);
  count_in(own, box);
}

void push_optional_tensor(lua_State* L, const at::Tensor& tensor) { push_tensor(L, tensor); }

const at::Tensor* test_tensor(lua_State* L, int index) {
  TensorBox* box = test_box(L, index);
  if (!box || !box->tensor.defined()) return nullptr;
  const at::Tensor& tensor = box->current();
  capture::touch(tensor);
  return &tensor;
}

const at::Tensor& check_tensor(lua_State* L, int index) {
  TensorBox* box = test_box(L, index);
  if (!box) luaL_typeerror(L, index, "tensor");
  if (!box->tensor.defined()) luaL_argerror(L, index, "the tensor was closed");
  const at::Tensor& tensor = box->current();
  capture::touch(tensor);
  return tensor;
}

LentTensor::LentTensor(lua_State* L, int index, at::Tensor recorded) : box_(test_box(L, index)) {
  auto* const box = static_cast<TensorBox*>(box_);
  at::Tensor now = box->current();  // which may be `original` itself
  original_ = std::exchange(box->original, std::move(now));
  tensor_ = std::exchange(box->tensor, std::move(recorded));
}

LentTensor::~LentTensor() {
  auto* const box = static_cast<TensorBox*>(box_);
  if (!box || !box->tensor.defined()) return;
  box->tensor = std::move(tensor_);
  box->original = std::move(original_);
}

void push_methods(lua_State* L) {
  if (lua_getfield(L, LUA_REGISTRYINDEX, methods_key) == LUA_TTABLE) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, methods_key);
}

void add_methods(lua_State* L, const luaL_Reg* functions) {
  push_methods(L);
  luaL_setfuncs(L, functions, 0);
  lua_pop(L, 1);
}

std::string describe(lua_State* L, int index) {
  if (const at::Tensor* tensor = test_tensor(L, index)) return describe_tensor(*tensor);
  if (test_box(L, index)) return "a closed tensor";
  if (const at::Tensor* number =
          test_symbolic(L, index)) {  // in words, as the plain value that the script takes it for
    push_scalar(L, number->item());
    const std::string text = describe(L, -1);
    lua_pop(L, 1);
    return text;
  }
  if (const Constant* constant = test_constant(L, index)) return constant_name(*constant);
  switch (lua_type(L, index)) {
    case LUA_TNONE:
      return "nothing";
    case LUA_TNIL:
      return "nil";
    case LUA_TBOOLEAN:
      return lua_toboolean(L, index) ? "boolean true" : "boolean false";
    case LUA_TNUMBER:
      return describe_number(L, index);
    case LUA_TSTRING: {
      std::string text = lua_tostring(L, index);
      return "string \"" + (text.size() > 40 ? text.substr(0, 40) + "..." : text) + '"';
    }
    case LUA_TTABLE: {
      const std::string fields = fields_text(L, index);
      const auto length = lua_rawlen(L, index);
      if (fields.empty() || length > 0)
        return "table of " + std::to_string(length) + (fields.empty() ? "" : " and " + fields);
      return "table " + fields;
    }
    default:
      return luaL_typename(L, index);
  }
}

void open_tensor(lua_State* L) {
  push_metatable(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &tensor_metatable);
  add_tensor_methods(L);
  add_comparisons(L);
}

}  // namespace triage::lua
