#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <runtime/capture/context.h>
#include <runtime/capture/graph_break.h>
#include <runtime/capture/recording/unused_calls.h>
#include <runtime/capture/rules/flags_rule.h>
#include <runtime/capture/sizes/numbers.h>
#include <runtime/capture/sizes/size_condition.h>
#include <runtime/capture/sizes/size_origins.h>
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

/// While alive on a thread, the script runs on inputs that nobody sent (`prepare`): functions of the host are not called with
/// them. Who would have called one notes it by `stop`; an operator that takes no such values, as cholesky of what is not
/// positive definite, by `refuse_values`: others may do.
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
  /// The script goes its way by a size or the rank: the graph then holds for these sizes only. A size of something computed is
  /// traced back to the inputs (SizeOrigins); where that cannot be done, every size is held fast.
  void read_size(const at::Tensor& tensor, int64_t dim);
  void read_rank(const at::Tensor& tensor);
  /// What comes next follows from these facts (TensorMatcher): the graph then holds wherever they do.
  void rely_on(const std::vector<SizeFact>& facts);
  /// The script goes its way by a comparison of sizes, which is `truth` here. False where it cannot be a guard, because it is
  /// not computed of sizes of inputs alone.
  bool hold_condition(const graph::Value* condition, bool truth);
  /// An error was raised to the script that may not come again on other inputs. If the script catches it, and so goes its
  /// own way, `check_caught_errors` at its end makes that a graph break.
  void note_error(const std::string& message);
  void check_caught_errors();
  /// Scopes of autocast that the script opens are part of the graph, as casts of what operators take. The outermost one ended:
  /// weights are cast again from here on.
  void forget_casts() { leaf_casts_.clear(); }
  /// What `capture::graph_break` tells the recorder. A strict one (fullgraph) throws GraphBreakError, and remembers it: a script
  /// that swallows the error cannot make the capture succeed. Any other stops recording and returns: the script goes on with
  /// its real values, and from here on `current()` is null on this thread.
  void graph_break(const GraphBreak& graph_break);
  /// Around a protected call (pcall): an operator that raises there on other inputs is the script's to handle, so such a
  /// graph hands over to the script when it fails.
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
  bool has_batch_branches() const noexcept { return batch_branches_ > 0; }
  /// How many branches were entered so far that the batch as a whole takes or does not.
  size_t batch_branches() const noexcept { return batch_branches_; }
  bool is_strict() const noexcept { return strict_; }
  /// Tells captures apart: unique in the process, never 0.
  uint64_t serial() const noexcept { return serial_; }
  /// Whether a result may have a size that depends on values (CompilerConfig).
  bool takes_dynamic_shapes() const noexcept { return dynamic_shapes_; }
  bool is_flags(const at::Tensor& tensor) const;
  bool is_param(const at::Tensor& tensor) const;
  bool knows(const at::Tensor& tensor) const;  // an input, or made during this capture
  /// The tensor that the script has where this one is recorded: the caller's own input, or what an operator handed back as it is.
  /// Undefined where that is the same one.
  at::Tensor original(const at::Tensor& tensor) const;
  bool is_captured(const at::Tensor& tensor) const;  // an input, or computed during this capture
  /// The script made a tensor of numbers that stand in it: nobody else can change it. Any other tensor that no operator of
  /// the capture gave is a variable of the graph.
  void add_literal(const at::Tensor& tensor);
  /// Numbers that only a replay knows (numbers.h), and which value a tensor is in the graph; null where it is none yet.
  Numbers& numbers() { return numbers_; }
  const graph::Value* find(const at::Tensor& tensor) const;
  /// Of two branches for a condition of the batch, one may require grad where the other does not. The tensor that the script
  /// has then is that of the branch taken in this call, and what is recorded holds for batches that take either.
  bool may_require_grad(const at::Tensor& tensor) const;
  void read_requires_grad(const at::Tensor& tensor);
  /// The size is the same in every replay.
  bool has_fixed_size(const at::Tensor& tensor, int64_t dim) const;
  /// Whether `tensor` shares memory with another tensor of this capture, so that a write to it cannot be captured.
  bool shares_memory(const at::Tensor& tensor) const;

  /// --- the result ---
  struct SizeGuard {
    size_t input;
    int64_t dim;
    int64_t size;
    Source where;  // the line that reads it, as below; nowhere where that is no line of a script
  };
  struct SameSizeGuard {
    size_t input;
    int64_t dim;
    size_t other;
    int64_t other_dim;
    Source where;
  };
  struct Result {
    graph::Graph graph;
    std::vector<SizeGuard> sizes;                            // specialised sizes of inputs
    std::vector<SameSizeGuard> same_sizes;                   // sizes of inputs that must be equal, whatever they are
    std::vector<SizeCondition> conditions;                   // on sizes of inputs, by which the script went its way
    std::vector<Source> condition_lines;                     // one for each of these
    std::vector<std::string> notes;                          // what a reader of the graph should know, one line each
    std::unordered_set<const graph::Value*> differentiable;  // results that required grad
    bool raises;  // some of it, or a graph of nothing, is from where an error of the backend is one of the call
  };
  /// What broke the capture, if anything did.
  const std::optional<GraphBreak>& broken() const { return broken_; }
  /// Before the end, for a graph that stands for the script: calls that no output needs would raise nothing where the graph
  /// holds, or stay in it.
  void hold_unused_calls(const std::vector<at::Tensor>& outputs);
  /// Ends the capture: `outputs` become the graph's outputs. The graph is not cleaned yet.
  Result finish(const std::vector<at::Tensor>& outputs, const std::vector<std::string>& names = {});

 private:
  Source line_now() const;
  Source guard_line() const;
  friend void call_plainly(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void record(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void record_write(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  bool casts() const;
  void record_under_autocast(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                             torch::jit::Stack& stack);
  c10::IValue cast_to(const c10::IValue& given, const c10::IValue& cast);
  at::Tensor append_cast(const at::Tensor& given, const at::Tensor& cast);
  /// The call itself, behind a graph break: on the caller's tensors, not on what stood for them here.
  void call_with_originals(const c10::OperatorHandle& op, torch::jit::Stack& stack) const;
  bool capturable(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void log_node(const graph::Node& node) const;
  void append(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, torch::jit::Stack& results);
  void require_same_size(const SizeFact& fact);
  void hold_all_sizes();
  void hold_count(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  void note_all_sizes();
  void hold_size(const Extent& extent, int64_t size);
  void hold_same_size(const Extent& a, const Extent& b);
  SizeCondition::Origin size_origin(const graph::Value* number) const;
  std::optional<at::Tensor> literal(const graph::Value* value) const;
  bool branch_decides_grad(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) const;
  void bind(at::Tensor& tensor, graph::Value* value);
  std::string size_name(const graph::Value* value, int64_t dim) const;
  bool varies(const std::vector<c10::IValue>& arguments) const;
  bool numbers_vary(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) const;
  graph::Value* value_of(const at::Tensor& tensor);
  graph::Operand operand_of(const c10::IValue& value);
  void refuse_flags_arithmetic(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

  struct Traced {
    std::optional<Identity> identity;  // always there: keeps the key's address unique
    std::optional<Identity> original;  // Recorder::original
    graph::Value* value = nullptr;
    int branch = 0;  // depth of branches it was made at
    bool is_param = false;
    bool is_input = false;
  };
  graph::Graph graph_;
  std::function<Source()> where_;
  std::unordered_map<const c10::TensorImpl*, Traced> traced_;
  std::unordered_map<const graph::Value*, const c10::TensorImpl*> impls_;  // the tensor that stood for a value last
  std::unordered_map<const c10::TensorImpl*, at::Tensor> literals_;
  std::unordered_map<const graph::Value*, at::Tensor> leaf_casts_;  // as autocast keeps those of weights
  std::vector<at::Tensor> inputs_;
  std::unordered_set<const graph::Value*> grad_of_branch_;  // may_require_grad, and in another call not
  SizeOrigins origins_;
  Numbers numbers_;
  WordOrigins word_origins_;
  std::vector<SizeGuard> sizes_;
  std::vector<SameSizeGuard> same_sizes_;
  std::vector<SizeCondition> conditions_;
  std::vector<Source> condition_lines_;
  Source all_sizes_line_;        // that made `all_sizes_` true
  const UserCode* called_from_;  // whatever script called the one that is recorded
  std::vector<std::string> notes_;
  std::unordered_set<const graph::Value*> differentiable_;
  std::unordered_map<const graph::Node*, Checks> checks_;  // of nodes that check anything
  bool all_sizes_ = false;
  std::optional<GraphBreak> caught_error_;  // what is a graph break unless the script ends with it
  int branch_depth_ = 0;
  int protected_depth_ = 0;
  bool protected_calls_ = false;   // an operator was recorded inside a protected call
  bool shaped_by_params_ = false;  // a param was taken as a number, and may decide the shape of a result
  bool shaped_by_values_ = false;  // the shape of some result depends on values
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

/// While alive on a thread, remembers which tensors that `call` made are flags, recorded or not: a script that runs without
/// a recorder can then still say which of its outputs are flags.
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
  std::unordered_map<const c10::TensorImpl*, Identity> flags_;
  std::unordered_set<const c10::StorageImpl*> storages_;  // allocated since; by address: what is older keeps its own
  FlagsTracker* previous_;
};

}  // namespace triage::capture
