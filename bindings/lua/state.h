#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <lua.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <triage/front_end.h>

/// The thin layer between Lua's C API and C++. Rules that hold everywhere in bindings/lua:
/// every C function is registered through `guarded`; no C++ exception other than Lua's own crosses a Lua frame; every entry
/// from the host runs inside lua_pcall; finalizers are idempotent; an object that was closed raises an error when used.
namespace triage::lua {

/// Raises the text (or, from a triage::Error, an error object that keeps its type) as a Lua error at the caller's line.
int raise(lua_State* L, const std::exception& error);

/// Turns C++ exceptions of `F` into Lua errors. Lua's own errors are C++ throws of another type and pass through; hence
/// never `catch (...)`. lua_error is called outside of the handler, when the exception object is gone.
template <lua_CFunction F>
int guarded(lua_State* L) {
  try {
    return F(L);
  } catch (const std::exception& error) {
    raise(L, error);   // pushes the error value only
  }
  return lua_error(L);
}

/// What every lua_State of ours carries; found through lua_getextraspace.
struct Context {
  Limits limits;
  bool sandboxed = true;                     // a policy; false: `triage exec` trusts its script
  size_t script_bytes = 0;                   // counted by the allocator, which never refuses
  std::atomic<int64_t> tensor_bytes{0};      // of tensors whose userdata is alive
  uint64_t instructions_left = 0;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  bool expired = false;                      // a budget ran out: every further hook raises again, pcall cannot absorb it
  uint64_t epoch = 0;                        // bumped by writes to upvalues, globals and tables (rewritten code)
  std::function<void(const std::string&)> print;
  std::string chunk;                         // path of the script
};
Context& context(lua_State* L);

/// Raises a LimitError in Lua when a budget is used up. Called by the hook, and by every function of ours that allocates
/// or loops (with what it is about to charge).
void charge(lua_State* L, size_t script_bytes, size_t tensor_bytes = 0, uint64_t instructions = 0);

/// Tensors as userdata. `test_tensor` gives null when the value at `index` is none (a forged table included).
void push_tensor(lua_State* L, at::Tensor tensor);
const at::Tensor* test_tensor(lua_State* L, int index);
const at::Tensor& check_tensor(lua_State* L, int index);   // raises "bad argument #n (tensor expected, got ...)"

/// The script line now running, for recorders and messages.
Source current_line(lua_State* L);

}  // namespace triage::lua
