#include "runtime/capture/recording/recorder.h"

#include "runtime/capture/compiled.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/flags_rule.h"
#include "runtime/capture/rules/params.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/capture/sizes/integer_division.h"
#include "runtime/capture/tensors/ordered_writes.h"
#include "runtime/capture/tensors/safe_gradients.h"
#include "runtime/compat/autocast.h"
#include "runtime/flags/composites/known_rows.h"
#include "runtime/given/host_call.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/functional.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/assert.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/operators/semantics.h"

#include <c10/core/GradMode.h>
#include <triage/compiler_config.h>

namespace triage::capture {

using operators::Semantics, operators::semantics_of;

thread_local constinit CaptureContext context{};

namespace {

[[maybe_unused]] bool is_of(const at::Tensor& tensor, const graph::TensorMeta& meta) {
  return tensor.scalar_type() == meta.dtype && tensor.sizes() == meta.sizes && tensor.device() == meta.device;
}

/// Whether an operator that moves data moves flags.
template <typename IsFlags>
bool moves_flags(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const IsFlags& is_flags) {
  if (!semantics_of(op).has(Semantics::moves_records)) return false;
  bool moves = false;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (gives_words(op, i)) for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { moves |= is_flags(tensor); });
  return moves;
}

[[noreturn]] void throw_flags_arithmetic(const c10::OperatorHandle& op, const Source& where) {
  throw Error("`" + base_name(op) +
                  "` does arithmetic on a flags tensor; flags are packed records, not numbers. Use err.* to query them "
                  "(err.has_code, err.count_errors, ...), and push or err.merge to change them.",
              where);
}

void refuse_flags_arithmetic(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                             const Recorder& recorder, WordOrigins& words_of) {
  if (may_take_flags(op)) return;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    const graph::Value* value = recorder.tensors().find(tensor);
    if (value && words_of.holds_flags(*value)) throw_flags_arithmetic(op, recorder.line());
  });
}

/// Words that move into another dtype are other words.
void refuse_converted_words(const graph::Node& node, WordOrigins& words_of, const Source& where) {
  if (!is_aten(node.op) || !semantics_of(node.op).has(Semantics::moves)) return;
  std::optional<at::ScalarType> words;
  for (const graph::Value* value : words_given_to(node))
    if (value->meta && words_of.holds_flags(*value)) words = value->meta->dtype;
  for (const graph::Value* result : node.results)
    if (words && result->meta && result->meta->dtype != *words && words_of.holds_flags(*result))
      throw_flags_arithmetic(node.op, where);
}

/// LibTorch raises the versions of what its own operators write to, and not of what those of other libraries do.
bool writes_unseen(const c10::OperatorHandle& op) {
  return graph::writes(op) && op.operator_name().name.rfind("aten::", 0) != 0;
}

void log_node(const graph::Node& node, const Source& where) {
  const UserCode* const script = ScriptScope::current();
  const std::string place = where.file.empty() ? "" : where.file + ":" + std::to_string(where.line) + ": ";
  messages::log_artefact(messages::Artefact::capture, LogLevel::debug, place + graph::print(node),
                         script && script->text ? script->text() : std::string());
}

/// `of_branch`: values that require grad in one branch of the batch and not in the other.
bool branch_decides_grad(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                         const TracedTensors& tensors, const std::unordered_set<const graph::Value*>& of_branch) {
  const bool of_two = selects_for_batch(op, arguments);
  if (!of_two && of_branch.empty()) return false;
  if (!c10::GradMode::is_enabled() || semantics_of(op).has(Semantics::no_gradient)) return false;
  size_t always = 0, decided = 0;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (of_branch.count(tensors.find(tensor)))
      ++decided;
    else
      always += tensor.requires_grad();
  });
  return of_two ? decided > 0 || always == 1 : decided > 0 && always == 0;
}

}  // namespace

void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  guard_replaced_elements(op, stack);
  if (!divide_integers(op, stack) && !scatter_in_order(op, stack)) call_plainly(op, stack);
  if (flags::KnownRows::any() && writes_unseen(op)) flags::KnownRows::forget();
}

namespace {

/// On synthetic inputs, notes where errors may come of the values: an operator that does not take them, or tells the
/// script of them.
template <typename Run>
void run_noting_refusals(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const Run& run) {
  SyntheticInputs* synthetic = SyntheticInputs::current();
  if (!synthetic) return run();
  const std::vector<c10::IValue> arguments = arguments_of(op, stack);
  const bool judges = judges_values(op, arguments);
  try {
    run();
    if (gives_dynamic_shape(op, arguments)) synthetic->refuse_values();
    for (const c10::IValue& result : stack)
      if (!result.isTensor() && !result.isTensorList()) synthetic->refuse_values();
  } catch (const triage::Error&) {
    throw;
  } catch (const c10::LinAlgError&) {
    synthetic->refuse_values();
    throw;
  } catch (const std::exception&) {
    if (judges) synthetic->refuse_values();
    throw;
  }
}

}  // namespace

void call_plainly(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (TraceReplayer* replayer = TraceReplayer::current(); replayer && !Recorder::current() && graph::writes(op))
    replayer->before_write(op, stack);  // what it writes to must be there, to be told from what it may not write to
  if (ProtectInputs::active()) ProtectInputs::check(op, stack);
  BranchGuard* branch = BranchGuard::current();
  const bool selects = branch && branch->selects();
  if (selects) branch->refuse_writes(op, stack);
  if (branch) branch->guard_arguments(op, stack);
  FlagsTracker* tracker = context.flags_tracker;
  const bool moved = tracker && tracker->any_flags(op, stack);
  Recorder* recorder = Recorder::current();
  TraceReplayer* replayer = TraceReplayer::current();
  const bool observed = recorder && replayer;
  std::vector<c10::IValue> arguments;
  if (tracker || observed || selects) arguments = arguments_of(op, stack);
  run_noting_refusals(op, stack, [&] {
    if (recorder)
      recorder->record(op, stack);
    else if (replayer)
      replayer->call(op, stack);
    else
      op.callBoxed(&stack);
  });
  if (observed && replayer == TraceReplayer::current()) {
    read_params(op, arguments);
    replayer->observe(op, arguments, stack);
  }
  if (tracker) {
    tracker->observe(op, moved, stack);
    tracker->note_storages(arguments, stack, op.schema().returns().size());
  }
  if (branch) branch->note_results(op, arguments, stack);
  if (selects) branch->note_storages(op, arguments, stack);
}

FlagsTracker::FlagsTracker() : previous_(context.flags_tracker) { context.flags_tracker = this; }
FlagsTracker::~FlagsTracker() { context.flags_tracker = previous_; }
FlagsTracker* FlagsTracker::current() noexcept { return context.flags_tracker; }

bool FlagsTracker::any_flags(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
  return !flags_.empty() &&
         moves_flags(op, arguments_of(op, stack), [&](const at::Tensor& tensor) { return is_flags(tensor); });
}

Recorder* Recorder::current() noexcept { return context.recorder; }
Recorder* Recorder::replace_current(Recorder* recorder) noexcept { return std::exchange(context.recorder, recorder); }

Recorder::Recorder(std::string name, bool strict, std::function<Source()> where)
    : graph_(std::move(name)),
      where_(std::move(where)),
      dynamic_shapes_(get_compiler_config().capture_dynamic_output_shape_ops),
      strict_(strict),
      grad_mode_(c10::GradMode::is_enabled()),
      autocast_(compat::autocast_state()),
      previous_(context.recorder) {
  called_from_ = ScriptScope::current();
  context.recorder = this;
}

Recorder::~Recorder() { context.recorder = previous_; }

at::Tensor Recorder::add_input(const std::string& name, graph::InputKind kind, const at::Tensor& tensor) {
  const at::Tensor traced = tensors_.add_input(name, kind, tensor);
  sizes_.origins.add_input(traced, tensors_.inputs().size() - 1);
  return traced;
}

void Recorder::note_error(const std::string& message) {
  if (caught_error_) return;
  const UserCode* script = ScriptScope::current();
  caught_error_ =
      GraphBreak{Break::caught_error, "the script caught an error that other inputs may not raise: " + message,
                 "Check the input first, with tensorcheck, a mask or a flag.", line_now(),
                 script && script->stack ? script->stack() : std::string()};
}

void Recorder::check_caught_errors() {
  if (!broken_) broken_ = caught_error_;
}

void Recorder::graph_break(const GraphBreak& graph_break) {
  if (!broken_) broken_ = graph_break;
  if (strict_) throw broken_->error();
  context.recorder = previous_;  // from here on the script runs without being recorded
}

/// Nowhere while no line of the script runs: the declared types of inputs are no line.
Source Recorder::guard_line() const {
  return !where_ && ScriptScope::current() == called_from_ ? Source{} : line_now();
}

Source Recorder::line_now() const { return where_ ? where_() : ScriptScope::line(); }

const Source& Recorder::line() const { return line_ ? *line_ : line_.emplace(line_now()); }

void Recorder::enter_branch(bool of_batch) {
  ++branch_depth_;
  batch_branches_ += of_batch;
}
void Recorder::leave_branch() { --branch_depth_; }

void Recorder::record(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  line_.reset();
  std::vector<c10::IValue> arguments = arguments_of(op, stack);
  refuse_flags_arithmetic(op, arguments, *this, word_origins_);
  bool with_params = read_params(op, stack);
  if (with_params) sizes_.note_param(arguments);
  protected_calls_ |= protected_depth_ > 0;
  if (with_params && graph::writes(op)) {
    // `y:fill_(n)` is `y:copy_(y:fill(n))`: what writes in place has no place for a number that varies.
    const auto twin = graph::functional_twin(op);
    torch::jit::Stack made = arguments;
    if (twin) record(*twin, made);
    const bool fits = twin && arguments[0].isTensor() &&
                      at::canCast(made.back().toTensor().scalar_type(), arguments[0].toTensor().scalar_type());
    if (fits) {
      static const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
      torch::jit::Stack write{arguments[0], made.back(), false};
      record(copy, write);
      stack.erase(stack.end() - static_cast<std::ptrdiff_t>(arguments.size()), stack.end());
      stack.push_back(write.back());
      return;
    }
    capture::graph_break(Break::unsupported, "`" + base_name(op) + "` takes a param as a number and writes in place",
                         "Use the form without the underscore.");
    return tensors_.call_with_originals(op, stack);
  }
  if (const auto why = refused(op, stack)) {  // not strict: the break is noted, the script goes on eagerly
    capture::graph_break(why->kind, why->what, why->hint);
    return tensors_.call_with_originals(op, stack);
  }
  if (graph::writes(op)) return record_write(op, stack);
  if (graph::is_random(op)) OutsideBranches::forbid_restart();
  if (casts()) return record_under_autocast(op, arguments, stack);
  op.callBoxed(&stack);
  sizes_.note_shape(op, arguments);
  append(op, arguments, stack);
}

namespace {

/// What a graph holds at most, of operations and of constants each; so long may a list of tensors be, too. Passes and
/// backends work on a graph when the script's own budgets are not looked at.
constexpr size_t most_in_graph = 10'000;

bool has_long_list(const std::vector<c10::IValue>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& argument) {
    return argument.isTensorList() && argument.toTensorList().size() > most_in_graph;
  });
}

}  // namespace

/// Why the call cannot be captured here.
std::optional<Refusal> Recorder::refused(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
  const std::vector<c10::IValue> arguments = arguments_of(op, stack);
  const bool full = graph_.nodes().size() >= most_in_graph || graph_.constants().size() >= most_in_graph;
  if ((full && !graph::is_number_op(op)) || has_long_list(arguments))  // who reads numbers relies on the recorder
    return Refusal{Break::unsupported,
                   "a graph holds at most " + std::to_string(most_in_graph) +
                       " operations and as many constants, and lists of as many tensors",
                   "Use operations on whole tensors instead of loops over their elements."};
  if (auto refused = refusal(op, arguments, dynamic_shapes_)) return refused;
  const bool other_grad_mode = c10::GradMode::is_enabled() != grad_mode_;
  if (given::is_host_call(op) && (casts() || other_grad_mode))  // it asks for them itself
    return Refusal{Break::mode,
                   "`" + given::callee_name(arguments[1]) +
                       "` of the host runs in another autocast or grad mode than the captured code",
                   "Call it outside of the scope that changes the mode."};
  if (branch_depth_ > 0 && graph::is_random(op))
    return Refusal{Break::random_in_branch,
                   "`" + base_name(op) + "` draws random numbers inside a branch of IF, and all branches run",
                   "Draw before the IF, and use the tensor inside."};
  if (autocast_ != 0 && casts())
    return Refusal{Break::mode,
                   "`" + base_name(op) + "` runs in another autocast mode than the captured code was called in",
                   "Call the captured code without autocast; scopes inside of it are part of the graph."};
  bool gradients = false;
  if (other_grad_mode && !semantics_of(op).has(Semantics::no_gradient))
    for_each_tensor(arguments, [&](const at::Tensor& tensor) { gradients |= may_require_grad(tensor); });
  if (!gradients) return std::nullopt;
  return Refusal{Break::mode, "`" + base_name(op) + "` runs in another grad mode than the captured code was called in",
                 "Use x:detach() in place of torch.no_grad inside of it."};
}

bool Recorder::may_require_grad(const at::Tensor& tensor) const {
  return tensor.requires_grad() || grad_of_branch_.count(tensors_.find(tensor)) != 0;
}

void Recorder::read_requires_grad(const at::Tensor& tensor) {
  if (grad_of_branch_.count(tensors_.find(tensor)))
    capture::graph_break(Break::autograd, "the script reads `requires_grad`, which depends on a condition of the batch",
                         "Read it from an input, or let both branches require grad.");
}

void Recorder::append(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                      torch::jit::Stack& results) {
  std::vector<graph::Operand> operands;
  operands.reserve(arguments.size());
  const auto& schema = op.schema();
  const bool ours = op.operator_name().name.rfind("triage::", 0) == 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    operands.push_back(tensors_.operand_of(arguments[i]));
    graph::Value* value = operands.back().value();
    if (!ours || !value || (schema.arguments()[i].name() != "flags" && schema.arguments()[i].name() != "other"))
      continue;
    if (const graph::Node* node = word_origins_.arithmetic_behind(*value))
      throw_flags_arithmetic(node->op, node->source);
    word_origins_.set_flags(graph_.edit(value));  // a flags tensor that came in as an input
  }
  const bool moved = moves_flags(op, arguments, [&](const at::Tensor& tensor) { return tensors_.is_flags(tensor); });

  size_t first = results.size() - schema.returns().size();
  std::vector<at::Tensor*> produced;
  std::vector<std::vector<at::Tensor>> lists(schema.returns().size());
  for (size_t i = first; i < results.size(); ++i) {
    if (results[i].isTensor()) {
      produced.push_back(&results[i].toTensor());
    } else if (results[i].isTensorList()) {
      auto& list = lists[i - first];
      list = results[i].toTensorVector();
      for (auto& tensor : list) produced.push_back(&tensor);
      if (!semantics_of(op).has(Semantics::fixed_count)) sizes_.hold_count(op, arguments);
    }
  }
  raises_ |= OnGraphBreak::raises();
  graph::Node* node = graph_.append(op, std::move(operands), produced.size(), line());
  if (branch_depth_ == 0)  // a branch may not be the one that the script takes
    if (Checks checks = checks_of(op, arguments, sizes_.numbers_vary(op, arguments), sizes_.origins);
        checks.of != Checks::Of::nothing)
      checks_.emplace(node, std::move(checks));
  const bool decided = branch_decides_grad(op, arguments, tensors_, grad_of_branch_);
  for (size_t i = 0; i < produced.size(); ++i) {
    at::Tensor& tensor = *produced[i];
    graph::Value* value = node->results[i];
    graph_.edit(value).is_flags = graph::returns_flags(op, i) || (moved && tensor.defined() && tensor.dim() == 2);
    if (!tensor.defined()) continue;
    tensors_.bind(tensor, value, branch_depth_);
    if (tensor.requires_grad()) differentiable_.insert(value);
    if (decided && (tensor.is_floating_point() || tensor.is_complex())) {
      grad_of_branch_.insert(value);
      differentiable_.insert(value);
    }
  }
  refuse_converted_words(*node, word_origins_, line());
  sizes_.origins.add_results(op, arguments, produced);
  sizes_.numbers.table.visit(*node);
  if (messages::logs(messages::Artefact::capture, messages::Detail::more) || messages::debug_folder_on())
    log_node(*node, line());
  for (size_t i = first; i < results.size(); ++i)
    if (!lists[i - first].empty()) results[i] = c10::IValue(lists[i - first]);
}

Recorder::CaptureResult Recorder::finish(const std::vector<at::Tensor>& outputs,
                                         const std::vector<std::string>& names) {
  std::vector<graph::Value*> values;
  values.reserve(outputs.size());
  for (const auto& output : outputs) {
    values.push_back(tensors_.value_of(output));
    TRIAGE_ASSERT(!output.defined() || !values.back()->meta || is_of(output, *values.back()->meta));
  }
  graph_.set_outputs(std::move(values), names);
  graph_.set_recorded_types();
  context.recorder = previous_;
  if (graph_.nodes().empty()) raises_ = OnGraphBreak::raises();
  return {sizes_.take(), std::move(graph_), std::move(notes_), std::move(differentiable_), std::move(held_params_),
          raises_};
}

}  // namespace triage::capture
