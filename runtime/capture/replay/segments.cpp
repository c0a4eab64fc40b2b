// How a segment of a followed call ends: it is run as compiled, executed by ATen, or kept until it is compiled.
#include <c10/core/GradMode.h>
#include <triage/compiler_config.h>
#include <triage/error.h>

#include "runtime/backends/deadline.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/predict.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/profiling/profiler_spans.h"

namespace triage::capture {
namespace {

/// A backend may lay its results out in another order of dimensions than ATen does; the script has been told ATen's.
at::Tensor with_strides_of(const LazyTensor& lazy, const at::Tensor& result) {
  if (result.sizes() != lazy.sizes() || result.dtype() != lazy.dtype()) return result;  // `fill` says so
  bool same = true;
  for (int64_t dim = 0; dim < result.dim(); ++dim)
    same = same && (result.size(dim) == 1 || result.stride(dim) == lazy.strides()[dim]);
  if (same || result.numel() == 0) return result;
  return at::empty_strided(result.sizes(), lazy.strides(), result.options()).copy_(result);
}

}  // namespace

void TraceReplayer::end_segment() {
  if (now_.path.empty()) return;
  if (!now_.node->segment) now_.node->segment = std::make_unique<TraceSegment>();
  TraceSegment& segment = *now_.node->segment;
  segment.wanted.resize(now_.values.size(), false);
  for (size_t i = 0; i < now_.values.size(); ++i)
    if (now_.last_uses[i] == now_.path.size() && !segment.wanted[i]) {
      segment.wanted[i] = true;
      segment.ready = false;
    }
  const bool compiled = now_.deferred && segment.ready && !segment.by_steps;
  run_or_abandon([&] {
    if (compiled)
      run_compiled(segment);
    else if (now_.deferred)
      execute_deferred();
  });
  if (compiled)
    set_segment_aside(&segment);
  else
    keep_segment(segment);
}

void TraceReplayer::abandon_segment() {
  if (now_.pending) set_segment_aside(nullptr);
}

/// Runs the compiled graph, and gives its results to the lazy tensors that stand for them.
void TraceReplayer::run_compiled(const TraceSegment& segment) {
  const c10::AutoGradMode mode(now_.state.grad_mode);
  std::vector<at::Tensor> outputs;
  if (segment.compiled.executable) {
    const messages::ProfilerSpan span([&] { return "segment " + segment.compiled.graph->name(); });
    const NotCaptured scope(false);  // a backend may run operators of a script
    const uint64_t before = writes_();
    segment.compiled.executable->run(now_.inputs, outputs, {Deadline::current()});
    writes_before_ += writes_() - before;  // what a backend keeps in variables is none of the function's
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto* lazy = LazyTensor::unfilled(now_.deferred_values[segment.outputs[i]]);
    if (shares_memory(outputs[i], now_.inputs)) outputs[i] = own_copy(outputs[i]);
    // Equal computations became one; the script may write to one of the two.
    if (shares_memory(outputs[i], at::ArrayRef<at::Tensor>(outputs).slice(0, i))) outputs[i] = own_copy(outputs[i]);
    if (lazy) lazy->fill(with_strides_of(*lazy, outputs[i]), false);
  }
  for (const TraceSegment::Alias& alias : segment.aliases) {
    torch::jit::Stack stack = arguments_of_step(*alias.step, now_.inputs, now_.deferred_values);
    alias.step->op.callBoxed(&stack);
    if (auto* lazy = LazyTensor::unfilled(now_.deferred_values[alias.step->first_value + alias.result]))
      lazy->fill(stack[alias.result].toTensor(), true);
  }
}

/// The operators come another way than before, or to an end that is not compiled: ATen executes what was deferred.
void TraceReplayer::execute_deferred() {
  now_.deferred = false;
  fill_pending(now_.path, now_.inputs);
  now_.pending->compute();
  now_.deferred_values.clear();
}

void TraceReplayer::fill_pending(std::vector<TraceStep*> path, std::vector<at::Tensor> inputs) {
  now_.pending->path = std::move(path);
  now_.pending->inputs = std::move(inputs);
  now_.pending->values = now_.values;
}

/// All values of the segment are there. `finish` may compile it, for what is wanted of it by then.
void TraceReplayer::keep_segment(TraceSegment& segment) {
  for (const auto& [impl, value] : now_.value_ids) closed_values_[impl] = {closed_.size(), value};
  auto samples = segment.ready ? std::vector<bool>() : samples_among(now_.inputs);  // before any is written to
  closed_.push_back({&segment, std::move(now_.path), std::move(now_.inputs), std::move(samples), std::move(now_.values),
                     now_.state.grad_mode, now_.raises});
  reset_segment();
}

/// Weights are leaves that the script has from outside of the call. All else may be made of samples.
std::vector<bool> TraceReplayer::samples_among(const std::vector<at::Tensor>& inputs) const {
  std::vector<bool> samples;
  for (const at::Tensor& tensor : inputs) {
    const bool given = std::any_of(call_inputs_.begin(), call_inputs_.end(),
                                   [&](const at::Tensor& input) { return input.is_same(tensor); });
    samples.push_back(given || !tensor.requires_grad() || !tensor.is_leaf());
  }
  return samples;
}

/// Values that are not there yet are computed when somebody reads them. `segment` learns of that; null: it failed.
void TraceReplayer::set_segment_aside(TraceSegment* segment) {
  fill_pending(std::move(now_.path), std::move(now_.inputs));
  now_.pending->note_versions();
  now_.pending->segment = segment;
  pending_closed_.push_back(now_.pending);
  reset_segment();
}

void TraceReplayer::reset_segment() {
  now_.pending->closed = true;
  now_ = FollowedSegment(&params_);
}

std::string TraceReplayer::finish(at::ArrayRef<at::Tensor> outputs, bool fail_on_error) {
  for (const at::Tensor& output : outputs)
    if (output.defined()) note_use(output);
  end_segment();
  for (const at::Tensor& output : outputs) materialize_if_lazy(output);
  // What the script wrote somewhere may be a tensor whose values are not there yet. They are computed before anybody
  // can change what they are computed of; the next time the graph gives them.
  if (writes_() != writes_before_ || escaped_) compute_closed();
  finished_ = true;
  const NotCaptured scope(false);
  std::string failure;
  for (Closed& closed : closed_) {
    const bool raises = fail_on_error || closed.raises;
    if (closed.segment->ready || (closed.segment->failed && !raises)) continue;
    if (tree_->segments.size() >= static_cast<size_t>(get_compiler_config().accumulated_recompile_limit)) {
      closed.segment->failed = true;
      continue;
    }
    try {
      const c10::AutoGradMode mode(closed.grad_mode);
      compile_segment(*tree_, *closed.segment, closed.path, closed.inputs, closed.samples);
      if (fail_on_error && closed.segment->compiled.executable) closed.segment->compiled.executable->never_fall_back();
    } catch (const LimitError&) {
      throw;
    } catch (const std::exception& error) {
      if (raises) throw;
      closed.segment->failed = true;  // ATen runs its operators
      failure = messages::message_with_hint(error);
    }
  }
  return failure;
}

}  // namespace triage::capture
