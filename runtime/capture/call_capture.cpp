// A call that is captured: the script runs once while a recorder looks on, and what was recorded becomes a graph with
// guards.
#include "runtime/backends/call_inputs.h"
#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/backends/shipped.h"
#include "runtime/backends/unmasked_rows.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/hidden_results.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/reports/compile_clock.h"
#include "runtime/capture/reports/logs.h"
#include "runtime/capture/reports/trace_events.h"
#include "runtime/capture/retire_if_written.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/sizes/marks.h"
#include "runtime/capture/tensors/variables.h"
#include "runtime/graph/passes/clean.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/assert.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/random/sequence.h"

#include <triage/config.h>
#include <triage/error.h>

#include <algorithm>
#include <utility>

namespace triage::capture {
namespace {

/// Sizes that are marked static are held fast; the ranges of the dynamic ones are guards.
std::vector<Guards::SizeRange> apply_marks(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> traced,
                                           Recorder& recorder) {
  std::vector<Guards::SizeRange> ranges;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const DimensionMark& mark : marks_of(inputs[i])) {
      if (mark.dynamic)
        ranges.push_back({i, mark.dim, mark.min, mark.max});
      else
        recorder.sizes().read_size(traced[i], mark.dim);
    }
  return ranges;
}

/// A size that is marked dynamic may not have been held fast.
void check_marks(at::ArrayRef<at::Tensor> inputs, const Recorder::CaptureResult& captured,
                 const std::vector<std::string>& names) {
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const DimensionMark& mark : marks_of(inputs[i]))
      for (const auto& size : captured.sizes)
        if (mark.dynamic && size.input == i && size.dim == mark.dim)
          throw Error(
              "dimension " + std::to_string(mark.dim) + " of tensor '" +
              (i < names.size() ? names[i] : "#" + std::to_string(i)) +
              "' is marked dynamic, but the script depends on its size, " + std::to_string(size.size) +
              " in this call: it loops over it, compares it with a constant, or uses it as a table key or as text. A "
              "graph would be valid for this size only. Use the size in tensor operations only, or do not mark it.");
}

/// The output has memory of a tensor that the graph keeps.
bool is_constant_of(const graph::Graph& graph, const at::Tensor& output) {
  const auto& constants = graph.constants();
  return std::any_of(constants.begin(), constants.end(),
                     [&](const graph::Constant& constant) { return share_memory(constant.tensor, output); });
}

/// The graph of the call answers it in place of the script. What the script drew, it draws from `numbers` on.
void answer_from(const CacheEntry& entry, at::ArrayRef<at::Tensor> taken, const Compiled::Deadline& deadline,
                 const at::Generator& numbers, std::vector<at::Tensor>& outputs) {
  const random::Replay same_numbers(entry.draws, numbers);
  std::vector<at::Tensor> answer;
  try {
    entry.executable->run(taken, answer, {deadline});
  } catch (const std::exception&) {  // of what the script caught, or of a branch that it did not take
    if ((!entry.script_handles_errors && !entry.failed) || deadline_passed(deadline)) throw;
    return;
  }
  outputs = std::move(answer);
}

/// Of all that the script returns; none where its outputs have no names.
std::vector<std::string> output_names(const Signature& signature) {
  std::vector<std::string> names = signature.outputs;
  if (names.empty()) return names;
  for (const auto& state : signature.state) names.push_back("state." + state.name);
  for (std::string& name : hidden_names(signature)) names.push_back(std::move(name));
  return names;
}

}  // namespace

/// For one call. What the members set for the thread holds until the capture has ended, in the order in which they
/// stand here.
class Compiled::CallCapture {
 public:
  CallCapture(Compiled& compiled, const CompiledCall& call);
  /// False where the capture was given up.
  bool run(std::vector<at::Tensor>& outputs);

 private:
  at::ArrayRef<at::Tensor> inputs() const { return all_.slice(0, num_inputs_); }
  void add_inputs();
  bool call_script();
  void end_at_break();
  void take_outputs(std::vector<at::Tensor>& outputs);
  Recorder::CaptureResult finish(std::vector<at::Tensor>& outputs);
  std::unique_ptr<CacheEntry> make_entry(graph::Graph&& graph);
  void compile(CacheEntry& entry, bool raises, std::vector<at::Tensor>& outputs);
  std::unique_ptr<Executable> compile(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                      bool raises) const;
  void take_guards(Recorder::CaptureResult& captured, CacheEntry& entry);

  Compiled& compiled_;
  Script& script_;
  const Options& options_;
  const at::ArrayRef<at::Tensor> all_;
  const size_t num_inputs_;
  const Deadline deadline_;
  const LentMemory lent_{!options_.protect_inputs, !options_.protect_inputs};  // inputs and outputs are the host's
  const CompileClock::Capturing timing_;
  const messages::DebugScope debug_scope_;
  std::optional<messages::CompilationStep> step_;
  const std::vector<std::string> names_;
  const uint64_t epoch_ = config_epoch();
  Guards guards_;
  std::optional<random::DrawFrom> draws_;  // behind the guards, which look at the state of the thread
  at::Generator numbers_;                  // as it was before the script drew
  const OutsideBranches outside_;
  const NotCaptured nothing_{false};
  Recorder recorder_;
  std::vector<at::Tensor> traced_;
  std::optional<KindReads> reads_;
  std::optional<RetireIfWritten> retire_;  // unless all of it is recorded
  uint64_t writes_ = 0;
  std::optional<TraceReplayer> replayer_;
  std::vector<at::Tensor> results_;
};

bool Compiled::capture(const CompiledCall& call) {
  recompiles_.report(call.all, Stance::default_stance);
  return CallCapture(*this, call).run(call.outputs);
}

Compiled::CallCapture::CallCapture(Compiled& compiled, const CompiledCall& call)
    : compiled_(compiled),
      script_(*compiled.script_),
      options_(compiled.options_),
      all_(call.all),
      num_inputs_(call.inputs().size()),
      deadline_(call.deadline),
      timing_(*options_.clock),
      debug_scope_(script_.name()),
      names_(input_names(script_.signature())),
      guards_(Guards::of(call.all, call.num_params)),
      recorder_(script_.name(), options_.fullgraph) {
  trace_capture(script_, options_.backend);
  step_.emplace(1, "capture", script_.name(), "capture of " + named(script_.name(), script_.definition().where));
  if (options_.random) draws_.emplace(random::or_aside(options_.random.get()));
  numbers_ = random::copy_of_current();
}

bool Compiled::CallCapture::run(std::vector<at::Tensor>& outputs) {
  add_inputs();
  if (!call_script()) return false;
  take_outputs(outputs);
  if (recorder_.broken()) return true;
  retire_->dismiss();
  Recorder::CaptureResult captured = finish(outputs);
  const bool raises = captured.raises;
  auto entry = make_entry(std::move(captured.graph));
  compile(*entry, raises, outputs);
  take_guards(captured, *entry);
  if (config_epoch() != epoch_) return true;  // no guard could say what it was made for
  TRIAGE_ASSERT(entry->guards.hold(all_, script_.variables()));
  options_.graphs_made->fetch_add(1, std::memory_order_relaxed);
  compiled_.cache_.add(std::move(entry));
  return true;
}

/// State, and a param that is a list or a tensor, are inputs like others.
void Compiled::CallCapture::add_inputs() {
  for (size_t i = 0; i < all_.size(); ++i) {
    const auto kind =
        i >= num_inputs_ && is_wrapped_number(all_[i]) ? graph::InputKind::param : graph::InputKind::tensor;
    traced_.push_back(recorder_.add_input(i < names_.size() ? names_[i] : "in" + std::to_string(i), kind, all_[i]));
  }
  for (size_t i = 0; i < num_inputs_; ++i)
    traced_[i] = traced_[guards_.same_as[i]];  // one tensor, which the script may notice
  guards_.ranges = apply_marks(inputs(), traced_, recorder_);
  if (!options_.dynamic)
    for (size_t i = 0; i < num_inputs_; ++i)
      for (int64_t dim = 0; dim < traced_[i].dim(); ++dim) recorder_.sizes().read_size(traced_[i], dim);
}

/// False where the script was left before its end.
bool Compiled::CallCapture::call_script() {
  const at::ArrayRef<at::Tensor> given(traced_), of_call = given.slice(0, num_inputs_);
  reads_.emplace(traced_);
  retire_.emplace(script_, compiled_.cache_);
  writes_ = script_.writes();
  recorder_.sizes().rely_on(compiled_.check_signature(of_call));
  if (!options_.fullgraph)
    replayer_.emplace(options_.traces, of_call, given.slice(num_inputs_, script_.signature().params.size()),
                      [this] { return script_.stores(); });
  try {
    std::optional<ProtectInputs> protect;
    if (options_.protect_inputs) protect.emplace(all_, &compiled_.host_memory_);
    results_ = script_.call(of_call, given.slice(num_inputs_), deadline_);
  } catch (const GraphBreakError&) {
    throw;
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception&) {
    if (options_.fullgraph && recorder_.broken())
      throw recorder_.broken()->error();  // the script turned the break into another error
    if (!OutsideBranches::aborted()) throw;
    compiled_.note_broken(*recorder_.broken(), replayer_ ? &*replayer_ : nullptr);
    step_->note("given up for a " + recorder_.broken()->brief());
    return false;
  }
  recorder_.check_caught_errors();
  if (recorder_.broken()) end_at_break();
  return true;
}

/// The call was followed to its end for its segments.
void Compiled::CallCapture::end_at_break() {
  const GraphBreak& broken = *recorder_.broken();
  if (options_.fullgraph) throw broken.error();
  if (replayer_->raised()) throw replayer_->raised()->error();
  compiled_.note_broken(broken, &*replayer_);
  step_->note(broken.brief());
  step_.reset();
  compiled_.finish_script(&*replayer_, results_);
}

void Compiled::CallCapture::take_outputs(std::vector<at::Tensor>& outputs) {
  outputs = results_;
  for (auto& output : outputs)  // the script's own tensors, and the host's where they are returned untouched
    if (const at::Tensor original = recorder_.tensors().original(output); original.defined()) output = original;
  if (options_.protect_inputs) compiled_.host_memory_.take_over(inputs(), outputs, script_.writes() != writes_);
  compiled_.note_answer(inputs(), outputs);
}

/// The graph as it is compiled.
Recorder::CaptureResult Compiled::CallCapture::finish(std::vector<at::Tensor>& outputs) {
  const triage::Deadline bound(triage::Deadline::in(options_.compile_seconds));
  recorder_.hold_unused_calls(results_);
  Recorder::CaptureResult captured = recorder_.finish(results_, output_names(script_.signature()));
  if (options_.protect_inputs)
    copy_lent(outputs, [&](const at::Tensor& output) { return is_constant_of(captured.graph, output); });
  check_marks(inputs(), captured, names_);
  if (messages::wants_debug_file(messages::DebugFile::graph_readable))
    messages::write_debug_file(messages::DebugFile::graph_readable, graph::print(captured.graph));
  graph::clean(captured.graph, captured.differentiable, folds_constants(options_.backend));
  return captured;
}

std::unique_ptr<CacheEntry> Compiled::CallCapture::make_entry(graph::Graph&& graph) {
  auto entry = std::make_unique<CacheEntry>();
  for (const graph::Value* output : graph.outputs()) entry->flags_outputs.push_back(output->is_flags);
  entry->flags_outputs.resize(entry->flags_outputs.size() - behind_outputs(script_.signature()));
  guards_.add_variables(graph, script_.variables());
  for (const HostTensor& given : options_.host_tensors) guards_.add_host_tensor(given.tensor);
  entry->lifted = lift_variables(graph, script_);
  entry->graph = std::make_shared<const graph::Graph>(std::move(graph));
  entry->draws = std::any_of(entry->graph->nodes().begin(), entry->graph->nodes().end(),
                             [](const auto& node) { return graph::is_random(node->op); });
  entry->script_handles_errors = recorder_.has_protected_calls();
  if (recorder_.batch_branches() > 0) entry->failed = std::make_unique<FailedSizes>(all_);
  entry->shape = shape_of(inputs());
  return entry;
}

/// The graph answers the call in place of the script where the backend wants that.
void Compiled::CallCapture::compile(CacheEntry& entry, bool raises, std::vector<at::Tensor>& outputs) {
  const CacheEntry::Tensors taken = entry.taken(all_, script_.variables());
  const std::vector<at::Tensor> examples(taken.begin(), taken.end());
  step_->note(std::to_string(entry.graph->nodes().size()) + " operations");
  step_.reset();
  log_graph(*entry.graph, examples, options_.backend);
  const CallInputs of_call(std::vector<bool>(num_inputs_, true));
  entry.executable = compile(*entry.graph, examples, raises);
  if (!entry.executable) {  // no reason to fail the call: the interpreter can run every graph
    entry.executable = compile_outputs_eager(*entry.graph, compile_eager, lent_);
    entry.fell_back = !OnGraphBreak::raises();
  }
  if (options_.masked_rows == MaskedRows::require) {
    entry.executable->require_masked_rows();
    if (const auto why = entry.executable->unmasked_rows(taken)) refuse_unmasked_rows("'" + script_.name() + "'", *why);
  }
  if (options_.masked_rows_of_graph) options_.masked_rows_of_graph(entry.executable->unmasked_rows(taken));
  if (entry.executable->answers_capture()) answer_from(entry, taken, deadline_, numbers_, outputs);
}

void Compiled::CallCapture::take_guards(Recorder::CaptureResult& captured, CacheEntry& entry) {
  for (auto& size : captured.sizes) {
    guards_.sizes.push_back({size.input, size.dim, size.size});
    guards_.size_lines.push_back(std::move(size.where));
  }
  for (auto& same : captured.same_sizes) {
    guards_.same_sizes.push_back({same.input, same.dim, same.other, same.other_dim});
    guards_.same_size_lines.push_back(std::move(same.where));
  }
  guards_.params = std::move(captured.held_params);
  guards_.conditions = std::move(captured.conditions);
  guards_.condition_lines = std::move(captured.condition_lines);
  entry.guards = std::move(guards_);
  entry.guards.kind_lines = reads_->take();
  log_guards(entry.graph->name(), [&] { return compiled_.guards_text(entry.guards, names_); });
}

/// Null where the backend cannot, and that is no error (`raises`).
std::unique_ptr<Executable> Compiled::CallCapture::compile(const graph::Graph& graph,
                                                           const std::vector<at::Tensor>& examples, bool raises) const {
  const Backend& backend = compiled_.backend_;
  try {
    auto executable = compiled_.by_interpreter_ ? compile_outputs_eager(graph, backend, lent_)
                                                : compile_outputs(graph, examples, backend, lent_);
    if (options_.fail_on_backend_error) executable->never_fall_back();
    return executable;
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception& error) {
    trace_failure(script_, options_.backend, messages::message_of(error));
    if (options_.fullgraph || options_.fail_on_backend_error || raises)
      throw Error("'" + script_.name() + "': the backend cannot compile graph `" + graph.name() +
                  "`: " + messages::message_with_hint(error));
    if (options_.warn)
      options_.warn(named(script_.name(), script_.definition().where) +
                    " runs with the eager backend, because its own backend cannot compile graph `" + graph.name() +
                    "`: " + messages::message_with_hint(error));
  }
  return nullptr;
}

/// What the declared types of the inputs ask of their sizes. Flags last: where they disagree with data, they are
/// malformed.
std::vector<SizeFact> Compiled::check_signature(at::ArrayRef<at::Tensor> inputs) {
  const Signature& signature = script_->signature();
  TensorMatcher matcher("policy '" + script_->name() + "'");
  for (const bool flags : {false, true}) {
    for (size_t i = 0; i < signature.input_types.size() && i < inputs.size(); ++i) {
      const auto& type = signature.input_types[i];
      if (!type || type->flags != flags) continue;
      auto failure = matcher.match(inputs[i], *type, {Subject::Role::input, signature.inputs[i]});
      if (!failure) continue;
      if (failure->kind != ValidationKind::validation || get_config().strict_validation)
        throw_validation(std::move(*failure));
      if (!std::exchange(flags_reported_, true) && options_.warn)
        options_.warn(failure->message + " (with strict_validation this is an error)");
    }
  }
  return matcher.facts();
}

}  // namespace triage::capture
