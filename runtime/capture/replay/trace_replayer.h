#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/capture/graph_break.h"
#include "runtime/capture/replay/lazy_tensor.h"
#include "runtime/capture/replay/trace_tree.h"

namespace triage::capture {

/// The segment that is followed now, with its tensors by number, as traces name them.
struct FollowedSegment {
  explicit FollowedSegment(const std::vector<at::Tensor>* params) : params(params) {}

  bool matches(const TraceArgument& argument, const c10::IValue& value, const TraceStep& step);
  TraceArgument describe(const c10::IValue& value, TraceStep& step);
  /// The number of the sizes that the inputs have in this call, the new ones of `step` included.
  std::optional<uint64_t> signature_with(const TraceStep& step) const;
  void add_value(const at::Tensor& value);
  /// `step` came, with the inputs that it was matched or described with.
  void advance(TraceStep& step);
  bool is_param(const at::Tensor& tensor) const;

  const std::vector<at::Tensor>* params;
  TraceNode* node = nullptr;  // null before its first operator
  ThreadState state{};
  std::shared_ptr<PendingSegment> pending;
  std::vector<TraceStep*> path;
  std::vector<at::Tensor> inputs;
  std::vector<WeakTensor> values;  // weak: what the script lets go is given back, and its address not used again
  std::vector<at::Tensor> deferred_values;  // the same while deferred: they are still to be computed
  std::unordered_map<const c10::TensorImpl*, uint32_t> input_ids, value_ids;
  std::vector<size_t> last_uses;       // by value: how many steps there were when it was last handed to something
  std::vector<at::Tensor> new_inputs;  // of the step being matched
  uint64_t signature = 0;
  bool deferred = false;  // the steps of the path are not executed yet
  bool raises = false;    // one of them was called where an error of the backend is one of the call
};

/// Runs a function that one graph cannot hold: the script runs on every call, and its operators in segments, which end
/// where the graph breaks. As long as the operators come as they came before, none is executed; the script gets lazy
/// tensors, and where the segment ends its compiled graph runs at once. An operator that did not come before ends that:
/// what was deferred is executed by ATen, and the tree grows by what follows. So every call does what the script says;
/// only when differs.
///
/// Current on its thread from construction to destruction: with a Recorder, after one that broke, or without one.
class TraceReplayer {
 public:
  /// `inputs` and `params` are the call's, and stay as long as this does.
  /// `writes` counts what the script writes to its variables and tables (Script::writes).
  TraceReplayer(std::shared_ptr<TraceTree> tree, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                std::function<uint64_t()> writes);
  ~TraceReplayer();
  TraceReplayer(const TraceReplayer&) = delete;
  TraceReplayer& operator=(const TraceReplayer&) = delete;
  static TraceReplayer* current() noexcept;
  /// Returns what was current.
  static TraceReplayer* replace_current(TraceReplayer* replayer) noexcept;

  bool is_param(const at::Tensor& tensor) const { return now_.is_param(tensor); }

  /// An operator that no recorder sees: like OperatorHandle::callBoxed, now or later.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  /// An operator that was recorded with these arguments; `stack` ends with its results.
  void observe(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
               const torch::jit::Stack& stack);
  /// An operator is about to write to its arguments: what was deferred is executed, and what would be computed of their
  /// memory later is computed now.
  void before_write(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  /// The script hands `tensor` to something.
  void note_use(const at::Tensor& tensor);
  /// All operators so far are executed before this returns. Before whatever must see their results, or would change
  /// what they compute in.
  void end_segment();
  void graph_break(const GraphBreak& graph_break);
  /// Whether it was met before, in this call or another: then nobody needs the stack that it is met under.
  bool knows(const GraphBreak& graph_break) const;
  struct BreakCount {
    const GraphBreak* graph_break;  // of the tree
    size_t times;
  };
  /// The graph breaks that this call met, each line and reason once.
  const std::vector<BreakCount>& breaks() const { return breaks_; }
  bool met(const GraphBreak& graph_break) const;
  /// Inside a protected call (pcall) operators run when they are called: their errors are for it to catch.
  void enter_protected();
  void leave_protected() { --protected_depth_; }

  /// After the script returned `outputs`: executes what is left, and compiles the segments that were new. Says why a
  /// segment could not be compiled; such a one is run by ATen. That is thrown instead where an operator of it was
  /// called under `error_on_graph_break`, or for `fail_on_error`.
  std::string finish(at::ArrayRef<at::Tensor> outputs, bool fail_on_error);
  /// The script hands tensors out in another way than as results: in a table, in a closure.
  void note_escape() noexcept { escaped_ = true; }
  /// A graph break that was an error. The script may have caught it; the call fails all the same.
  void note_raised(const GraphBreak& graph_break) { raised_ = graph_break; }
  const std::optional<GraphBreak>& raised() const { return raised_; }

 private:
  struct Closed {  // a segment of this call, kept until the end to learn which of its values are used
    TraceSegment* segment;
    std::vector<TraceStep*> path;
    std::vector<at::Tensor> inputs;
    std::vector<bool> samples;  // which inputs may hold samples
    std::vector<WeakTensor> values;
    bool grad_mode;
    bool raises;
  };
  struct ClosedValue {
    size_t closed;
    uint32_t value;
  };

  bool can_replay(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const ThreadState& state);
  bool enter_segment(const ThreadState& state);
  void note_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                 const torch::jit::Stack& stack, bool recorded);
  bool follow(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, torch::jit::Stack& stack);
  void execute_deferred();
  void run_compiled(const TraceSegment& segment);
  /// Where it fails, who reads one of the segment's values gets the error again.
  template <typename Work>
  void run_or_abandon(const Work& work) {
    try {
      work();
    } catch (const std::exception&) {
      abandon_segment();
      throw;
    }
  }
  void fill_pending(std::vector<TraceStep*> path, std::vector<at::Tensor> inputs);
  void compute_closed();
  void abandon_segment();
  void keep_segment(TraceSegment& segment);
  std::vector<bool> samples_among(const std::vector<at::Tensor>& inputs) const;
  void set_segment_aside(TraceSegment* segment);
  TraceStep* find_step(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  TraceStep* add_step(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  uint64_t add_signature(TraceStep& step);
  void note_results(TraceStep& step, const std::vector<c10::IValue>& arguments, const torch::jit::Stack& stack,
                    bool recorded);
  void reset_segment();

  std::shared_ptr<TraceTree> tree_;
  at::ArrayRef<at::Tensor> call_inputs_;
  std::vector<at::Tensor> params_;
  std::function<uint64_t()> writes_;
  uint64_t writes_before_;
  TraceReplayer* previous_;

  FollowedSegment now_{&params_};
  std::vector<Closed> closed_;
  std::vector<std::shared_ptr<PendingSegment>> pending_closed_;  // of this call: some of their values may not be there
  std::unordered_map<const c10::TensorImpl*, ClosedValue> closed_values_;
  std::vector<BreakCount> breaks_;
  int protected_depth_ = 0;
  std::optional<GraphBreak> raised_;
  bool escaped_ = false, finished_ = false;
  bool full_ = false;  // the tree takes no more
};

/// Somebody reads `tensor` or hands it on: called for every tensor that Lua gives to C++.
void materialize_if_lazy(const at::Tensor& tensor);
inline void materialize(const at::Tensor& tensor) {
  if (TraceReplayer::current() || LazyTensor::count() != 0) materialize_if_lazy(tensor);
}
/// Executes what is deferred on this thread: see TraceReplayer::end_segment.
void end_segment();

}  // namespace triage::capture
