#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <lua.hpp>

#include <triage/config.h>
#include <triage/front_end.h>
#include <triage/positions.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

/// The thin layer between Lua's C API and C++. Rules that hold everywhere in bindings/lua: every C function is
/// registered through `guarded`; no C++ exception other than Lua's own crosses a Lua frame; every entry from the host
/// runs inside lua_pcall; finalizers are idempotent; an object that was closed raises an error when used.
namespace triage {
class LocationOwner;
}

namespace triage::lua {

/// Pushes the value of a Lua error, for `lua_error` to raise: "file:line: message" with the script's line; from a
/// GraphBreakError or LimitError an error object instead, which keeps the C++ error and reads the same through
/// tostring.
int raise_error(lua_State* L, const std::exception& error);

/// Turns C++ exceptions of `F` into Lua errors. Lua's own errors are C++ throws of another type and pass through; hence
/// never `catch (...)`. lua_error is called outside of the handler, when the exception object is gone.
template <lua_CFunction F>
int guarded(lua_State* L) {
  try {
    return F(L);
  } catch (const std::exception& error) {
    raise_error(L, error);  // pushes the error value only
  }
  return lua_error(L);
}

/// Throws the error value at `index` as C++: what an error object holds, else a PolicyError with its text. Reads
/// nothing that runs Lua code (no metamethods). `traceback` goes into the error.
[[noreturn]] void rethrow(lua_State* L, int index, const std::string& traceback = {});

/// The text of any error value, without running Lua code.
std::string error_text(lua_State* L, int index);

struct Scope;  // scopes.h
struct Resume;
class FindProgram;  // backends/run_graph.h

/// What every lua_State of ours carries; found through lua_getextraspace. It outlives its lua_State (finalizers count
/// tensors off).
struct Context {
  Limits limits;
  bool sandboxed = true;                 // a policy; false: `triage exec` trusts its script
  size_t script_bytes = 0;               // counted by the allocator, which never refuses
  std::atomic<int64_t> tensor_bytes{0};  // of tensors whose userdata is alive
  uint64_t instructions_left = 0;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  bool expired = false;  // a budget ran out: every further hook raises again, pcall cannot absorb it
  size_t stopped = 0;    // how often it did, since the budgets were armed
  uint64_t epoch = 0;    // bumped by writes to upvalues, globals and tables (rewritten code)
  std::function<void(const std::string&)> print;
  FindProgram* find_program = nullptr;  // who wants the program of `triage.run_graph`
  /// Called before each line that a call or load runs; null: nobody wants to know. It raises no error and runs no Lua.
  std::function<void(lua_State*, lua_Debug*)> on_line;
  std::string chunk;              // path of the script
  bool calls_everything = false;  // every operator with any arguments; else those with a contract
  // Storages that userdata of this state hold, or held: how many tensors share each, and its size. Kept by push_tensor
  // and __gc.
  struct StorageUsage {
    int64_t tensors = 0;
    int64_t bytes = 0;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> held;  // Lua let it go, a recorder or autograd did not
  };
  std::unordered_map<const void*, StorageUsage> storages;
  int64_t held_bytes = 0;    // of tensor_bytes: of storages that Lua let go, and a recorder or autograd may hold
  int64_t live_tensors = 0;  // userdata not yet finalized
  int64_t collected_at = 0;  // tensor_bytes after the last collection that tensors asked for
  size_t printed_bytes = 0;  // since the budgets were armed
  size_t unusual_keys = 0;   // written to tables (note_key)
  std::string traceback;     // of the error that `keep_traceback` saw last
  /// How errors accumulate in flags of the policy; none: as the global configuration says.
  std::optional<AccumulationConfig> accumulation;
  /// Holds the locations that the script names; null where those last as the host's do.
  std::shared_ptr<LocationOwner> locations;
  CodeNames codes;  // that its policy gives to free codes
  /// Of the call that runs, at the locations that its policy lists.
  std::vector<FirstPositions> positions;
  // Of the coroutine that runs:
  Scope* innermost_call = nullptr;       // of `call_in_scope`; no call is yielded across
  std::shared_ptr<const Resume> resume;  // since it goes on; null in the main one
  int break_scopes = 0;                  // of `triage.error_on_graph_break`, that are open
  std::string region;                    // Source::region of what runs; no call of a region is yielded across
  uint32_t region_calls = 0;             // made so far in that one, or in the capture `region_capture`
  uint64_t region_capture = 0;
};
/// Ties a state to its context; before anything else of ours runs in it.
void attach(lua_State* L, Context& context);
Context& context(lua_State* L);
/// The configuration of operations that are given none: the global one, with the accumulation of the policy.
ErrorConfig config_in_force(lua_State* L);

/// Throws LimitError (which `guarded` turns into a Lua error) when a budget is used up. Called by the hook, and by
/// every function of ours that allocates or loops, with what it is about to charge.
void charge(lua_State* L, size_t script_bytes, size_t tensor_bytes = 0, uint64_t instructions = 0);

/// The same for a string that grows to so many bytes by `added`. The strings of a policy have a bound of their own:
/// instructions of Lua's that compare or convert them cannot be interrupted.
void charge_text(lua_State* L, size_t bytes, size_t added);
inline void charge_text(lua_State* L, size_t bytes) { charge_text(L, bytes, bytes); }
constexpr size_t longest_text = 1 << 20;

/// Throws LimitError where `what`, which cannot be interrupted, may take longer than the script's budget of time
/// leaves.
void check_time(lua_State* L, const std::string& what, double nanoseconds);

/// Counts no longer what Lua let go and nobody holds any more; with `all`, neither what is still held.
void drop_held_memory(Context& context, bool all) noexcept;

/// The value at `index` becomes a key of a table. Of a policy: refuses the keys that Lua's own work on tables has no
/// bound for. Weak keys ("__mode") make its collector take time that grows with their square; so does a table that
/// grows when many of its keys come to the same place, for which they must be large numbers, or fractions.
void note_key(lua_State* L, int index);

/// Counts text of a script that is about to be shown outside. False where a policy has used up its share of a load or
/// call.
bool may_show(Context& context, size_t bytes) noexcept;
constexpr size_t most_shown = 1 << 20;  // bytes: what a policy prints goes to the log or the disk of its host

/// The script line now running, for recorders and messages. Chunks whose name starts with "=[" (our own Lua code) are
/// passed over: the line is the one in the user's script.
Source current_line(lua_State* L);

}  // namespace triage::lua
