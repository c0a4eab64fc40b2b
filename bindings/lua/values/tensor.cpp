#include "bindings/lua/values/tensor.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"

#include <c10/core/GradMode.h>

#include <algorithm>

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
    return recorder && recorder->tensors().knows(tensor) ? tensor : original;
  }
};

const char tensor_metatable = 0;  // its address is the registry key
constexpr const char* methods_key = "triage.tensor.methods";
constexpr int64_t collect_after = 64 << 20;  // bytes of new tensors after which their garbage is looked for

/// Scripts may hold the metatable's functions (they cannot: __metatable is protected; but our own chunks can), so every
/// one of them checks what it is given.
TensorBox* test_tensor_box(lua_State* L, int index) { return test_userdata<TensorBox>(L, index, &tensor_metatable); }

void count_in(Context& own, TensorBox& box) {
  ++own.live_tensors;
  const at::Tensor& tensor = box.tensor;
  if (!tensor.has_storage() || tensor.is_meta()) return;
  box.storage = tensor.storage().unsafeGetStorageImpl();
  Context::StorageUsage& storage = own.storages[box.storage];
  if (storage.tensors++ > 0) return;
  if (storage.held) {  // it comes back
    own.held_bytes -= storage.bytes;
    own.tensor_bytes -= storage.bytes;
    storage.held.reset();
  }
  storage.bytes = static_cast<int64_t>(tensor.storage().nbytes());
  own.tensor_bytes += storage.bytes;
}

/// Whether a capture, or autograd, may hold memory that Lua lets go. Of interest to a budget alone: without one,
/// nothing would ever take the entries away.
bool may_hold(const Context& own) {
  return own.limits.tensor_bytes &&
         (capture::Recorder::current() || capture::TraceReplayer::current() || c10::GradMode::is_enabled());
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
  TensorBox* box = test_tensor_box(L, 1);
  if (!box || !box->tensor.defined()) return 0;
  count_out(context(L), *box, box->tensor.use_count() > 1 || storage_is_shared(box->tensor));
  box->tensor = box->original = at::Tensor();
  return 0;
}

}  // namespace

void set_tensor_metatable(lua_State* L) {
  lua_pushcfunction(L, guarded<tensor_gc>);
  lua_setfield(L, -2, "__gc");
  lua_rawsetp(L, LUA_REGISTRYINDEX, &tensor_metatable);
}

bool is_closed_tensor(lua_State* L, int index) {
  const TensorBox* const box = test_tensor_box(L, index);
  return box && !box->tensor.defined();
}

void push_tensor(lua_State* L, at::Tensor tensor) {
  if (!tensor.defined()) return lua_pushnil(L);
  reserve(L, 0, "too many tensors");
  TensorBox& box = push_userdata(L, TensorBox{std::move(tensor), nullptr}, &tensor_metatable);
  if (const auto* recorder = capture::Recorder::current()) box.original = recorder->tensors().original(box.tensor);
  Context& own = context(L);
  count_in(own, box);
  collect_garbage(L, own);
  if (own.limits.tensor_bytes && own.tensor_bytes > static_cast<int64_t>(own.limits.tensor_bytes)) charge(L, 0, 0);
}

void set_data(lua_State* L, int index, const at::Tensor& data) {
  check_tensor(L, index);
  TensorBox& box = *test_tensor_box(L, index);
  Context& own = context(L);
  count_out(own, box, storage_is_shared(box.tensor));
  box.storage = nullptr;
  box.tensor.set_data(data);
  count_in(own, box);
}

const at::Tensor* test_tensor(lua_State* L, int index) {
  TensorBox* box = test_tensor_box(L, index);
  if (!box || !box->tensor.defined()) return nullptr;
  const at::Tensor& tensor = box->current();
  capture::materialize(tensor);
  return &tensor;
}

const at::Tensor& check_tensor(lua_State* L, int index) {
  TensorBox* box = test_tensor_box(L, index);
  if (!box) luaL_typeerror(L, index, "tensor");
  if (!box->tensor.defined()) luaL_argerror(L, index, "the tensor was closed");
  const at::Tensor& tensor = box->current();
  capture::materialize(tensor);
  return tensor;
}

LentTensor::LentTensor(lua_State* L, int index, at::Tensor recorded) : box_(test_tensor_box(L, index)) {
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

}  // namespace triage::lua
