#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <triage/cache_statistics.h>
#include <triage/compile_times.h>
#include <triage/error.h>
#include <triage/front_end.h>
#include <triage/graph.h>
#include <triage/log.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Loading policies, running them on batches, and changing them while the program runs.
///
///     triage::Runtime runtime;
///     triage::Policy repair = runtime.load("policies/repair.lua");
///     auto watch = runtime.watch("policies");               // follows the files while alive
///     auto [z, f] = repair.run<2>({logits});
///
/// Everything here may be used from any number of threads at once. A warm `run` takes no lock.
///
/// `fork`: the threads of a Runtime (one that frees old versions, one for each Watch) do not exist in a forked child. A
/// prefork server makes its Runtime in the child, or forks before it makes one.
namespace triage {

class Policy;
class Watch;

namespace policy {
class RuntimeCore;
class PolicyCore;
class WatchCore;
}  // namespace policy

/// What `run` does when the policy itself fails: an error in its code, an operator that throws, a budget or deadline
/// that runs out. A call that does not fit the signature is the host's mistake and throws InputError whatever is chosen
/// here.
enum class OnError : uint8_t {
  raise,         ///< throw
  pass_through,  ///< outputs named as an input are that input, untouched; flags outputs say UNKNOWN for every sample.
                 ///< A policy with any other output cannot be passed through: `run` throws, and says which output.
  last_good,     ///< answer with the latest earlier version that has run without failing; throw where there is none
};

struct RuntimeOptions {
  OnError on_error = OnError::raise;
  /// Where records of loading, reloading and failing go. Default: that of the process (set_log), standard error at first.
  /// Called while the Runtime, one of its policies or a Watch lives, never afterwards.
  Log log = {};
  /// Where the last good bytes of each policy file are kept, so that a restart with a broken file still finds a policy.
  /// Empty: nothing is written.
  std::filesystem::path cache_dir = {};
  /// Budgets of every script, at load and at every run of its function.
  Limits limits = {};
  /// Whoever wrote the scripts may as well crash the process: they may call every operator of LibTorch with any arguments. Else
  /// they have those of docs/operators.md. (They reach no files either way.)
  bool trusted = false;
  /// Which backend runs captured graphs (triage::list_backends()).
  std::string backend = "eager";
  /// Every policy is one graph or an error, whether or not its script asks for it.
  bool fullgraph = false;
  /// How many versions of a policy stay ready for rollback, the live one included.
  size_t keep_versions = 8;
  /// How many calls a version that a reload brought is on trial for. Until then, a call that it fails, that it does not answer in its
  /// share of the deadline, or that it gives another number, type or shape of outputs than the version before would, is answered by
  /// the version before, which is live again. The trial also waits for a call of each kind of inputs that the new source could not be
  /// tried on before it went live, at most for 100 times as many calls. 0: no trial.
  size_t trial_calls = 100;
  /// After its trial: so many failures in a row, and the version before answers the last of these calls and is live again. 0: never.
  size_t failures_to_revert = 3;
  /// Files that `triage build` made (triage/kernels.h), for the whole process and its `fused` graphs. Their code runs when the
  /// Runtime is made: name none that others may write. One that cannot be used is told to the log, and the cache, the
  /// compiler or the interpreter serves.
  std::vector<std::filesystem::path> kernels = {};
  /// Of the random numbers that policies draw (`torch.randn`, `math.random`, ...). Each has generators of its own, one a device,
  /// that begin with it, and never draws from LibTorch's default ones, which are the host's. (The default is that of
  /// torch.Generator.)
  uint64_t seed = 67280421310721;
  /// Where `print` of the scripts goes. Default: standard output.
  std::function<void(const std::string&)> print = {};
};

/// Values for params by name; those not named keep the policy's own.
using Params = std::vector<std::pair<std::string, c10::Scalar>>;

struct RunOptions {
  /// Indices of inputs whose memory outputs may take (backend `fused`, where one loop is the whole graph, and the input is
  /// dense, without grad, and shares memory with no other input). What such an input holds afterwards is unspecified.
  std::vector<size_t> donate = {};
  Params params = {};
  /// Past this moment the call ends with LimitError (checked while script code runs and between the operators of a
  /// captured graph, not inside an operator).
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

/// The newest file, when it was not taken over.
struct LoadFailure {
  std::string message;
  Source source;  // file and line; empty file where it is not about a line
  std::chrono::system_clock::time_point when;
};

struct VersionInfo {
  int number = 0;                               // 1, 2, ... in the order of loading
  std::string hash;                             // of the source, 16 hexadecimal digits
  std::chrono::system_clock::time_point since;  // when it went live (last)
  std::string path;                             // as given to load; the name given to load_source
  bool live = false;
  bool pinned = false;
  bool on_trial = false;    // RuntimeOptions::trial_calls
  bool taken_back = false;  // it went live, failed, and the version before took its place
  uint64_t failures = 0;    // calls that it failed, answered by another version or not
  /// Set in Policy::version(): why the newest file is not this version (broken, deleted, taken back, ...). Empty while all is well.
  std::optional<LoadFailure> last_error;
};

/// Why a policy is several graphs, or runs as a script: one place there that breaks them.
struct BreakReport {
  std::string id;                 // of its kind, "TB0001": docs/graph-breaks.md tells of each
  std::string what;               // a clause: "`item` reads a value of a tensor"
  std::string explanation, hint;  // sentences: why that breaks a graph, and what to do; the hint may be empty
  Source where;
  std::string user_code;  // the script's stack with its source lines, innermost last
  std::string text;       // all of it, several lines, as it is logged
};

/// A graph that was captured for some kind of inputs.
struct CapturedGraph {
  std::shared_ptr<const graph::Graph> graph;
  std::string guards;  // what must hold for this graph to be used; one guard a line
};

/// Output tensors with their names, in the policy's order.
class Outputs {
 public:
  Outputs(std::vector<std::string> names, std::vector<at::Tensor> tensors);
  /// Throws InputError that lists the names there are.
  const at::Tensor& operator[](std::string_view name) const;
  const at::Tensor& operator[](size_t index) const { return items_.at(index).second; }
  bool contains(std::string_view name) const noexcept;
  size_t size() const noexcept { return items_.size(); }
  auto begin() const noexcept { return items_.begin(); }
  auto end() const noexcept { return items_.end(); }

 private:
  std::vector<std::pair<std::string, at::Tensor>> items_;
};

enum class Reload : uint8_t {
  unchanged,  ///< the source is the one already seen
  swapped,    ///< a new version is live
  refused,    ///< the old version stays live; version().last_error says why
};

/// One policy of a Runtime: a cheap handle; copies share the policy, and keep working after the Runtime is gone. A handle must not
/// be destroyed or assigned to while a call through it runs: a function of the host that does so calls through a copy.
class Policy {
 public:
  Policy() = default;  // no policy: every call but `operator bool` throws InputError
  explicit operator bool() const noexcept { return core_ != nullptr; }

  /// Runs the live version on one batch: tensors in the order of signature().inputs, results in that of outputs. A call
  /// belongs wholly to one version. An output shares memory with an input only when the policy returns that input
  /// untouched, or when it was donated.
  /// Throws InputError (number of inputs, undefined tensor, unknown param, donate out of range), ValidationError (typing.h:
  /// an input that does not fit its declared type) and, by `on_error`, PolicyError, GraphBreakError, LimitError.
  std::vector<at::Tensor> run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options = {}) const;

  /// The same, for a policy of N outputs: `auto [z, f] = policy.run<2>({x});`
  template <size_t N>
  std::array<at::Tensor, N> run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options = {}) const {
    std::vector<at::Tensor> outputs = run(inputs, options);
    if (outputs.size() != N) throw_output_count(N, outputs.size());
    std::array<at::Tensor, N> result;
    for (size_t i = 0; i < N; ++i) result[i] = std::move(outputs[i]);
    return result;
  }

  /// By name, in any order: `policy.run_named({{"z", x}})["f"]`.
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  Outputs run_named(const NamedTensors& inputs, const RunOptions& options = {}) const;

  /// Captures and compiles for such inputs now, by running on them, so that the first real call is warm: also one with donated
  /// inputs, where `options` names some. These are not donated here: none is written to. Throws as `run` does with
  /// OnError::raise.
  void prepare(at::ArrayRef<at::Tensor> inputs, const RunOptions& options = {}) const;

  /// Changes a param for all calls from now on, over reloads too. RunOptions::params goes before it.
  void set_param(const std::string& name, c10::Scalar value) const;

  /// Starts the policy's random numbers again. A script, its graphs and every backend draw the same ones in the same order; reloads
  /// go on with them. Calls at one time on several threads draw from one sequence, in the order in which they come to it.
  void manual_seed(uint64_t seed) const;

  const std::string& name() const;
  /// Of the live version. `outputs` is named `out0`, `out1`, ... where the script gives no names, and empty until a run
  /// has shown how many there are.
  Signature signature() const;

  /// --- versions ---
  VersionInfo version() const;                // the live one, with the last error
  std::vector<VersionInfo> versions() const;  // those kept, oldest first
  /// Makes version `number` live again; the file is followed from its next change on. Throws InputError when that
  /// version is not kept any more.
  void rollback(int number) const;
  /// Makes version `number` live and keeps it so, whatever happens to the file.
  void pin(int number) const;
  /// Ends `pin`, and takes up the file as it is now.
  Reload unpin() const;
  /// Looks at the file now, as a Watch does after a change. A refused source is tried again.
  Reload reload() const;
  /// Puts `source` in place of the live version, with all the checks of a reload (for policies that do not live in
  /// files).
  Reload replace(std::string_view source) const;

  /// --- what the compiler made of it (live version) ---
  /// Those that hold a whole call.
  std::vector<CapturedGraph> graphs() const;
  /// Of calls with graph breaks: the graphs between them, of all calls so far. The script decides on each call which run.
  std::vector<std::shared_ptr<const graph::Graph>> segments() const;
  /// How many of both are kept, and how much memory they take.
  CacheStatistics cache() const;
  /// What it took to make them.
  CompileTimes compile_times() const;
  std::vector<BreakReport> breaks() const;
  std::vector<std::string> graph_breaks() const;  // the same, one line each
  /// Which outputs are flags, by position; empty until a run has shown it.
  std::vector<bool> flags_outputs() const;
  /// Runs the tests that the script brings along: each name with how it failed; empty: passed.
  std::vector<std::pair<std::string, std::string>> run_tests() const;

 private:
  friend class Runtime;
  explicit Policy(std::shared_ptr<policy::PolicyCore> core) : core_(std::move(core)) {}
  policy::PolicyCore& core() const;
  [[noreturn]] void throw_output_count(size_t wanted, size_t got) const;
  std::shared_ptr<policy::PolicyCore> core_;
};

/// Something that happened while a directory was watched.
struct WatchEvent {
  enum class Kind : uint8_t {
    reloaded,  ///< a policy has a new live version
    refused,   ///< the new file was not taken over; the old version stays live
    reverted,  ///< the live version failed on trial, or too often in a row; `version`, which was live before it, is live again
    deleted,   ///< a policy's file is gone; its last version stays live
    restored,  ///< after `deleted` or `refused`: the file is again what it was
    added,     ///< a file that a front end could load, and that no policy was loaded from: load it if you want it
    lost,      ///< the directory itself cannot be watched any more (it was removed); it is looked for again
    found,     ///< ... and is there again
  };
  Kind kind;
  std::string path;  // the file, or the directory
  int version = 0;   // the live version of the policy; 0 where there is none
  std::string message;
  Source source;  // of a refusal, or of the failure that led back: file and line
};
const char* to_string(WatchEvent::Kind kind) noexcept;

struct WatchOptions {
  /// Changes are taken up once the directory has been quiet for this long (at most ten times this long after the
  /// first).
  std::chrono::milliseconds debounce{50};
  /// Zero: the kernel tells of changes (inotify). Else the files are looked at this often, as network file systems
  /// need.
  std::chrono::milliseconds poll_interval{0};
  /// Called from the watching thread, one call at a time. What it throws is logged.
  std::function<void(const WatchEvent&)> on_event = {};
};

/// Hot reload while alive. Destroying it stops the watching thread and waits for a reload in progress.
class Watch {
 public:
  Watch() = default;
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) noexcept;
  ~Watch();
  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// Stops now, as the destructor does. From `on_event` it does not wait: the callback that is running is the last one.
  void stop();
  /// Looks at the directory now and returns when that is done. Not to be called from `on_event`.
  void rescan();

 private:
  friend class Runtime;
  explicit Watch(std::shared_ptr<policy::WatchCore> core) : core_(std::move(core)) {}
  std::shared_ptr<policy::WatchCore> core_;
};

/// Holds policies, the functions the host gives them, and the thread that frees versions out of use. Several may live
/// in a process. Destroying it waits until everything that fell out of use is freed; policies still held go on working.
class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  Runtime(Runtime&&) noexcept;
  Runtime& operator=(Runtime&&) noexcept;
  ~Runtime();

  /// Loads a policy from a file; its ending chooses the front end. Throws FileError, LoadError, LimitError. Loading the
  /// same file twice gives two policies, each with versions of its own.
  Policy load(const std::filesystem::path& path);
  /// Loads a policy from text. `name` names it in messages, and its ending chooses the front end (none: ".lua").
  Policy load_source(std::string_view source, const std::string& name = "policy.lua");

  /// Gives policies that are loaded from now on a host function: tensors in, tensors out. Calling it is a graph break.
  void define(const std::string& name, std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> fn);

  /// Every policy loaded from a file directly in `dir`, before or after this call, follows its file while the Watch
  /// lives. Throws FileError where there is no such directory.
  Watch watch(const std::filesystem::path& dir, WatchOptions options = {});

  /// The policies that somebody holds, in the order of loading.
  std::vector<Policy> policies() const;

 private:
  std::shared_ptr<policy::RuntimeCore> core_;
};

}  // namespace triage
