#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <runtime/capture/context.h>
#include <runtime/capture/graph_break.h>
#include <runtime/capture/recording/held_params.h>
#include <runtime/capture/recording/unused_calls.h>
#include <runtime/capture/rules/flags_rule.h>
#include <runtime/capture/sizes/held_sizes.h>
#include <runtime/capture/tensors/identity.h>
#include <triage/graph.h>
#include <triage/typing.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

/// Capture: a script's function runs once on the call's own tensors; every operation runs eagerly and is appended to a
/// graph. What the script *reads* of a tensor (a size, a value) becomes a guard or a graph break.
namespace triage::capture {

/// The one door through which front ends call operators: runs `op` on `stack` (arguments in, results out, exactly as
/// OperatorHandle::callBoxed) and records the call when this thread is capturing. Throws what ATen throws, and
/// GraphBreakError where the call cannot be captured soundly.
void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// The same without `divide_integers` in front.
void call_plainly(const c10::OperatorHandle& op, torch::jit::Stack& stack);

/// While alive on a thread, the script runs on inputs that nobody sent (`prepare`): functions of the host are not
/// called with them. Who would have called one notes it by `stop`; an operator that takes no such values, as cholesky
/// of what is not positive definite, by `refuse_values`: others may do.
class SyntheticInputs {
 public:
  SyntheticInputs() : previous_(context.synthetic_inputs) { context.synthetic_inputs = this; }
  ~SyntheticInputs() { context.synthetic_inputs = previous_; }
  SyntheticInputs(const SyntheticInputs&) = delete;
  SyntheticInputs& operator=(const SyntheticInputs&) = delete;
  static SyntheticInputs* current() noexcept { return context.synthetic_inputs; }
  void stop() noexcept { stopped_ = true; }
  bool stopped() const noexcept { return stopped_; }
  void refuse_values() noexcept { values_refused_ = true; }
  bool values_refused() const noexcept { return values_refused_; }

 private:
  SyntheticInputs* previous_;
  bool stopped_ = false;
  bool values_refused_ = false;
};

class Recorder {
 public:
  /// Makes this recorder current on this thread until destroyed. `where` tells the line now running; without it the
  /// innermost ScriptScope does.
  /// `strict`: the first graph break throws.
  Recorder(std::string name, bool strict, std::function<Source()> where = {});
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The recorder of this thread; null when it is not capturing.
  static Recorder* current() noexcept;
  /// Returns what was current.
  static Recorder* replace_current(Recorder* recorder) noexcept;

  /// Declares an input and returns the tensor to hand to the script in its place (an alias: the same input given twice
  /// stays two values).
  at::Tensor add_input(const std::string& name, graph::InputKind kind, const at::Tensor& tensor);

  /// --- what front ends report while the script runs ---
  /// An error was raised to the script that may not come again on other inputs. If the script catches it, and so goes
  /// its own way, `check_caught_errors` at its end makes that a graph break.
  void note_error(const std::string& message);
  void check_caught_errors();
  /// Scopes of autocast that the script opens are part of the graph, as casts of what operators take. The outermost one
  /// ended: weights are cast again from here on.
  void forget_casts() { leaf_casts_.clear(); }
  /// What `capture::graph_break` tells the recorder. A strict one (fullgraph) throws GraphBreakError, and remembers it:
  /// a script that swallows the error cannot make the capture succeed. Any other stops recording and returns: the
  /// script goes on with its real values, and from here on `current()` is null on this thread.
  void graph_break(const GraphBreak& graph_break);
  /// Around a protected call (pcall): an operator that raises there on other inputs is the script's to handle, so such
  /// a graph hands over to the script when it fails.
  void enter_protected() { ++protected_depth_; }
  void leave_protected() { --protected_depth_; }
  bool has_protected_calls() const noexcept { return protected_calls_; }
  void note(std::string line) { notes_.push_back(std::move(line)); }
  /// `of_batch`: whether the batch as a whole goes into the branch, or not.
  void enter_branch(bool of_batch);
  void leave_branch();
  int branch_depth() const noexcept { return branch_depth_; }
  /// The line of the script that called the operator which is recorded.
  const Source& line() const;
  /// How many branches were entered so far that the batch as a whole takes or does not.
  size_t batch_branches() const noexcept { return batch_branches_; }
  bool is_strict() const noexcept { return strict_; }
  /// Tells captures apart: unique in the process, never 0.
  uint64_t serial() const noexcept { return serial_; }
  /// Whether a result may have a size that depends on values (CompilerConfig).
  bool takes_dynamic_shapes() const noexcept { return dynamic_shapes_; }
  /// Which values tensors stand for, and what is held of sizes.
  TracedTensors& tensors() { return tensors_; }
  const TracedTensors& tensors() const { return tensors_; }
  HeldSizes& sizes() { return sizes_; }
  /// Of two branches for a condition of the batch, one may require grad where the other does not. The tensor that the
  /// script has then is that of the branch taken in this call, and what is recorded holds for batches that take either.
  bool may_require_grad(const at::Tensor& tensor) const;
  void read_requires_grad(const at::Tensor& tensor);
  /// The script goes its way by the truth of a boolean: a guard, if it is a param; else false.
  bool hold_param(const at::Tensor& param);

  /// --- the result ---
  struct CaptureResult : HeldSizes::SizeGuards {
    graph::Graph graph;
    std::vector<std::string> notes;                          // what a reader of the graph should know, one line each
    std::unordered_set<const graph::Value*> differentiable;  // results that required grad
    std::vector<HeldParam> held_params;
    bool raises;  // some of it, or a graph of nothing, is from where an error of the backend is one of the call
  };
  /// What broke the capture, if anything did.
  const std::optional<GraphBreak>& broken() const { return broken_; }
  /// Before the end, for a graph that stands for the script: calls that no output needs would raise nothing where the
  /// graph holds, or stay in it.
  void hold_unused_calls(const std::vector<at::Tensor>& outputs);
  /// Ends the capture: `outputs` become the graph's outputs. The graph is not cleaned yet.
  CaptureResult finish(const std::vector<at::Tensor>& outputs, const std::vector<std::string>& names = {});

 private:
  Source line_now() const;
  Source guard_line() const;
  friend void call_plainly(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void record(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void record_write(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  bool casts() const;
  void record_under_autocast(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                             torch::jit::Stack& stack);
  c10::IValue append_cast(const c10::IValue& given, const c10::IValue& made);
  std::optional<Refusal> refused(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const;
  void append(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, torch::jit::Stack& results);

  graph::Graph graph_;
  std::function<Source()> where_;
  TracedTensors tensors_{graph_};
  HeldSizes sizes_{graph_, tensors_, [this] { return guard_line(); }};
  std::unordered_map<const graph::Value*, at::Tensor> leaf_casts_;  // as autocast keeps those of weights
  std::unordered_set<const graph::Value*> grad_of_branch_;          // may_require_grad, and in another call not
  std::vector<HeldParam> held_params_;
  WordOrigins word_origins_;
  const UserCode* called_from_;  // whatever script called the one that is recorded
  std::vector<std::string> notes_;
  std::unordered_set<const graph::Value*> differentiable_;
  std::unordered_map<const graph::Node*, Checks> checks_;  // of nodes that check anything
  std::optional<GraphBreak> caught_error_;                 // what is a graph break unless the script ends with it
  int branch_depth_ = 0;
  int protected_depth_ = 0;
  bool protected_calls_ = false;  // an operator was recorded inside a protected call
  bool dynamic_shapes_ = false;
  size_t batch_branches_ = 0;  // of which a script takes one
  inline static std::atomic<uint64_t> last_serial_{0};
  uint64_t serial_ = ++last_serial_;
  bool strict_ = false;
  bool grad_mode_ = true;
  uint64_t autocast_ = 0;  // compat::autocast_state
  bool raises_ = false;    // an operator was called under error_on_graph_break
  std::optional<GraphBreak> broken_;
  mutable std::optional<Source> line_;  // found out once an operator
  Recorder* previous_ = nullptr;
};

/// While alive on a thread, remembers which tensors that `call` made are flags, recorded or not: a script that runs
/// without a recorder can then still say which of its outputs are flags.
class FlagsTracker {
 public:
  FlagsTracker();
  ~FlagsTracker();
  FlagsTracker(const FlagsTracker&) = delete;
  FlagsTracker& operator=(const FlagsTracker&) = delete;
  static FlagsTracker* current() noexcept;
  bool is_flags(const at::Tensor& tensor) const { return flags_.count(tensor.unsafeGetTensorImpl()) != 0; }
  /// Whether an operator of this time allocated the memory of `tensor`.
  bool made(const at::Tensor& tensor) const;
  /// Flags that came another way than through `call`: out of a compiled function.
  void add(const at::Tensor& flags);

 private:
  friend void call_plainly(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void observe(const c10::OperatorHandle& op, bool moved, const torch::jit::Stack& results);
  void note_storages(const std::vector<c10::IValue>& arguments, const torch::jit::Stack& results, size_t count);
  bool any_flags(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const;
  std::unordered_map<const c10::TensorImpl*, TensorIdentity> flags_;
  std::unordered_set<const c10::StorageImpl*> storages_;  // allocated since; by address: what is older keeps its own
  FlagsTracker* previous_;
};

}  // namespace triage::capture
