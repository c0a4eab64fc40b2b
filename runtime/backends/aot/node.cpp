#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/backends/aot/program.h"
#include "runtime/backends/deadline.h"
#include "runtime/compat/autograd_node.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/profiling/profiler_spans.h"
#include "runtime/random/sequence.h"

namespace triage::aot {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// Tells whether a tensor was written to in place since.
class TensorVersion {
 public:
  explicit TensorVersion(const at::Tensor& tensor)
      : counter_(torch::autograd::impl::version_counter(tensor)), then_(counter_.current_version()) {}
  bool is_old() const { return counter_.current_version() != then_; }

 private:
  c10::VariableVersion counter_;
  uint32_t then_;
};

// No contract is asked of what formulas of gradients call (runtime/operators): these are LibTorch's own, and a script
// chooses none of their arguments. They take tensors and numbers of a forward call that was within its contract,
// unchanged since (see TensorVersion), and gradients, whose sizes and dtype autograd compares with those of the
// outputs. So their time and memory are in proportion to what the forward call was allowed.

/// One call in autograd's graph. Where the backward half that was prepared does not fit (other gradients come in, or
/// the gradient itself is to be differentiated), it runs the graph again from the primals, which it holds for that.
class JointBackward final : public torch::autograd::Node {
 public:
  JointBackward(torch::autograd::edge_list edges, std::shared_ptr<Program> program, const InputLayout& layout,
                const JointVariant* variant, at::Generator random)
      : Node(std::move(edges)),
        program_(std::move(program)),
        layout_(layout),
        variant_(variant),
        random_(std::move(random)) {}

  std::string name() const override { return "TriageJointBackward"; }

  void save(const Tensors& primals, const Tensors& outputs, at::ArrayRef<at::Tensor> saved) {
    // What no gradient goes to keeps nothing of where it came from.
    for (size_t i = 0; i < primals.size(); ++i) {
      const bool has_past = primals[i].requires_grad() && !layout_.reached[i];
      primals_.emplace_back(has_past ? primals[i].detach() : primals[i], false);
    }
    versions_.reserve(primals.size() + outputs.size());
    for (const Tensors* tensors : {&primals, &outputs})
      for (const at::Tensor& tensor : *tensors) versions_.emplace_back(tensor);
    for (size_t i = 0; i < saved.size(); ++i) {
      const std::optional<size_t>& output = variant_->output_of_saved[i];
      if (output)  // the same version counter as what the caller holds, but no cycle
        saved_.emplace_back(outputs[*output], layout_.differentiable[*output]);
      else
        saved_.emplace_back(saved[i], false);
    }
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    frees_ = false;
    look_for_writes();
    const Tensors tangents = one_for_each_output(gradients);
    run_ = run_of(tangents);
    variable_list result = run_back(tangents);
    frees_ = !torch::autograd::get_current_graph_task_keep_graph();
    return result;
  }

  /// Called after a run that frees the graph, and before the node goes. What no run went over may still be gone back
  /// through, as in a graph of ATen's nodes, by computing the graph again; what was gone over can only if it saves
  /// nothing.
  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    saved_.clear();
    if (std::exchange(frees_, false)) {
      history_.released.insert(run_);
      if (has_unvisited()) return;
    }
    primals_.clear();
  }

 private:
  variable_list run_back(const Tensors& tangents) {
    if (std::none_of(tangents.begin(), tangents.end(), [](const at::Tensor& t) { return t.defined(); }))
      return variable_list(num_outputs());
    if (!history_.released.empty() || history_.any_written()) {
      const std::string refusal = refusal_of(run_);
      TORCH_CHECK(refusal.empty(), refusal);
    }
    if (c10::GradMode::is_enabled()) {
      program_->hand_over({"its gradient is differentiated again (create_graph), which ATen does"});
      return differentiate(tangents, true);
    }
    const auto odd = [](const at::Tensor& tangent) { return tangent.defined() && !is_ordinary(tangent); };
    if (std::any_of(tangents.begin(), tangents.end(), odd)) {
      program_->hand_over({"a gradient that comes in is no dense tensor"});
      return differentiate(tangents, false);
    }
    const JointVariant* variant = layout_.find(tangents_key(tangents));
    if (!variant && !layout_.is_plain()) variant = record(tangents);
    if (!variant) return differentiate(tangents, false);
    layout_.set_last(variant);
    return run_backward(*variant, tangents);
  }

  BackwardRun run_of(const Tensors& tangents) const {
    BackwardRun run;
    for (const at::Tensor& tangent : tangents) run.outputs.push_back(tangent.defined());
    for (size_t i = 0; i < num_outputs(); ++i) run.primals.push_back(task_should_compute_output(i));
    return run;
  }

  void look_for_writes() {
    history_.written.clear();
    if (std::none_of(versions_.begin(), versions_.end(), [](const TensorVersion& version) { return version.is_old(); }))
      return;
    for (const TensorVersion& version : versions_) history_.written.push_back(version.is_old());
  }

  bool is_output_written() const {
    const auto& written = history_.written;
    if (written.empty()) return false;
    return std::find(written.begin() + static_cast<std::ptrdiff_t>(num_outputs()), written.end(), true) !=
           written.end();
  }

  std::string refusal_of(const BackwardRun& next) {
    if (const auto known = layout_.refusal(history_, next)) return *known;
    const auto is_lost = [&](size_t i) { return primals_.empty() || (history_.any_written() && history_.written[i]); };
    Tensors primals;
    for (size_t i = 0; i < num_outputs(); ++i)
      primals.push_back(is_lost(i) ? program_->blank(layout_, i) : primals_[i].unpack());
    return program_->refusal(layout_, primals, history_, next);
  }

  bool has_unvisited() const {
    const auto visited = [&](size_t output, size_t primal) {
      return std::any_of(history_.released.begin(), history_.released.end(),
                         [&](const BackwardRun& run) { return run.outputs[output] && run.primals[primal]; });
    };
    for (size_t output = 0; output < layout_.differentiable.size(); ++output)
      for (size_t primal = 0; primal < num_outputs(); ++primal)
        if (layout_.differentiable[output] && should_compute_output(primal) && !visited(output, primal)) return true;
    return false;
  }

  const JointVariant* record(const Tensors& tangents) {
    const random::Replay same_numbers(program_->draws(), random_);
    return program_->record(layout_, unpacked_primals(), tangents);
  }

  Tensors differentiate(const Tensors& tangents, bool create_graph) {
    const random::Replay same_numbers(program_->draws(), random_);
    return program_->differentiate(unpacked_primals(), tangents, create_graph);
  }

  Tensors one_for_each_output(const variable_list& gradients) const {
    Tensors tangents(layout_.differentiable.size());
    size_t next = 0;
    for (size_t i = 0; i < tangents.size(); ++i)
      if (layout_.differentiable[i]) tangents[i] = gradients[next++];
    return tangents;
  }

  Tensors unpacked_primals() {
    Tensors primals;
    if (primals_.empty())  // a run over what saves nothing does not look at values
      for (size_t i = 0; i < num_outputs(); ++i) primals.push_back(program_->blank(layout_, i));
    for (const SavedVariable& primal : primals_) primals.push_back(primal.unpack());
    return primals;
  }

  /// What the forward half of the variant saved: kept by this call, or computed now when another variant was expected.
  void append_saved(const JointVariant& variant, Tensors& inputs) {
    if (&variant == variant_ && history_.released.empty() && !is_output_written()) {
      for (const size_t index : variant.saved_primals) inputs.push_back(primals_[index].unpack());
      for (const SavedVariable& saved : saved_) inputs.push_back(saved.unpack(compat::self(this)));
      return;
    }
    const Tensors primals = unpacked_primals();
    Tensors made;
    {
      const random::Replay same_numbers(program_->draws(), random_);
      variant.forward->run(primals, made, {Deadline::current()});
    }
    for (const size_t index : variant.saved_primals) inputs.push_back(primals[index]);
    inputs.insert(inputs.end(), made.begin() + static_cast<std::ptrdiff_t>(layout_.differentiable.size()), made.end());
  }

  variable_list run_backward(const JointVariant& variant, const Tensors& tangents) {
    const messages::ProfilerSpan span([&] { return "backward " + program_->graph().name(); });
    const at::NoGradGuard no_grad;
    Tensors inputs, made;
    append_saved(variant, inputs);
    for (const at::Tensor& tangent : tangents)
      if (tangent.defined()) inputs.push_back(tangent);
    variant.backward->run(inputs, made, {Deadline::current()});
    variable_list result(variant.has_gradient.size());
    size_t next = 0;
    for (size_t i = 0; i < result.size(); ++i)
      if (variant.has_gradient[i]) result[i] = made[next++];
    for (size_t i = 0; i < result.size(); ++i) {
      const auto end = result.begin() + static_cast<std::ptrdiff_t>(i);
      const auto shares = [&](const at::Tensor& earlier) { return share_memory(earlier, result[i]); };
      if (variant.own_memory[i] && std::any_of(result.begin(), end, shares)) result[i] = result[i].clone();
    }
    return result;
  }

  std::shared_ptr<Program> program_;
  const InputLayout& layout_;    // of the program
  const JointVariant* variant_;  // whose forward half ran; null where none was known
  at::Generator random_;         // as it was at the call, where the graph draws
  std::vector<SavedVariable> primals_, saved_;
  std::vector<TensorVersion> versions_;  // of primals, then outputs
  BackwardRun run_;                      // the one that runs, or ran last
  bool frees_ = false;                   // it frees what it goes over
  CallHistory history_;
};

/// An output that autograd may take for its own: no view of what the graph made inside. Writes to it are still seen by
/// what was saved.
at::Tensor own(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      torch::autograd::impl::version_counter(tensor), /*allow_tensor_metadata_change=*/true));
}

torch::autograd::edge_list edges_of(const Tensors& primals, const std::vector<bool>& reached) {
  torch::autograd::edge_list edges;
  for (size_t i = 0; i < primals.size(); ++i)
    edges.push_back(reached[i] ? torch::autograd::impl::gradient_edge(primals[i]) : torch::autograd::Edge());
  return edges;
}

}  // namespace

void run_joint(const std::shared_ptr<Program>& program, const InputLayout& layout, const Tensors& primals,
               Tensors& outputs, const CallContext& call) {
  const JointVariant* variant = layout.last();
  at::Generator random = program->draws() ? random::copy_of_current() : at::Generator();
  Tensors made;
  {
    const at::NoGradGuard no_grad;
    (variant ? *variant->forward : program->forward()).run(primals, made, call);
  }
  if (!layout.any_differentiable) {
    outputs = std::move(made);
    return;
  }
  const size_t count = layout.differentiable.size();
  auto* node = new JointBackward(edges_of(primals, layout.reached), program, layout, variant, std::move(random));
  const compat::NodePtr owner = compat::own_node(node);
  for (size_t i = 0; i < count; ++i) {
    outputs.push_back(own(made[i]));
    if (layout.differentiable[i]) torch::autograd::set_history(outputs.back(), owner);
  }
  node->save(primals, outputs, at::ArrayRef<at::Tensor>(made).slice(count));
}

}  // namespace triage::aot
