#include "runtime/capture/replay/trace_replayer.h"

#include <c10/core/InferenceMode.h>
#include <triage/compiler_config.h>
#include <triage/error.h>

#include <algorithm>

#include "runtime/backends/deadline.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/capture/context.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/predict.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/operator_traits.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/compat/readable_memory.h"
#include "runtime/graph/text/describe.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/profiling/profiler_spans.h"

namespace triage::capture {
namespace {

/// A tensor of another kind (functional, say) has a class of its own, which none that comes later can stand for.
bool can_be_lazy(const at::Tensor& tensor) {
  return !tensor.defined() ||
         (compat::has_only(tensor, compat::captured_keys) && tensor.has_storage() && !tensor.is_quantized() &&
          !is_wrapped_number(tensor) && !tensor.unsafeGetTensorImpl()->is_python_dispatch());
}

/// Of the results that end `stack`: whether tensors that come later could stand for them.
bool gives_lazy(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t count = std::min(op.schema().returns().size(), stack.size());
  return std::all_of(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(),
                     [](const c10::IValue& result) { return result.isTensor() && can_be_lazy(result.toTensor()); });
}

/// A recorder gives a tensor of its own where an operator hands an argument back: what ATen gives shows by calling it.
std::vector<std::optional<uint32_t>> handed_back(const TraceStep& step, const std::vector<c10::IValue>& arguments,
                                                 torch::jit::Stack results, bool recorded) {
  if (recorded) {
    const NotCaptured scope(false);
    results.assign(arguments.begin(), arguments.end());
    step.op.callBoxed(&results);
  }
  std::vector<std::optional<uint32_t>> places;
  for (size_t i = results.size() - step.num_results; i < results.size(); ++i)
    places.push_back(index_among(arguments, results[i].toTensor()));
  return places;
}

/// The mode in which a tensor is made decides whether it has a version counter. In inference mode, a view of a usual
/// tensor has one.
at::Tensor make_lazy(const ResultLayout& layout, const std::shared_ptr<PendingSegment>& pending, uint32_t value) {
  std::optional<c10::InferenceMode> other_mode;
  if (layout.inference != c10::InferenceMode::is_enabled()) other_mode.emplace(layout.inference);
  return at::Tensor(c10::make_intrusive<LazyTensor>(layout, pending, value));
}

const GraphBreak* find_break(const TraceTree& tree, const GraphBreak& wanted) {
  const auto found = std::find_if(tree.breaks.begin(), tree.breaks.end(),
                                  [&](const GraphBreak& known) { return same_break(known, wanted); });
  return found == tree.breaks.end() ? nullptr : &*found;
}

std::vector<int64_t> extents_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> extents;
  for (const at::Tensor& tensor : tensors) {
    extents.insert(extents.end(), tensor.sizes().begin(), tensor.sizes().end());
    extents.insert(extents.end(), tensor.strides().begin(), tensor.strides().end());
  }
  return extents;
}

}  // namespace

bool FollowedSegment::is_param(const at::Tensor& tensor) const {
  return std::any_of(params->begin(), params->end(), [&](const at::Tensor& param) { return param.is_same(tensor); });
}

void FollowedSegment::add_value(const at::Tensor& value) {
  if (value.defined()) value_ids[value.unsafeGetTensorImpl()] = static_cast<uint32_t>(values.size());
  values.emplace_back(value.getIntrusivePtr());
  last_uses.push_back(0);
}

void FollowedSegment::advance(TraceStep& step) {
  for (at::Tensor& tensor : new_inputs) {
    input_ids[tensor.unsafeGetTensorImpl()] = static_cast<uint32_t>(inputs.size());
    inputs.push_back(std::move(tensor));
  }
  new_inputs.clear();
  path.push_back(&step);
  node = &step.after;
  raises |= OnGraphBreak::raises();
}

bool FollowedSegment::matches(const TraceArgument& argument, const c10::IValue& value, const TraceStep& step) {
  using From = TraceArgument::From;
  if (!value.isTensor() || !value.toTensor().defined()) {
    if (argument.from != From::list)
      return argument.from == From::constant &&
             graph::same_constant(argument.constant, value.isTensor() ? c10::IValue() : value);
    if (!value.isList()) return false;
    const auto items = value.toListRef();
    if (items.size() != argument.items.size()) return false;
    for (size_t i = 0; i < items.size(); ++i)
      if (!matches(argument.items[i], items[i], step)) return false;
    return true;
  }
  const at::Tensor& tensor = value.toTensor();
  if (const auto found = value_ids.find(tensor.unsafeGetTensorImpl()); found != value_ids.end())
    return argument.from == From::value && argument.index == found->second;
  if (const auto found = input_ids.find(tensor.unsafeGetTensorImpl()); found != input_ids.end())
    return argument.from == From::input && argument.index == found->second;
  if (is_wrapped_number(tensor) && !is_param(tensor))
    return argument.from == From::constant && graph::same_constant(argument.constant, number_of(tensor));
  size_t index = 0;
  while (index < new_inputs.size() && !new_inputs[index].is_same(tensor)) ++index;
  if (argument.from != From::input || argument.index != inputs.size() + index) return false;
  if (index < new_inputs.size()) return true;
  if (!step.new_inputs[index].fits(tensor) || step.new_params[index] != is_param(tensor)) return false;
  new_inputs.push_back(tensor);
  return true;
}

TraceArgument FollowedSegment::describe(const c10::IValue& value, TraceStep& step) {
  using From = TraceArgument::From;
  TraceArgument argument;
  if (!value.isTensor() || !value.toTensor().defined()) {
    bool tensors = false;
    for_each_tensor(value, [&](const at::Tensor&) { tensors = true; });
    if (!tensors) {
      if (!value.isTensor()) argument.constant = value;
      return argument;
    }
    argument.from = From::list;
    for (const c10::IValue& item : value.toListRef()) argument.items.push_back(describe(item, step));
    return argument;
  }
  const at::Tensor& tensor = value.toTensor();
  argument.from = From::input;
  if (const auto found = value_ids.find(tensor.unsafeGetTensorImpl()); found != value_ids.end()) {
    argument.from = From::value;
    argument.index = found->second;
  } else if (const auto known = input_ids.find(tensor.unsafeGetTensorImpl()); known != input_ids.end()) {
    argument.index = known->second;
  } else if (is_wrapped_number(tensor) && !is_param(tensor)) {
    argument.from = From::constant;
    argument.constant = number_of(tensor);
  } else {
    size_t index = 0;
    while (index < new_inputs.size() && !new_inputs[index].is_same(tensor)) ++index;
    argument.index = static_cast<uint32_t>(inputs.size() + index);
    if (index == new_inputs.size()) {
      new_inputs.push_back(tensor);
      step.new_inputs.push_back(Guards::InputGuard::of(tensor));
      step.new_params.push_back(is_param(tensor));
    }
  }
  return argument;
}

std::optional<uint64_t> FollowedSegment::signature_with(const TraceStep& step) const {
  if (step.new_inputs.empty()) return signature;
  const std::vector<int64_t> extents = extents_of(new_inputs);
  for (const TraceStep::InputSignature& known : step.signatures)
    if (known.before == signature && known.extents == extents) return known.id;
  return std::nullopt;
}

TraceReplayer::TraceReplayer(std::shared_ptr<TraceTree> tree, at::ArrayRef<at::Tensor> inputs,
                             at::ArrayRef<at::Tensor> params, std::function<uint64_t()> writes)
    : tree_(std::move(tree)),
      call_inputs_(inputs),
      writes_(std::move(writes)),
      writes_before_(writes_()),
      previous_(context.replayer) {
  std::copy_if(params.begin(), params.end(), std::back_inserter(params_), is_wrapped_number);
  context.replayer = this;
}

TraceReplayer::~TraceReplayer() {
  context.replayer = previous_;
  if (finished_) return;
  try {  // the script failed: what it kept, or its error holds, must be there whatever happens to what it is computed
         // of
    abandon_segment();
    compute_closed();
  } catch (const std::exception&) {  // the tensor says so when it is read
  }
}

TraceReplayer* TraceReplayer::current() noexcept { return context.replayer; }
TraceReplayer* TraceReplayer::replace_current(TraceReplayer* replayer) noexcept {
  return std::exchange(context.replayer, replayer);
}

void TraceReplayer::graph_break(const GraphBreak& graph_break) {
  end_segment();
  switch (graph_break.kind) {  // code that writes unseen
    case Break::autograd:
    case Break::disabled:
    case Break::host_function:
    case Break::opaque_module:
    case Break::training_step:
      compute_closed();
      break;
    default:
      break;
  }
  const GraphBreak* known = find_break(*tree_, graph_break);
  if (!known && tree_->breaks.size() < TraceTree::max_breaks) known = &tree_->breaks.emplace_back(graph_break);
  if (!known) return;
  const auto same = [&](const BreakCount& met) { return met.graph_break == known; };
  const auto found = std::find_if(breaks_.begin(), breaks_.end(), same);
  found == breaks_.end() ? breaks_.push_back({known, 1}) : void(++found->times);
}

bool TraceReplayer::met(const GraphBreak& graph_break) const {
  return std::any_of(breaks_.begin(), breaks_.end(),
                     [&](const BreakCount& met) { return same_break(*met.graph_break, graph_break); });
}

bool TraceReplayer::knows(const GraphBreak& graph_break) const {
  return tree_->breaks.size() >= TraceTree::max_breaks || find_break(*tree_, graph_break);
}

namespace {

/// The script writes to an input of the segment behind it.
void note_written(TraceSegment& segment, const std::vector<at::Tensor>& inputs) {
  const bool gradients =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& each) { return each.requires_grad(); });
  if (gradients && !std::exchange(segment.input_written, true)) segment.ready = false;
}

/// A condition of the batch chooses between two values of which one requires grad.
bool values_decide_gradients(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  return selects_for_batch(op, arguments) &&
         arguments[1].toTensor().requires_grad() != arguments[2].toTensor().requires_grad();
}

/// To an argument, which the schema does not say.
bool writes_unseen(const OperatorTraits& traits, const std::vector<c10::IValue>& arguments) {
  return traits.writes_noise || std::any_of(traits.training.begin(), traits.training.end(), [&](size_t training) {
           return arguments[training].isBool() && arguments[training].toBool();
         });
}

}  // namespace

bool TraceReplayer::can_replay(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                               const ThreadState& state) {
  const OperatorTraits& traits = traits_of(op);
  if (full_ || protected_depth_ > 0 || !traits.computes || state.autocast != 0) return false;
  if (writes_unseen(traits, arguments)) return false;
  bool odd = false, reads_place = false, first = true;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    odd |= !compat::has_only(tensor, compat::captured_keys);
    reads_place |= !std::exchange(first, false) && tensor.dim() == 0 && at::isIntegralType(tensor.scalar_type(), false);
  });
  if (state.grad_mode && values_decide_gradients(op, arguments)) return false;
  // What fails for some values fails where the script calls it, before what comes after, and though nobody uses it.
  if (judges_values(op, arguments)) return false;
  // Where a view lies is read of a tensor (`narrow` takes its start as one): that may fail, and must be known now.
  return !odd && !(traits.aliases && reads_place);
}

void TraceReplayer::call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const std::vector<c10::IValue> arguments = arguments_of(op, stack);
  // Front ends touch what they hand over; one call of theirs may be several operators, the first of which ended a
  // segment.
  for_each_tensor(arguments, materialize_if_lazy);
  const ThreadState state = ThreadState::now();
  const auto refused = refusal(op, arguments, false);
  if (refused || !can_replay(op, arguments, state) || !enter_segment(state)) {
    if (refused) capture::graph_break(refused->kind, refused->what, refused->hint);
    end_segment();
    if (writes_unseen(traits_of(op), arguments)) compute_closed();
    op.callBoxed(&stack);
    return;
  }
  if (now_.path.empty()) now_.deferred = !now_.node->next.empty();
  if (now_.deferred && follow(op, arguments, stack)) return;
  if (now_.deferred) run_or_abandon([&] { execute_deferred(); });
  op.callBoxed(&stack);
  note_call(op, arguments, stack, /*recorded=*/false);
}

void TraceReplayer::observe(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                            const torch::jit::Stack& stack) {
  const ThreadState state = ThreadState::now();
  const Recorder* const recorder = Recorder::current();
  const bool recorded = recorder && !recorder->takes_dynamic_shapes();  // which is refused nothing that this refuses
  if ((!recorded && refusal(op, arguments, false)) || !can_replay(op, arguments, state) || !enter_segment(state))
    return end_segment();
  note_call(op, arguments, stack, /*recorded=*/true);
}

/// An operator that can be followed was executed, or `recorded`.
void TraceReplayer::note_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                              const torch::jit::Stack& stack, bool recorded) {
  TraceStep* step = nullptr;
  if (gives_lazy(op, stack)) {
    step = find_step(op, arguments);
    if (!step) step = add_step(op, arguments);
  }
  if (!step) return end_segment();
  note_results(*step, arguments, stack, recorded);
}

void TraceReplayer::before_write(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& declared = op.schema().arguments();
  const std::vector<c10::IValue> arguments = arguments_of(op, stack);
  for_each_tensor(arguments, [&](const at::Tensor& tensor) { note_use(tensor); });
  end_segment();
  for (size_t i = 0; i < declared.size(); ++i) {
    if (!is_written(declared[i])) continue;
    for_each_tensor(arguments[i], [&](const at::Tensor& target) {
      materialize_if_lazy(target);
      for (const auto& pending : pending_closed_) {
        if (pending->looks_at(target)) pending->compute(/*want=*/true);
        if (pending->segment && shares_memory(target, pending->inputs))
          note_written(*pending->segment, pending->inputs);
      }
      for (Closed& closed : closed_) {
        if (shares_memory(target, closed.inputs)) note_written(*closed.segment, closed.inputs);
        for (at::Tensor& input : closed.inputs)  // an example of what comes there, whatever size it is given now
          if (input.is_same(target)) input = input.detach().set_requires_grad(input.requires_grad());
      }
    });
  }
}

void TraceReplayer::compute_closed() {
  for (const auto& pending : pending_closed_) pending->compute(/*want=*/true);
}

/// Goes on with the segment, or begins one where there is none, or none that takes another operator. False where the
/// tree takes no more.
bool TraceReplayer::enter_segment(const ThreadState& state) {
  if (now_.path.size() >= TraceTree::max_path || (!now_.path.empty() && !(state == now_.state))) end_segment();
  if (!now_.path.empty()) return true;
  TraceNode* const root = tree_->root(state);
  if (!root) return false;
  now_.state = state;
  now_.node = root;
  now_.pending = std::make_shared<PendingSegment>();
  now_.pending->tree = tree_;
  now_.pending->state = now_.state;
  now_.signature = 0;
  return true;
}

/// Puts the operator off, where it came before in this place and its results are known but for their values.
bool TraceReplayer::follow(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                           torch::jit::Stack& stack) {
  TraceStep* step = find_step(op, arguments);
  if (!step) return false;
  const auto known_signature = now_.signature_with(*step);
  const std::vector<ResultLayout>* layouts = known_signature ? step->layouts(*known_signature) : nullptr;
  auto predicted = layouts ? std::nullopt : predict(*step, arguments);  // sizes that are new
  if (!layouts && !predicted) return false;
  now_.signature = known_signature ? *known_signature : add_signature(*step);
  if (!layouts) layouts = &step->add_layouts(now_.signature, std::move(*predicted));
  stack.resize(stack.size() - arguments.size());
  for (const ResultLayout& layout : *layouts) {
    const auto value = static_cast<uint32_t>(now_.values.size());
    at::Tensor result;
    if (layout.argument)
      result = tensors_of(arguments)[*layout.argument];
    else if (layout.defined)
      result = make_lazy(layout, now_.pending, value);
    now_.add_value(result);
    now_.deferred_values.push_back(result);
    stack.emplace_back(std::move(result));
  }
  now_.advance(*step);
  return true;
}

void TraceReplayer::note_results(TraceStep& step, const std::vector<c10::IValue>& arguments,
                                 const torch::jit::Stack& stack, bool recorded) {
  const auto known = now_.signature_with(step);
  now_.signature = known ? *known : add_signature(step);
  const std::vector<at::Tensor> given = tensors_of(arguments);
  std::vector<ResultLayout> layouts;
  bool aliases = false, empty = false;
  for (size_t i = stack.size() - step.num_results; i < stack.size(); ++i) {
    const at::Tensor& result = stack[i].toTensor();
    layouts.push_back(ResultLayout::of(result));
    if (shares_memory(result, given)) aliases = true, layouts.back().storage_bytes = 0;  // it has none itself
    empty |= result.defined() && result.numel() == 0;  // which shares no memory, whatever it is
    now_.add_value(result);
  }
  if (!step.layouts(now_.signature)) {
    const bool may_be_argument = step.aliases || aliases || empty;
    const auto places =
        may_be_argument ? handed_back(step, arguments, stack, recorded) : std::vector<std::optional<uint32_t>>();
    for (size_t i = 0; i < places.size(); ++i) {
      layouts[i].argument = places[i];
      aliases |= places[i].has_value();
    }
    if (aliases && !std::exchange(step.aliases, true)) tree_->forget_compiled();
    // With sizes of one kind there is nothing to predict yet: most traces are thrown away with a graph that has no
    // break.
    if (step.results.empty())
      for (const at::Tensor& tensor : given) step.first_arguments.push_back(ResultLayout::of(tensor));
    else
      check_prediction(step, arguments, layouts);
    step.add_layouts(now_.signature, std::move(layouts));
  }
  now_.advance(step);
}

TraceStep* TraceReplayer::find_step(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  for (const auto& step : now_.node->next) {
    now_.new_inputs.clear();
    if (&step->op.schema() != &op.schema() || step->arguments.size() != arguments.size()) continue;
    bool same = true;
    for (size_t i = 0; same && i < arguments.size(); ++i) same = now_.matches(step->arguments[i], arguments[i], *step);
    if (same) return step.get();
  }
  now_.new_inputs.clear();
  return nullptr;
}

TraceStep* TraceReplayer::add_step(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  if (tree_->num_steps >= TraceTree::max_steps ||
      now_.node->next.size() >= static_cast<size_t>(get_compiler_config().recompile_limit)) {
    full_ = true;
    return nullptr;
  }
  auto step = std::make_unique<TraceStep>(op);
  now_.new_inputs.clear();
  for (const c10::IValue& argument : arguments) step->arguments.push_back(now_.describe(argument, *step));
  step->first_value = static_cast<uint32_t>(now_.values.size());
  step->num_results = static_cast<uint32_t>(op.schema().returns().size());
  step->aliases = traits_of(op).aliases;
  const Recorder* const recorder = Recorder::current();
  step->source = recorder ? recorder->line() : ScriptScope::line();
  ++tree_->num_steps;
  now_.node->next.push_back(std::move(step));
  return now_.node->next.back().get();
}

uint64_t TraceReplayer::add_signature(TraceStep& step) {
  if (step.signatures.size() >= TraceTree::max_signatures) step.signatures.erase(step.signatures.begin());
  step.signatures.push_back({now_.signature, extents_of(now_.new_inputs), tree_->next_signature++});
  return step.signatures.back().id;
}

void TraceReplayer::note_use(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (const auto found = now_.value_ids.find(impl); found != now_.value_ids.end()) {
    now_.last_uses[found->second] = now_.path.size();
  } else if (const auto closed = closed_values_.find(impl); closed != closed_values_.end()) {
    TraceSegment& segment = *closed_[closed->second.closed].segment;
    if (!segment.wanted[closed->second.value]) segment.ready = false;
    segment.wanted[closed->second.value] = true;
  }
}

void TraceReplayer::enter_protected() {
  end_segment();
  ++protected_depth_;
}

void materialize_if_lazy(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  if (auto* lazy = LazyTensor::count() ? LazyTensor::unfilled(tensor) : nullptr) lazy->read();
  if (TraceReplayer* replayer = TraceReplayer::current()) replayer->note_use(tensor);
}

void end_segment() {
  if (TraceReplayer* replayer = TraceReplayer::current()) replayer->end_segment();
}

}  // namespace triage::capture
