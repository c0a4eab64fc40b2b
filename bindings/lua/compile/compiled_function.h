#pragma once
#include "bindings/lua/backends/lua_backend.h"
#include "bindings/lua/compile/closures/closure_state.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capsule/recording.h"
#include "runtime/capture/compiled.h"
#include "runtime/operators/untrusted.h"

#include <lua.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triage::lua {

/// While alive, graphs that a script of `L` calls are held to what the script itself is held to.
class GraphTerms {
 public:
  explicit GraphTerms(lua_State* L)
      : terms_{.bytes = static_cast<int64_t>(context(L).limits.tensor_bytes)},
        graphs_(by_contract(L) ? &terms_ : nullptr) {}
  GraphTerms(const GraphTerms&) = delete;
  GraphTerms& operator=(const GraphTerms&) = delete;

 private:
  const operators::Untrusted::Terms terms_;
  const operators::Untrusted graphs_;
};

/// Tensors that a compiled function or an exported program takes: each is compared with each.
constexpr size_t most_inputs = 2048;

struct CompiledFunction;

/// A Lua function that is compiled, in the state it lives in.
class FunctionScript final : public Script, public capsule::SavesState {
 public:
  FunctionScript(lua_State* L, const CompiledFunction& function, std::vector<std::string> inputs);
  const std::string& name() const override { return name_; }
  const Signature& signature() const override { return signature_; }
  bool fullgraph() const override { return fullgraph_; }
  Definition definition() const override;
  const std::vector<bool>& flags_outputs() const override { return flags_outputs_; }
  std::vector<std::pair<std::string, std::string>> run_tests() override { return {}; }
  uint64_t stores() const override { return context(L_).epoch; }  // graphs have the state of variables in their key

  /// The calling Lua thread, and the stack index of its arguments: tensors among them are replaced by `inputs`.
  void prepare_call(lua_State* caller, int first_argument) {
    L_ = caller;
    first_argument_ = first_argument;
    results_ = LUA_NOREF;
  }
  /// Of the environment of the call to come. Given as an argument, one of them stays what it is.
  void set_variables(const Variables* variables) { variables_ = variables; }
  at::ArrayRef<at::Tensor> variables() const override {
    return variables_ ? at::ArrayRef<at::Tensor>(variables_->tensors) : at::ArrayRef<at::Tensor>();
  }
  std::string variable_name(size_t number) const override { return variables_->names[number]; }
  /// What the function returned, as a list in the registry, when it ran and gave something else than tensors.
  int take_results() { return std::exchange(results_, LUA_NOREF); }

  std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                               std::optional<std::chrono::steady_clock::time_point> deadline) override;
  /// The function and the arguments of the call.
  capsule::Json save_state(capsule::SavedTensors& tensors, const std::vector<std::string>& masked) override;

 private:
  void push_arguments(lua_State* L, int last, at::ArrayRef<at::Tensor> inputs, std::vector<LentTensor>& lent) const;
  void refuse_another_mode(bool grad_mode, uint64_t autocast) const;
  void break_behind(capture::Break kind, const std::string& what, const char* hint) const;

  lua_State* L_;
  int function_;
  int first_argument_ = 0;
  int results_ = LUA_NOREF;
  const Variables* variables_ = nullptr;
  std::string name_;
  Source made_at_;
  mutable std::optional<Definition> definition_;  // once it was asked for
  bool fullgraph_;
  Signature signature_;
  std::vector<bool> flags_outputs_;
};

/// What `triage.compile` returns: one cache of graphs for each environment that the function has seen (closure_state).
struct CompiledFunction {
  /// What graphs hold for besides tensors, as the key of a partition and for a person.
  struct ClosureEnvironment {
    std::vector<std::string> arguments;  // "3", "'text'", "a tensor"
    std::vector<std::string> names;      // of the parameters; empty where one has none
    std::string key;                     // the plain arguments, which of the others are variables, then closure_state
    size_t state_begin = 0;              // in `key`
    StateParts parts;
    bool too_much = false;  // to be read whole: it is another environment after any write
    Variables variables;    // as the last call had them
  };
  struct CachePartition {
    std::shared_ptr<FunctionScript> script;
    std::unique_ptr<capture::Compiled> compiled;
    ClosureEnvironment environment;
    lua_Integer number = 0;           // 1 for the first one made
    lua_Integer weak_references = 0;  // how much its key names by address
  };
  int function = LUA_NOREF;
  int weak_references = LUA_NOREF;  // a table: number of a partition -> what its key names by address, as weak keys
  std::string name;
  Source made_at;  // the line that compiled it
  capture::Compiled::Options options;
  std::map<std::string_view, std::shared_ptr<CachePartition>>
      partitions;  // by the key of their environment; a call keeps its own alive
  lua_Integer partitions_made = 0;
  size_t sweep_at = 0;                       // that many partitions: time to look for those without graphs
  int misses = 0;                            // calls that found no partition
  size_t calls_to_skip = 0;                  // may_skip
  std::shared_ptr<CachePartition> followed;  // for all environments: the function broke in several, or reads too much,
                                             // and is not tried in one graph again
  std::shared_ptr<CachePartition>
      beyond;  // for all environments: the accumulated limit was met, and the function runs as a script
  std::shared_ptr<CachePartition> last;       // of the last call, still right while the epoch has not moved
  std::map<std::string, int64_t> recompiles;  // by guard (differing_guard)
  int broken_partitions = 0, too_large_environments = 0;
  uint64_t generation = 0;
  std::optional<capture::GraphBreak> odd_argument;  // that was met first: such calls run the script
  int64_t graphs_charged = 0;                       // to the budgets of a policy, and the bytes of what was charged
  size_t bytes_charged = 0;
  bool running = false;  // the function calls itself: from the inside it is called as it is
  std::shared_ptr<CallingThread> caller = std::make_shared<CallingThread>();
  uint64_t last_epoch = 0;
  std::string last_arguments, last_variables;  // and which of the arguments are variables of the function
};

/// Pushes a new compiled function for the function at stack index 1 with options at index 2.
CompiledFunction& push_compiled(lua_State* L);

/// Null where the value at `index` is none.
const CompiledFunction* test_compiled(lua_State* L, int index);

/// The registry reference of the function that a compiled function at `index` runs; LUA_NOREF for any other value.
int compiled_function_of(lua_State* L, int index);

/// What a compiled function does when it is called; it stands at stack index 1.
int call_compiled(lua_State* L);

/// The names that the function (or module: its `forward`) at `index` gives its first `count` arguments; "x0", "x1", ...
/// where it has none, or one twice.
std::vector<std::string> parameter_names(lua_State* L, int index, size_t count);

/// Where the function begins, with its source line; what has no line of a script, such as a module of the library, is
/// told to be where it was compiled.
Script::Definition place_of(lua_State* L, int function, const Source& made_at);

/// Registers the metatable of compiled functions, and that of explanations.
void open_compiled(lua_State* L);
void open_explanation(lua_State* L);

/// triage.explain(fn, ...)
int explain(lua_State* L);

/// Pushes what a call gave. An argument that comes back (they end at `last`) is the caller's own value, and what is
/// returned twice is one value.
int push_results(lua_State* L, int last, const std::vector<at::Tensor>& results);

}  // namespace triage::lua
