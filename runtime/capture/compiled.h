#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <runtime/capture/cache/failed_sizes.h>
#include <runtime/capture/graph_break.h>
#include <runtime/capture/recording/kind_reads.h>
#include <runtime/capture/sizes/size_condition.h>
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

namespace triage {
struct ErrorConfig;
struct LentMemory;
namespace random {
class Sequence;
}
}  // namespace triage

namespace triage::capture {

class CompileClock;
class CompileObserver;
class EntryIndex;
class TraceReplayer;
class TraceTree;

/// A call gave up before its turn at the script came: what takes so long is another call's.
class WaitedError final : public LimitError {
  using LimitError::LimitError;
};

/// What a captured graph depends on besides its inputs' values. Checked on every call, without Lua, lock or allocation.
struct Guards {
  struct Input {
    uint64_t keys;  // dispatch keys: device type, layout, conj and neg bits, inference tensor
    caffe2::TypeMeta dtype;
    c10::DeviceIndex device_index;
    int64_t rank;
    bool requires_grad;
    bool wrapped;  // a wrapped number (params): decides type promotion
    static Input of(const at::Tensor& tensor);
    bool fits(const at::Tensor& tensor) const noexcept;
  };
  struct Size {
    size_t input;
    int64_t dim;
    int64_t size;
  };
  struct SameSize {
    size_t input;
    int64_t dim;
    size_t other;
    int64_t other_dim;
  };
  /// What the user allows a size to be (mark_dynamic).
  struct Range {
    size_t input;
    int64_t dim, min, max;
  };
  /// A tensor from outside that others may write to: its values are read again on every run, all else is fixed.
  struct Variable {
    at::Tensor tensor;  // undefined where it is one of the script's variables
    size_t number;      // its number among those
    Input kind;
    std::vector<int64_t> sizes;
    bool holds(at::ArrayRef<at::Tensor> script_variables) const noexcept;
  };
  std::vector<Input> inputs;
  std::vector<size_t> same_as;            // by input (without params): the first that is the same tensor
  std::vector<Size> sizes;                // sizes that the script read
  std::vector<SameSize> same_sizes;       // sizes that must be equal, whatever they are
  std::vector<SizeCondition> conditions;  // by which the script went its way
  std::vector<Range> ranges;
  std::vector<Variable> variables;
  std::vector<Source> size_lines, same_size_lines, condition_lines;  // of the script, that made these guards
  std::vector<KindLines> kind_lines;                                 // by input; may be none
  uint64_t included_keys, excluded_keys;                             // thread state: autocast, inference mode
  bool grad_mode;
  caffe2::TypeMeta default_dtype;
  uint64_t autocast;          // compat::autocast_state
  const ErrorConfig* config;  // one object for each that there ever was, whenever it holds (get_config)
  uint64_t location_resets;
  bool dynamic_output_shapes;  // CompilerConfig

  /// The last `num_params` of the inputs are params.
  static Guards of(at::ArrayRef<at::Tensor> inputs, size_t num_params = 0);
  /// Those of the graph; `script_variables` are what Script::variables gives, here and below.
  void add_variables(const graph::Graph& graph, at::ArrayRef<at::Tensor> script_variables);
  /// One that the script may ask for its size or dtype without any operator.
  void add_host_tensor(const at::Tensor& tensor);
  bool hold(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> script_variables = {}) const noexcept;
  size_t heap_bytes() const;
  /// The first guard that fails, for a person ("tensor 'x' size mismatch at index 1. expected 3, actual 4").
  std::string failure(at::ArrayRef<at::Tensor> inputs, const std::vector<std::string>& names,
                      at::ArrayRef<at::Tensor> script_variables) const;
  /// One line a guard.
  std::string text(const std::vector<std::string>& names) const;
};

/// How a call looked: enough to make up inputs of the same kind.
struct InputShape {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  c10::Device device;
  bool requires_grad;
  friend bool operator==(const InputShape&, const InputShape&) = default;
};

std::vector<InputShape> shape_of(at::ArrayRef<at::Tensor> inputs);

/// Sizes that differ in the first dimension at most.
bool same_but_rows(at::IntArrayRef a, at::IntArrayRef b);

/// One captured graph of a function.
struct Entry {
  Guards guards;
  std::shared_ptr<const graph::Graph> graph;
  std::unique_ptr<Executable> executable;
  std::vector<bool> flags_outputs;
  /// The script's variables that the graph takes behind the inputs of the call, by their numbers (Script::variables).
  std::vector<size_t> lifted;
  std::vector<InputShape> shape;
  bool script_handles_errors = false;  // operators were recorded inside pcall: where the graph fails, the script runs
  bool fell_back =
      false;           // it runs with `eager`, for its backend cannot compile it, which may be an error in other calls
  bool draws = false;  // random numbers
  size_t number = 0;   // 1 for the first that its Compiled made
  const Entry* next = nullptr;  // the one before it
  size_t chain = 1;             // how many there are from here on
  /// Of the chain that ends here, where it is long: finds this entry and all before it, and may find later ones.
  const EntryIndex* index = nullptr;
  /// Of a graph that holds branches for a condition of the whole batch, of which a script takes one: where it fails, the script
  /// runs, and where that does not fail, the graph is not for such inputs. Null where there are no such branches.
  std::unique_ptr<FailedSizes> failed;

  bool fits(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> script_variables) const noexcept {
    return guards.hold(inputs, script_variables) && !(failed && failed->exclude(inputs));
  }
};

/// How a call was answered.
struct Ran {
  CallForm form = CallForm::none;
  const Entry* entry = nullptr;  // of form graph; lives as long as its Compiled
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

/// A script's function with its cache of captured graphs: a call whose guards hold runs the compiled graph, any other call
/// runs the script once and adds an entry. Thread-safe. The warm path takes no lock: entries are only ever added, and live
/// as long as this object.
class Compiled {
 public:
  /// What a function was warned of. One thread at a time.
  struct Warned {
    std::vector<GraphBreak> breaks;
    std::unordered_set<std::string> limits;
  };
  struct Options {
    std::string backend = "fused";
    Backend compile_with;  // where set, in place of the backend of that name
    /// Passes over a graph, and then the backend, may take so long each, as the script may; 0: any time. A graph that the backend
    /// has not compiled by then is one that it cannot compile.
    double compile_seconds = 0;
    bool fail_on_backend_error =
        false;               // else a graph that the backend cannot compile runs with `eager`; so under fullgraph
    bool fullgraph = false;  // a graph break is an error instead of a fall-back to running the script
    MaskedRows masked_rows = MaskedRows::warn;
    /// Is told of each graph, when it is captured, whether masked rows may reach gradients; may be null: then nobody asks.
    std::function<void(const std::optional<UnmaskedRows>&)> masked_rows_of_graph;
    bool dynamic = true;  // false: a graph holds for the sizes of its inputs alone
    /// Inputs and outputs belong to the host: a script that writes to them in place gets an error, and what it keeps is never
    /// handed out (policies).
    bool protect_inputs = true;
    /// Beyond it the script runs instead, and entries that match are still used; nothing: what the CompilerConfig says.
    std::optional<size_t> recompile_limit;
    /// Graphs made so far by all that count together for the accumulated limit.
    std::shared_ptr<std::atomic<int64_t>> graphs_made;
    /// Why graphs of the others that count together do not fit this call: where the accumulated limit is met before a graph
    /// is made here.
    std::function<std::string()> last_reason;
    /// What the graphs of this object hold for besides tensors, a line each; without it, nothing of the script may change.
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
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  Compiled(std::shared_ptr<Script> script, Options options);
  ~Compiled();
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;

  /// `inputs` and `params` in the order of the signature, where the state counts as params; appends the outputs, then the new state. Throws what the script or ATen throws, and
  /// ValidationError where an input does not fit its declared type: the guards hold only where that was checked.
  Ran run(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params, const CallContext& call,
          std::vector<at::Tensor>& outputs);
  /// Captures and compiles for inputs of this kind (synthetic values, in the grad and inference mode of this thread) unless there is
  /// an entry for it already. Where the script cannot run on synthetic values, because some operator takes none of several kinds of
  /// them or a function of the host would be called, says why: the first real call captures. Throws where the script is at fault.
  std::optional<std::string> prepare(const std::vector<InputShape>& shape, at::ArrayRef<at::Tensor> params,
                                     at::ArrayRef<size_t> donated = {});
  /// The variables of the script have other numbers from now on: `now[old]` is the new one, or more than there are where one is
  /// gone. False where a graph reads such a one: nothing is changed then, and this object is of no use any more. Not while it runs.
  bool renumber_variables(at::ArrayRef<size_t> now);
  /// Waits until the best code for a call with these inputs (params included) is ready, where there is an entry for them;
  /// `donated`: also for one that donates these.
  void finish_compiling(at::ArrayRef<at::Tensor> all, at::ArrayRef<size_t> donated = {}) const;
  /// Runs the graph for such inputs (params included); false where there is none, or the script would have to run.
  bool run_graph(at::ArrayRef<at::Tensor> all, std::vector<at::Tensor>& outputs) const;
  /// Why the gradients of such a call (params included) may get values of masked rows; see Executable::unmasked_rows. A call that the
  /// script answers has those of ATen.
  std::optional<UnmaskedRows> unmasked_rows(at::ArrayRef<at::Tensor> all) const;
  /// A call of the graph for these inputs, with copies of some of them donated: it asks for the code of such calls.
  void ask_for_donation(const Entry& entry, at::ArrayRef<at::Tensor> all, at::ArrayRef<size_t> donated) const;

  /// Introspection. Entries in the order in which they were captured; the pointers live as long as this object.
  std::vector<const Entry*> entries() const;
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
  /// Where following gains nothing: that many calls may go to the script directly (under NotFollowed), from the thread that
  /// runs it. They count as made.
  size_t skip_calls();
  /// The kinds of inputs that calls came with: those of graphs, and up to 16 that the script answered.
  std::vector<std::vector<InputShape>> shapes_in_use() const;
  /// The first call of a kind that the script answered, captured or not. `other_sizes`: of outputs (output, dimension), which
  /// were neither the same nor that of the batch in a later call.
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
  CacheStatistics statistics() const;
  CompileTimes compile_times() const;
  /// Of the newest call form: which outputs are flags.
  std::vector<bool> flags_outputs() const;
  Script& script() { return *script_; }
  /// Looks at the script while it does not run. Throws PolicyError where it runs on this thread.
  void with_script(const std::function<void(Script&)>& look);
  const Options& options() const noexcept { return options_; }

 private:
  std::optional<std::string> capture_synthetic(at::ArrayRef<at::Tensor> all, size_t num_params);
  const Entry* find(at::ArrayRef<at::Tensor> all) const noexcept;
  random::Sequence* numbers() const;
  const Entry* find_for_call(at::ArrayRef<at::Tensor> all) const noexcept;
  /// Why no further graph may be made, where none may.
  struct Limit {
    std::string text;     // "the limit of 8 captured graphs"
    const char* setting;  // that raises it
  };
  std::optional<Limit> limit_reached() const;
  Ran run_over_limit(const Limit& limit, at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                     std::vector<at::Tensor>& outputs);
  Ran run_plainly(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline, std::vector<at::Tensor>& outputs);
  Ran miss(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline, std::vector<at::Tensor>& outputs);
  Ran capture_or_run(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                     std::vector<at::Tensor>& outputs);
  /// False where the capture was given up (OutsideBranches): the call is still to be run.
  bool capture(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline, std::vector<at::Tensor>& outputs);
  bool is_debugged() const;
  bool is_worth_following();
  void note_broken(const GraphBreak& graph_break, const TraceReplayer* replayer);
  Ran run_script(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline, std::vector<at::Tensor>& outputs,
                 bool follow = true);
  std::vector<SizeFact> check_signature(at::ArrayRef<at::Tensor> inputs);
  void report_recompile(at::ArrayRef<at::Tensor> all, Stance stance) const;
  std::string why_not(const Entry& entry, at::ArrayRef<at::Tensor> all) const;
  /// Why the newest graph does not fit; empty where there is none.
  std::string last_reason(at::ArrayRef<at::Tensor> all) const;
  /// Null where the backend cannot, and that is no error (`raises`).
  std::unique_ptr<Executable> compile(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                      bool raises) const;
  LentMemory lent_memory() const;
  void add_entry(std::unique_ptr<Entry> entry);
  /// These two of a call that the script answers, with the gradients of ATen.
  UnmaskedRows unmasked_by_script() const;
  void check_masked_rows(at::ArrayRef<at::Tensor> outputs) const;
  void note_flags_outputs();
  void note_answer(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs);
  void finish_replay(TraceReplayer& replayer, at::ArrayRef<at::Tensor> outputs);
  void separate_outputs(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, bool kept = false);
  /// `times` in this call; 0 where it is counted elsewhere.
  void note_break(const GraphBreak& graph_break, size_t times = 1);
  void warn_of(const GraphBreak& graph_break, bool always) const;
  void check_memory(at::ArrayRef<at::Tensor> all) const;
  Ran run_not_captured(size_t input, at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                       std::vector<at::Tensor>& outputs);
  Ran execute(const Entry& entry, at::ArrayRef<at::Tensor> all, size_t num_params, const CallContext& call,
              std::vector<at::Tensor>& outputs);
  Ran run_again(const Entry& failed, bool over_limit, at::ArrayRef<at::Tensor> all, size_t num_params,
                const Deadline& deadline, std::vector<at::Tensor>& outputs);
  using Tensors = c10::SmallVector<at::Tensor, 8>;
  Tensors with_lifted(const Entry& entry, at::ArrayRef<at::Tensor> all) const;
  friend class ScriptLock;
  class RetireIfWritten;
  class CallCapture;
  std::vector<std::string> input_names() const;
  std::vector<std::string> output_names() const;

  std::shared_ptr<Script> script_;
  Options options_;
  Backend backend_;
  bool by_interpreter_;  // it is `eager`
  std::atomic<const Entry*> newest_{nullptr};
  std::atomic<bool> broken_{false};   // a graph break was met: calls that have no entry are followed
  std::atomic<int> broken_under_{0};  // ... under these settings; under others it is tried again
  OwnedMutex mutex_;                  // the script, and what follows
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<EntryIndex>> indexes_;
  std::atomic<size_t> num_entries_{0}, entry_bytes_{0};  // as statistics read them
  uint64_t calls_with_breaks_ = 0;
  /// Of the calls with breaks, where the script is faster. One that is followed costs as much as several that are not.
  static constexpr uint64_t follow_each(uint64_t call) noexcept { return call < 1024 ? 64 : 1024; }
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

/// Adds graphs between breaks.
void add_segments(CacheStatistics& statistics, const std::vector<CompiledSegment>& segments);

}  // namespace triage::capture
