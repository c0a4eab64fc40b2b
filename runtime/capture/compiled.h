#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <runtime/capture/cache/recompiles.h>
#include <runtime/capture/graph_break.h>
#include <runtime/capture/hidden_results.h>
#include <runtime/capture/tensors/host_memory.h>
#include <runtime/capture/tensors/variables.h>
#include <runtime/capture/waiting.h>
#include <runtime/messages/logs/log.h>
#include <triage/backend.h>
#include <triage/cache_statistics.h>
#include <triage/compile_times.h>
#include <triage/compiler_config.h>
#include <triage/front_end.h>
#include <triage/graph.h>
#include <triage/masked_rows.h>
#include <triage/statistics.h>
#include <triage/typing.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace triage::random {
class Sequence;
}

namespace triage::capture {

class CompileClock;
class CompileObserver;
class TraceReplayer;
class TraceTree;

/// A call gave up before its turn at the script came: what takes so long is another call's.
class WaitedError final : public LimitError {
  using LimitError::LimitError;
};

/// How a call was answered.
struct CallOutcome {
  CallForm form = CallForm::none;
  const CacheEntry* entry = nullptr;  // of form graph; lives as long as its Compiled
};

/// What a segment between two graph breaks was compiled to.
struct CompiledSegment {
  std::shared_ptr<const graph::Graph> graph;
  std::shared_ptr<Executable> executable;  // null where nothing has to be computed
  friend bool operator==(const CompiledSegment&, const CompiledSegment&) = default;
};

/// Counts of one function, which may outlive it.
struct CompileCounts {
  std::atomic<uint64_t> recompiles{0};    // calls that none of its graphs fitted
  std::atomic<uint64_t> graph_breaks{0};  // met in calls that were captured or followed
};

/// How a function is compiled.
struct CompileOptions {
  /// What a function was warned of. One thread at a time.
  struct Warned {
    std::vector<GraphBreak> breaks;
    std::unordered_set<std::string> limits;
  };
  std::string backend = "fused";
  Backend compile_with;  // where set, in place of the backend of that name
  /// Passes over a graph, and then the backend, may take so long each, as the script may; 0: any time. A graph that the
  /// backend has not compiled by then is one that it cannot compile.
  double compile_seconds = 0;
  bool fail_on_backend_error =
      false;               // else a graph that the backend cannot compile runs with `eager`; so under fullgraph
  bool fullgraph = false;  // a graph break is an error instead of a fall-back to running the script
  MaskedRows masked_rows = MaskedRows::warn;
  /// Is told of each graph, when it is captured, whether masked rows may reach gradients; may be null: then nobody
  /// asks.
  std::function<void(const std::optional<UnmaskedRows>&)> masked_rows_of_graph;
  bool dynamic = true;  // false: a graph holds for the sizes of its inputs alone
  /// Inputs and outputs belong to the host: a script that writes to them in place gets an error, and what it keeps is
  /// never handed out (policies).
  bool protect_inputs = true;
  /// Beyond it the script runs instead, and entries that match are still used; nothing: what the CompilerConfig says.
  std::optional<size_t> recompile_limit;
  /// Graphs made so far by all that count together for the accumulated limit.
  std::shared_ptr<std::atomic<int64_t>> graphs_made;
  /// Why graphs of the others that count together do not fit this call: where the accumulated limit is met before a
  /// graph is made here.
  std::function<std::string()> last_reason;
  /// What the graphs of this object hold for besides tensors, a line each; without it, nothing of the script may
  /// change.
  std::function<std::string()> other_guards;
  std::shared_ptr<TraceTree> traces;               // of what breaks graphs, when several share it
  std::shared_ptr<CompileClock> clock;             // when several share it
  std::shared_ptr<Warned> warned;                  // when several share it: one warning is enough for all
  std::function<void(const std::string&)> warn;    // graph breaks, limits, what a backend cannot do
  std::optional<messages::Logger> logger;          // of what backends and compilers report; else the caller's
  bool warn_of_breaks = true;                      // false: they are meant
  std::function<void(const std::string&)> inform;  // recompiles with their reasons
  std::shared_ptr<CompileObserver> observer;       // graphs, breaks and recompiles, each time; may be null
  std::shared_ptr<CompileCounts> counts;           // may be null
  /// Where the script and its graphs draw random numbers from; the default generators of LibTorch where none is set.
  std::shared_ptr<random::Sequence> random;
  std::vector<HostTensor> host_tensors;  // that the script was given, and may not write to
};

/// A script's function with its cache of captured graphs: a call whose guards hold runs the compiled graph, any other
/// call runs the script once and adds an entry. Thread-safe. The warm path takes no lock: entries are only ever added,
/// and live as long as this object.
class Compiled {
 public:
  using Options = CompileOptions;
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  Compiled(std::shared_ptr<Script> script, Options options);
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  /// `inputs` and `params` in the order of the signature, where the state counts as params; appends the outputs, then
  /// the new state. Throws what the script or ATen throws, and ValidationError where an input does not fit its declared
  /// type: the guards hold only where that was checked.
  CallOutcome run(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params, const CallContext& context,
                  std::vector<at::Tensor>& outputs);
  /// Captures and compiles for inputs of this kind (synthetic values, in the grad and inference mode of this thread)
  /// unless there is an entry for it already. Where the script cannot run on synthetic values, because some operator
  /// takes none of several kinds of them or a function of the host would be called, says why: the first real call
  /// captures. Throws where the script is at fault.
  std::optional<std::string> prepare(const std::vector<InputShape>& shape, at::ArrayRef<at::Tensor> params,
                                     at::ArrayRef<size_t> donated = {});
  /// The variables of the script have other numbers from now on: `now[old]` is the new one, or more than there are
  /// where one is gone. False where a graph reads such a one: nothing is changed then, and this object is of no use any
  /// more. Not while it runs.
  bool renumber_variables(at::ArrayRef<size_t> now) {
    return cache_.renumber_variables(now, script_->variables().size());
  }
  /// Waits until the best code for a call with these inputs (params included) is ready, where there is an entry for
  /// them; `donated`: also for one that donates these.
  void finish_compiling(at::ArrayRef<at::Tensor> all, at::ArrayRef<size_t> donated = {}) const;
  /// Runs the graph for such inputs (params included); false where there is none, or the script would have to run.
  bool run_graph(at::ArrayRef<at::Tensor> all, std::vector<at::Tensor>& outputs) const;
  /// Why the gradients of such a call (params included) may get values of masked rows; see Executable::unmasked_rows. A
  /// call that the script answers has those of ATen.
  std::optional<UnmaskedRows> unmasked_rows(at::ArrayRef<at::Tensor> all) const;

  /// Introspection. Entries in the order in which they were captured; the pointers live as long as this object.
  std::vector<const CacheEntry*> entries() const { return cache_.in_use(); }
  /// All that the graph holds for, a line each. `names`: of the inputs and params. On the thread that runs the script.
  std::string guards_text(const Guards& guards, const std::vector<std::string>& names) const;
  std::vector<GraphBreak> breaks() const;
  std::vector<std::string> graph_breaks() const;  // one line each
  /// Of a function with graph breaks: the graphs between them.
  std::vector<CompiledSegment> segments() const;
  /// From now on calls are followed, without an attempt to hold them in one graph.
  void replay_always() noexcept;
  /// A graph break was met under the settings of now: calls that no graph fits are not captured again.
  bool gave_up() const;
  bool has_breaks() const noexcept { return broken_.load(std::memory_order_relaxed); }
  /// Where following gains nothing: that many calls may go to the script directly (under NotFollowed), from the thread
  /// that runs it. They count as made.
  size_t skip_calls();
  /// The kinds of inputs that calls came with: those of graphs, and up to 16 that the script answered.
  std::vector<std::vector<InputShape>> shapes_in_use() const;
  /// The first call of a kind that the script answered, captured or not. `other_sizes`: of outputs (output, dimension),
  /// which were neither the same nor that of the batch in a later call.
  struct Answered {
    std::vector<InputShape> inputs, outputs;
    std::vector<bool> flags_outputs;
    std::vector<std::pair<size_t, size_t>> other_sizes;
    int64_t batch() const noexcept;  // of `inputs`; -1 where they have none
    /// The size that an output of a call with batches of `batch` has, as far as this one tells.
    int64_t size_for(int64_t batch, int64_t size) const noexcept { return size == this->batch() ? batch : size; }
  };
  std::vector<Answered> answered_by_script() const;
  /// Of entries. Segments are not counted: several caches may share them.
  CacheStatistics statistics() const { return cache_.statistics(); }
  CompileTimes compile_times() const;
  /// Of the newest call form: which outputs are flags.
  std::vector<bool> flags_outputs() const;
  Script& script() { return *script_; }
  /// Looks at the script while it does not run. Throws PolicyError where it runs on this thread.
  void with_script(const std::function<void(Script&)>& look);
  const Options& options() const noexcept { return options_; }

 private:
  friend class ScriptLock;
  class CallCapture;
  /// `all`: the inputs, then the params.
  struct CompiledCall {
    at::ArrayRef<at::Tensor> all;
    size_t num_params;
    Deadline deadline;
    std::vector<at::Tensor>& outputs;
    at::ArrayRef<at::Tensor> inputs() const { return all.slice(0, all.size() - num_params); }
  };
  const CacheEntry* find(at::ArrayRef<at::Tensor> all) const noexcept { return cache_.find(all, script_->variables()); }
  const CacheEntry* find_for_call(at::ArrayRef<at::Tensor> all) const noexcept;
  CallOutcome execute(const CacheEntry& entry, const CompiledCall& call, at::ArrayRef<at::Tensor> donated);
  CallOutcome run_again(const CacheEntry& failed, bool over_limit, const CompiledCall& call);
  CallOutcome miss(const CompiledCall& call);
  /// False where the capture was given up (OutsideBranches): the call is still to be run.
  bool capture(const CompiledCall& call);
  std::optional<std::string> capture_synthetic(at::ArrayRef<at::Tensor> all, size_t num_params);
  CallOutcome run_script(const CompiledCall& call, bool follow = true);
  void finish_script(TraceReplayer* replayer, at::ArrayRef<at::Tensor> outputs);
  std::vector<SizeFact> check_signature(at::ArrayRef<at::Tensor> inputs);
  bool is_worth_following();
  void note_broken(const GraphBreak& graph_break, const TraceReplayer* replayer);
  /// `times` in this call; 0 where it is counted elsewhere.
  void note_break(const GraphBreak& graph_break, size_t times = 1);
  void note_answer(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs);
  UnmaskedRows unmasked_by_script() const;

  std::shared_ptr<Script> script_;
  Options options_;
  Backend backend_;
  bool by_interpreter_;               // it is `eager`
  std::atomic<bool> broken_{false};   // a graph break was met: calls that have no entry are followed
  std::atomic<int> broken_under_{0};  // ... under these settings; under others it is tried again
  OwnedMutex mutex_;                  // the script, and what follows
  EntryCache cache_;
  Recompiles recompiles_{*script_, options_, cache_};
  uint64_t calls_with_breaks_ = 0;
  bool script_is_faster_ = false;
  bool was_called_ = false;
  bool flags_reported_ = false;
  HostMemory host_memory_;          // of whoever has the right to run the script
  mutable std::mutex notes_mutex_;  // short: what follows
  std::vector<GraphBreak> breaks_;
  std::vector<CompiledSegment> segments_;
  std::vector<bool> eager_flags_outputs_;
  std::vector<Answered> answered_;  // one of each kind; batch sizes do not count
};

std::vector<std::string> input_names(const Signature& signature);
/// How many results of a script stand behind its outputs: its state, then the hidden ones.
inline size_t behind_outputs(const Signature& signature) { return signature.state.size() + num_hidden(signature); }

/// Adds graphs between breaks.
void add_segments(CacheStatistics& statistics, const std::vector<CompiledSegment>& segments);

}  // namespace triage::capture
