#pragma once
#include <ATen/core/Tensor.h>
#include <triage/backend.h>
#include <triage/graph.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/messages/logs/log.h"

/// What `aot_eager` and `fused` keep of one graph: forward and backward halves for each kind of inputs and incoming
/// gradients.
namespace triage::aot {

using Tensors = std::vector<at::Tensor>;

/// One joint graph, cut and compiled. Immutable.
struct JointVariant {
  std::vector<int64_t> tangents;  // the layout of the gradients that come in
  std::unique_ptr<Executable> forward, backward;
  std::vector<size_t> saved_primals;
  std::vector<std::optional<size_t>> output_of_saved;
  std::vector<bool> has_gradient;
  std::optional<UnmaskedRows> unmasked;
  std::vector<bool> own_memory;  // gradients that ATen would give memory of their own, though the half may not
};

/// What a backward run goes over: the outputs that a gradient came to, and the primals whose gradients are asked for.
struct BackwardRun {
  std::vector<bool> outputs, primals;
  bool operator<(const BackwardRun& other) const {
    return std::tie(outputs, primals) < std::tie(other.outputs, other.primals);
  }
};

/// What happened to one call since: backward runs that freed what they went over, and which primals and outputs (in
/// this order) were written to in place.
struct CallHistory {
  std::set<BackwardRun> released;
  std::vector<bool> written;
  bool any_written() const { return std::find(written.begin(), written.end(), true) != written.end(); }
  bool operator<(const CallHistory& other) const {
    return std::tie(released, written) < std::tie(other.released, other.written);
  }
};

/// Inputs of one layout: sizes, strides, dtypes, requires_grad.
class InputLayout {
 public:
  std::vector<int64_t> key;
  std::vector<bool> differentiable;        // outputs
  std::vector<bool> reached;               // primals that gradients of these go to
  std::vector<graph::TensorMeta> outputs;  // as they are
  bool any_differentiable = false;
  const InputLayout* next = nullptr;

  bool is_plain() const noexcept { return plain_.load(std::memory_order_relaxed); }
  void make_plain(UnmaskedRows why) const;
  std::optional<UnmaskedRows> why_plain() const;
  /// The variant that served the last backward run; null before the first.
  const JointVariant* last() const noexcept { return last_.load(std::memory_order_acquire); }
  void set_last(const JointVariant* variant) const noexcept { last_.store(variant, std::memory_order_release); }
  const JointVariant* find(const std::vector<int64_t>& tangents) const;
  /// Keeps one made meanwhile by another thread, if there is one. Null when there are too many already.
  const JointVariant* add(std::unique_ptr<JointVariant> variant) const;
  /// What is known of Program::refusal; keeps what is found out.
  std::optional<std::string> refusal(const CallHistory& history, const BackwardRun& next) const;
  void note_refusal(const CallHistory& history, const BackwardRun& next, const std::string& refusal) const;
  void finish_compiling() const;
  LoopTiers loops() const;
  size_t bytes() const;  // as Executable::bytes

 private:
  std::vector<const JointVariant*> variants() const;

  mutable std::atomic<bool> plain_{false};
  mutable std::atomic<const JointVariant*> last_{nullptr};
  mutable std::mutex mutex_;
  mutable std::optional<UnmaskedRows> why_plain_;
  mutable std::vector<std::unique_ptr<JointVariant>> variants_;
  mutable std::map<std::pair<CallHistory, BackwardRun>, std::string> refusals_;
};

/// Shared by the executable and the autograd nodes of its calls. Thread-safe.
class Program {
 public:
  /// `graph` has no variables: what it reaches from outside are inputs. `samples`: which may hold samples.
  /// `half` compiles what runs with grad mode off, for backend `backend`. `examples` of the graph's inputs, if there
  /// are any.
  Program(graph::Graph graph, std::vector<bool> samples, std::vector<bool> read_as_number, std::string backend,
          Backend half, const Tensors& examples);
  ~Program();

  const graph::Graph& graph() const { return graph_; }
  /// Whether it draws random numbers. Whoever runs it again for one call must do so from the state of the generator at
  /// that call.
  bool draws() const { return draws_; }
  /// The graph by itself, with grad mode off.
  const Executable& forward() const { return *forward_; }

  /// The layout of these primals; null where there are too many. A new one is found out by running the graph once.
  const InputLayout* layout_of(const Tensors& primals);
  /// Records the joint graph for these gradients. Null where that cannot be done: the layout is plain from then on.
  const JointVariant* record(const InputLayout& layout, const Tensors& primals, const Tensors& tangents) const;
  /// The gradients as autograd itself computes them, by running the graph again: at any time right, and differentiable
  /// with `create_graph`. `tangents`: one for each output, undefined where none came in.
  Tensors differentiate(const Tensors& primals, const Tensors& tangents, bool create_graph) const;
  /// Why ATen's own graph of a call, which frees what it saved step by step and sees writes to it, would not run `next`
  /// after that history; empty where it would. Found out by doing so, once for each layout. Of the primals only sizes,
  /// and the numbers read out of them, matter.
  std::string refusal(const InputLayout& layout, const Tensors& primals, const CallHistory& history,
                      const BackwardRun& next) const;
  /// A tensor like a primal of the layout, for one whose values are lost.
  at::Tensor blank(const InputLayout& layout, size_t primal) const;

  /// Waits until nothing about the graph and the halves there are gets faster any more.
  void finish_compiling();
  LoopTiers loops();  // of the graph and of all halves
  size_t bytes();     // as Executable::bytes, with what all layouts have

  /// The graph, or its gradients, cannot be compiled: `eager` serves, unless that is an error (never_fall_back).
  void fail(const UnmaskedRows& why) const;
  void never_fall_back() { strict_ = true; }
  /// Says once in the log that, and why, `eager` serves in place of this backend. Throws GraphError where rows must be
  /// masked.
  void hand_over(const UnmaskedRows& why) const;
  void require_masked_rows() { required_ = true; }
  /// Whether gradients of calls of this layout, which come in as the outputs lie, may get values of masked rows.
  std::optional<UnmaskedRows> unmasked_rows(const InputLayout& layout, const Tensors& primals) const;

 private:
  std::unique_ptr<InputLayout> probe(const Tensors& primals, std::vector<int64_t> key) const;
  std::vector<int64_t> key_of(const Tensors& primals) const;
  /// Whether nothing was said of this graph yet. Throws GraphError where rows must be masked.
  bool is_news(const UnmaskedRows& why) const;
  void tell_unmasked(const UnmaskedRows& why) const;

  graph::Graph graph_;
  const std::vector<bool> samples_;
  std::vector<bool> read_as_number_;
  bool draws_ = false, strict_ = false, required_ = false;
  std::string backend_;
  Backend half_;
  std::unique_ptr<Executable> plain_;  // the interpreter: with grad mode on, autograd records it
  std::unique_ptr<Executable> forward_;
  std::atomic<const InputLayout*> newest_{nullptr};
  std::atomic<bool> full_{false};
  std::mutex mutex_;  // of what follows
  std::vector<std::unique_ptr<InputLayout>> layouts_;
  const messages::Logger logger_;  // of whoever had it compiled
  mutable std::atomic<bool> said_{false};
};

/// What joint graphs are recorded for: dense, with memory, without forward-mode gradients. All else is left to `eager`.
bool is_ordinary(const at::Tensor& tensor);

/// The layout of gradients that come in, one for each output.
std::vector<int64_t> tangents_key(const Tensors& tangents);

/// Runs the graph on the primals, with an autograd node that runs the backward half. `outputs`: those of the graph.
void run_joint(const std::shared_ptr<Program>& program, const InputLayout& layout, const Tensors& primals,
               Tensors& outputs, const CallContext& call);

}  // namespace triage::aot
