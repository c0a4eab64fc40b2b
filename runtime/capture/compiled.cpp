#include "runtime/capture/compiled.h"
#include "runtime/capture/reports/compile_observer.h"

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/backends/repro.h"
#include "runtime/capture/cache/entry_index.h"
#include "runtime/capture/context.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/reports/compile_clock.h"
#include "runtime/capture/reports/logs.h"
#include "runtime/capture/reports/trace_events.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/sizes/marks.h"
#include "runtime/capture/tensors/synthetic_inputs.h"
#include "runtime/capture/tensors/variables.h"
#include "runtime/graph/passes/clean.h"
#include "runtime/messages/assert.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/profiling/profiler_spans.h"
#include "runtime/random/sequence.h"

#include <c10/core/InferenceMode.h>
#include <triage/compiler_config.h>
#include <triage/config.h>
#include <triage/error.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <utility>

// GCC 12's thread sanitizer does not see that a mutex was locked before a moment of the steady clock.
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define TRIAGE_TSAN_ACQUIRE(mutex) __tsan_acquire(mutex)
#define TRIAGE_TSAN_RELEASE(mutex) __tsan_release(mutex)
#else
#define TRIAGE_TSAN_ACQUIRE(mutex)
#define TRIAGE_TSAN_RELEASE(mutex)
#endif

namespace triage::capture {
std::vector<InputShape> shape_of(at::ArrayRef<at::Tensor> inputs) {
  std::vector<InputShape> shape;
  for (const auto& input : inputs)
    shape.push_back({input.sizes().vec(), input.scalar_type(), input.device(), input.requires_grad()});
  return shape;
}

namespace {

/// Sparse tensors and those of MKL-DNN have no strides, by which tensors that share memory are told.
std::optional<size_t> find_without_strides(at::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].layout() != c10::kStrided) return i;
  return std::nullopt;
}

std::string layout_name(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.layout();
  return text.str();
}

at::ArrayRef<at::Tensor> without_params(at::ArrayRef<at::Tensor> all, size_t num_params) {
  return all.slice(0, all.size() - num_params);
}

/// Sizes that are marked static are held fast; the ranges of the dynamic ones are guards.
std::vector<Guards::Range> apply_marks(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> traced,
                                       Recorder& recorder) {
  std::vector<Guards::Range> ranges;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const Mark& mark : marks_of(inputs[i])) {
      if (mark.dynamic)
        ranges.push_back({i, mark.dim, mark.min, mark.max});
      else
        recorder.read_size(traced[i], mark.dim);
    }
  return ranges;
}

/// A size that is marked dynamic may not have been held fast.
void check_marks(at::ArrayRef<at::Tensor> inputs, const Recorder::Result& captured,
                 const std::vector<std::string>& names) {
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const Mark& mark : marks_of(inputs[i]))
      for (const auto& size : captured.sizes)
        if (mark.dynamic && size.input == i && size.dim == mark.dim)
          throw Error(
              "dimension " + std::to_string(mark.dim) + " of tensor '" +
              (i < names.size() ? names[i] : "#" + std::to_string(i)) +
              "' is marked dynamic, but the script depends on its size, " + std::to_string(size.size) +
              " in this call: it loops over it, compares it with a constant, or uses it as a table key or as text. A "
              "graph would be valid for this size only. Use the size in tensor operations only, or do not mark it.");
}

constexpr int any_settings = -1;
/// The settings that decide what breaks a graph.
int settings_of(const CompilerConfig& config) {
  return (config.capture_dynamic_output_shape_ops ? 1 : 0) | (config.capture_scalar_outputs ? 2 : 0);
}

}  // namespace

void Compiled::replay_always() noexcept {
  broken_under_.store(any_settings, std::memory_order_relaxed);
  broken_.store(true, std::memory_order_relaxed);
}

Compiled::Compiled(std::shared_ptr<Script> script, Options options)
    : script_(std::move(script)),
      options_(std::move(options)),
      backend_(options_.compile_with ? options_.compile_with : find_backend(options_.backend, options_.compiler)),
      by_interpreter_(is_eager(backend_)) {
  if (options_.observer && !options_.compile_with) backend_ = observed(std::move(backend_), options_.observer);
  if (!options_.clock) options_.clock = std::make_shared<CompileClock>();
  backend_ = with_repro(options_.clock->timed(with_step(std::move(backend_), options_.backend)), options_.backend,
                        options_.compiler);
  if (!options_.graphs_made) options_.graphs_made = std::make_shared<std::atomic<int64_t>>(0);
  if (!options_.traces)
    options_.traces =
        std::make_shared<TraceTree>(script_->name(), backend_, BackendChoice{options_.backend, options_.compiler});
  if (!options_.warned) options_.warned = std::make_shared<Warned>();
  for (const HostTensor& given : options_.host_tensors) host_memory_.add(given.tensor, given.name);
}

Compiled::~Compiled() = default;

/// The script runs on one thread at a time, for the life of this object on this one. A thread that holds the lock already would
/// wait for itself (the script called a function of the host, which called the policy); a deadline may pass while others hold it.
class ScriptLock {
 public:
  ScriptLock(Compiled& compiled, const Compiled::Deadline& deadline)
      : compiled_(compiled),
        log_to_(compiled.options_.logger ? *compiled.options_.logger : messages::LogTo::current()),
        outer_(context.script_lock) {
    for (const ScriptLock* held = outer_; held; held = held->outer_)
      if (&held->compiled_ == &compiled)
        throw PolicyError("policy '" + compiled.script_->name() +
                          "' was called while it was running on the same thread (by a function of the host that it "
                          "calls?); a policy cannot call itself");
    if (!deadline)
      compiled.mutex_.lock();
    else if (!compiled.mutex_.try_lock_until(*deadline))
      throw WaitedError("the deadline of the call passed while another call was running the script of policy '" +
                        compiled.script_->name() + "'");
    context.script_lock = this;
    TRIAGE_TSAN_ACQUIRE(&compiled.mutex_);
  }
  ~ScriptLock() {
    context.script_lock = outer_;
    TRIAGE_TSAN_RELEASE(&compiled_.mutex_);
    compiled_.mutex_.unlock();
  }
  ScriptLock(const ScriptLock&) = delete;
  ScriptLock& operator=(const ScriptLock&) = delete;

 private:
  Compiled& compiled_;
  const messages::LogTo log_to_;
  const ScriptLock* outer_;
};

void Compiled::with_script(const std::function<void(Script&)>& look) {
  const ScriptLock lock(*this, std::nullopt);
  look(*script_);
}

/// What the graph takes: the inputs of the call, then those variables of the script that it reads.
Compiled::Tensors Compiled::with_lifted(const Entry& entry, at::ArrayRef<at::Tensor> all) const {
  Tensors tensors(all.begin(), all.end());
  const auto variables = script_->variables();
  for (const size_t number : entry.lifted) tensors.push_back(variables[number]);
  return tensors;
}

/// Null: those of whoever calls.
random::Sequence* Compiled::numbers() const { return random::or_aside(options_.random.get()); }

Ran Compiled::execute(const Entry& entry, at::ArrayRef<at::Tensor> all, size_t num_params, const CallContext& call,
                      std::vector<at::Tensor>& outputs) {
  const messages::ProfilerSpan span([&] { return span_name(entry); });
  std::optional<random::DrawFrom> draws;
  if (entry.draws && options_.random) draws.emplace(numbers());
  const auto run = [&](const CallContext& of_graph) {
    if (entry.lifted.empty())
      entry.executable->run(all, outputs, of_graph);
    else
      entry.executable->run(with_lifted(entry, all), outputs, of_graph);
  };
  const Ran by_graph{CallForm::graph, &entry};
  if (!entry.script_handles_errors && !entry.failed) return run(call), by_graph;
  // A script that handles errors reads the inputs again where the graph fails.
  const auto donated = entry.script_handles_errors ? at::ArrayRef<at::Tensor>() : call.donated;
  const random::GoBack go_back(entry.draws, all);
  bool over_limit = false;
  try {
    run({call.deadline, donated});
    return by_graph;
  } catch (const LimitError&) {  // of a branch that the script may not take, unless time is up
    if (!entry.failed || deadline_passed(call.deadline)) throw;
    over_limit = true;
  } catch (const std::exception&) {
  }
  outputs.clear();
  go_back();
  draws.reset();
  return run_again(entry, over_limit, all, num_params, call.deadline, outputs);
}

/// A call whose graph failed: the script answers it, as if it began now.
Ran Compiled::run_again(const Entry& failed, bool over_limit, at::ArrayRef<at::Tensor> all, size_t num_params,
                        const Deadline& deadline, std::vector<at::Tensor>& outputs) {
  const ScriptLock lock(*this, deadline);
  const bool may_capture =
      failed.failed && !over_limit && get_stance() == Stance::default_stance && !gave_up() && !limit_reached();
  const Ran ran =
      may_capture ? capture_or_run(all, num_params, deadline, outputs) : run_script(all, num_params, deadline, outputs);
  if (failed.failed) failed.failed->add(all);  // an error of the script is one of the graph, rightly
  return ran;
}

/// What a script writes to its own variables while nothing is recorded, no guard sees: graphs of before may be wrong then, and
/// are not used again, whether or not the script comes to its end.
class Compiled::RetireIfWritten {
 public:
  explicit RetireIfWritten(Compiled& compiled) : compiled_(compiled), before_(compiled.script_->writes()) {}
  ~RetireIfWritten() {
    if (armed_ && compiled_.script_->writes() != before_) compiled_.newest_.store(nullptr, std::memory_order_release);
  }
  void dismiss() noexcept { armed_ = false; }
  RetireIfWritten(const RetireIfWritten&) = delete;
  RetireIfWritten& operator=(const RetireIfWritten&) = delete;

 private:
  Compiled& compiled_;
  uint64_t before_;
  bool armed_ = true;
};

Ran Compiled::run(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params, const CallContext& call,
                  std::vector<at::Tensor>& outputs) {
  const bool plainly = get_stance() == Stance::force_eager;
  if (params.empty()) {
    if (plainly) return run_plainly(inputs, 0, call.deadline, outputs);
    if (const Entry* entry = find_for_call(inputs)) return execute(*entry, inputs, 0, call, outputs);
    return miss(inputs, 0, call.deadline, outputs);
  }
  c10::SmallVector<at::Tensor, 8> all(inputs.begin(), inputs.end());
  all.append(params.begin(), params.end());
  if (plainly) return run_plainly(all, params.size(), call.deadline, outputs);
  if (const Entry* entry = find_for_call(all)) return execute(*entry, all, params.size(), call, outputs);
  return miss(all, params.size(), call.deadline, outputs);
}

/// Where a graph that the backend cannot compile is an error, the call has to run into it.
const Entry* Compiled::find_for_call(at::ArrayRef<at::Tensor> all) const noexcept {
  const Entry* const entry = find(all);
  return entry && entry->fell_back && OnGraphBreak::raises() ? nullptr : entry;
}

bool Compiled::gave_up() const {
  if (!broken_.load(std::memory_order_relaxed)) return false;
  const int under = broken_under_.load(std::memory_order_relaxed);
  return under == any_settings || under == settings_of(get_compiler_config());
}

/// TRIAGE_DEBUG_FUNCTION names this function, or none.
bool Compiled::is_debugged() const {
  return messages::is_debugged(script_->name(), [this] {
    const Source where = script_->definition().where;
    return where.file + ":" + std::to_string(where.line);
  });
}

Ran Compiled::miss(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                   std::vector<at::Tensor>& outputs) {
  std::optional<ScriptLock> lock(std::in_place, *this, deadline);
  if (const Entry* entry = find_for_call(all)) {  // another thread captured it meanwhile
    lock.reset();
    return execute(*entry, all, num_params, {deadline}, outputs);
  }
  if (const auto odd = find_without_strides(all)) return run_without_strides(*odd, all, num_params, deadline, outputs);
  const bool first_call = !std::exchange(was_called_, true);
  switch (get_stance()) {
    case Stance::eager_on_recompile:
      report_recompile(all, Stance::eager_on_recompile);
      return run_script(all, num_params, deadline, outputs, /*follow=*/false);
    case Stance::fail_on_recompile: {
      const std::string reason = last_reason(all);
      throw Error("'" + script_->name() + "' has no graph for this call, and the stance is fail_on_recompile" +
                  (reason.empty() ? "; call it once before you set the stance" : ": " + reason));
    }
    case Stance::eager_then_compile:
      if (first_call) return run_script(all, num_params, deadline, outputs, /*follow=*/false);
      break;
    default:
      break;
  }
  if (!is_debugged()) return run_script(all, num_params, deadline, outputs, /*follow=*/false);
  if (gave_up()) return run_script(all, num_params, deadline, outputs);
  if (const auto limit = limit_reached()) return run_over_limit(*limit, all, num_params, deadline, outputs);
  return capture_or_run(all, num_params, deadline, outputs);
}

Ran Compiled::capture_or_run(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                             std::vector<at::Tensor>& outputs) {
  if (capture(all, num_params, deadline, outputs)) return {CallForm::capture};
  return run_script(all, num_params, deadline, outputs);
}

Ran Compiled::run_without_strides(size_t input, at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                                  std::vector<at::Tensor>& outputs) {
  const std::vector<std::string> names = input_names();
  const std::string name = input < names.size() ? names[input] : "#" + std::to_string(input);
  const Script::Definition definition = script_->definition();
  const GraphBreak odd{Break::other_argument, "tensor '" + name + "' has layout " + layout_name(all[input]),
                       "Pass a strided tensor: x:to_dense().", definition.where, definition.quoted};
  if (options_.fullgraph || OnGraphBreak::raises()) throw odd.error();
  note_break(odd);
  return run_script(all, num_params, deadline, outputs, /*follow=*/false);
}

/// Under the stance force_eager.
Ran Compiled::run_plainly(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                          std::vector<at::Tensor>& outputs) {
  const ScriptLock lock(*this, deadline);
  return run_script(all, num_params, deadline, outputs, /*follow=*/false);
}

Ran Compiled::run_script(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                         std::vector<at::Tensor>& outputs, bool follow) {
  const messages::ProfilerSpan span([this] { return "script " + script_->name(); });
  auto inputs = without_params(all, num_params);
  const NotCaptured nothing(false);  // whatever calls this, through the host
  std::optional<random::DrawFrom> draws;
  if (options_.random) draws.emplace(numbers());
  check_signature(inputs);
  std::optional<ProtectInputs> protect;
  if (options_.protect_inputs) protect.emplace(all, &host_memory_);
  const RetireIfWritten retire(*this);
  std::optional<TraceReplayer> replayer;
  std::optional<NotFollowed> not_followed;
  if (follow && has_breaks()) {
    if (is_worth_following())
      replayer.emplace(options_.traces, all.slice(inputs.size(), script_->signature().params.size()),
                       [this] { return script_->stores(); });
    else
      not_followed.emplace();
  }
  outputs = script_->call(inputs, all.slice(inputs.size()), deadline);
  if (replayer) finish_replay(*replayer, outputs);
  note_flags_outputs();
  note_answer(inputs, outputs);
  separate_outputs(inputs, outputs);
  return {replayer ? CallForm::segments : CallForm::script};
}

bool Compiled::capture(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                       std::vector<at::Tensor>& outputs) {
  report_recompile(all, Stance::default_stance);
  const CompileClock::Capturing timing(*options_.clock);
  const messages::DebugScope debug_scope(script_->name());
  trace_capture(*script_, options_.backend);
  std::optional<messages::Step> step(std::in_place, 1, "capture", script_->name(),
                                     "capture of " + named(script_->name(), script_->definition().where));
  std::vector<std::string> names = input_names();
  const uint64_t epoch = config_epoch();
  Guards guards = Guards::of(all, num_params);
  std::optional<random::DrawFrom> draws;  // behind the guards, which look at the state of the thread
  if (options_.random) draws.emplace(numbers());
  const OutsideBranches outside;
  const NotCaptured nothing(false);
  Recorder recorder(script_->name(), options_.fullgraph);
  std::vector<at::Tensor> traced;
  const size_t num_inputs = all.size() - num_params;
  const size_t end_of_params = num_inputs + script_->signature().params.size();  // state follows
  for (size_t i = 0; i < all.size(); ++i) {  // state, and a param that is a list or a tensor, are inputs like others
    const auto kind = i >= num_inputs && is_wrapped_number(all[i]) ? graph::InputKind::param : graph::InputKind::tensor;
    traced.push_back(recorder.add_input(i < names.size() ? names[i] : "in" + std::to_string(i), kind, all[i]));
  }
  for (size_t i = 0; i < num_inputs; ++i)
    traced[i] = traced[guards.same_as[i]];  // one tensor, which the script may notice
  at::ArrayRef<at::Tensor> given(traced);
  guards.ranges = apply_marks(without_params(all, num_params), given, recorder);
  if (!options_.dynamic)
    for (size_t i = 0; i < num_inputs; ++i)
      for (int64_t dim = 0; dim < traced[i].dim(); ++dim) recorder.read_size(traced[i], dim);
  KindReads reads(traced);
  RetireIfWritten retire(*this);  // unless all of it is recorded
  const uint64_t writes = script_->writes();
  recorder.rely_on(check_signature(given.slice(0, num_inputs)));
  std::optional<TraceReplayer> replayer;
  if (!options_.fullgraph)
    replayer.emplace(options_.traces, given.slice(num_inputs, end_of_params - num_inputs),
                     [this] { return script_->stores(); });
  std::vector<at::Tensor> results;
  try {
    std::optional<ProtectInputs> protect;
    if (options_.protect_inputs) protect.emplace(all, &host_memory_);
    results = script_->call(given.slice(0, num_inputs), given.slice(num_inputs), deadline);
  } catch (const GraphBreakError&) {
    throw;
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception&) {
    if (options_.fullgraph && recorder.broken())
      throw recorder.broken()->error();  // the script turned the break into another error
    if (!OutsideBranches::aborted()) throw;
    note_broken(*recorder.broken(), replayer ? &*replayer : nullptr);
    step->note("given up for a " + recorder.broken()->brief());
    return false;
  }
  note_flags_outputs();
  recorder.check_caught_errors();
  if (recorder.broken()) {
    if (options_.fullgraph) throw recorder.broken()->error();
    if (replayer->raised()) throw replayer->raised()->error();
    note_broken(*recorder.broken(), replayer ? &*replayer : nullptr);
    step->note(recorder.broken()->brief());
    step.reset();
    finish_replay(*replayer, results);
  }

  outputs = results;
  for (auto& output : outputs)  // the script's own tensors, and the host's where they are returned untouched
    if (const at::Tensor original = recorder.original(output); original.defined()) output = original;
  separate_outputs(without_params(all, num_params), outputs, script_->writes() != writes);
  note_answer(without_params(all, num_params), outputs);
  if (recorder.broken()) return true;
  retire.dismiss();

  auto entry = std::make_unique<Entry>();
  recorder.hold_unused_calls(results);
  Recorder::Result captured = recorder.finish(results, output_names());
  if (options_.protect_inputs)
    copy_lent(outputs, [&](const at::Tensor& output) {
      const auto& constants = captured.graph.constants();
      return std::any_of(constants.begin(), constants.end(), [&](const graph::Constant& constant) {
        return constant.tensor.has_storage() && output.is_alias_of(constant.tensor);
      });
    });
  check_marks(without_params(all, num_params), captured, names);
  if (messages::wants_debug_file(messages::DebugFile::graph_readable))
    messages::write_debug_file(messages::DebugFile::graph_readable, graph::print(captured.graph));
  graph::clean(captured.graph, captured.differentiable);
  for (const graph::Value* output : captured.graph.outputs()) entry->flags_outputs.push_back(output->is_flags);
  entry->flags_outputs.resize(entry->flags_outputs.size() - script_->signature().state.size());
  guards.add_variables(captured.graph, script_->variables());
  entry->lifted = lift_variables(captured.graph, *script_);
  const Tensors taken = with_lifted(*entry, all);
  const std::vector<at::Tensor> examples(taken.begin(), taken.end());
  entry->graph = std::make_shared<const graph::Graph>(std::move(captured.graph));
  step->note(std::to_string(entry->graph->nodes().size()) + " operations");
  step.reset();
  log_graph(*entry->graph, examples, {options_.backend, options_.compiler});
  entry->executable = compile(*entry->graph, examples, captured.raises);
  if (!entry->executable) {  // no reason to fail the call: the interpreter can run every graph
    entry->executable = compile_outputs_eager(*entry->graph, compile_eager, lent_memory());
    entry->fell_back = !OnGraphBreak::raises();
  }
  entry->script_handles_errors = recorder.has_protected_calls();
  if (recorder.has_batch_branches()) entry->failed = std::make_unique<FailedSizes>(all);
  if (entry->executable->answers_capture()) answer_from(*entry, taken, deadline, outputs);
  entry->draws = std::any_of(entry->graph->nodes().begin(), entry->graph->nodes().end(),
                             [](const auto& node) { return graph::is_random(node->op); });
  for (auto& size : captured.sizes) {
    guards.sizes.push_back({size.input, size.dim, size.size});
    guards.size_lines.push_back(std::move(size.where));
  }
  for (auto& same : captured.same_sizes) {
    guards.same_sizes.push_back({same.input, same.dim, same.other, same.other_dim});
    guards.same_size_lines.push_back(std::move(same.where));
  }
  guards.conditions = std::move(captured.conditions);
  guards.condition_lines = std::move(captured.condition_lines);
  entry->guards = std::move(guards);
  entry->guards.kind_lines = reads.take();
  log_guards(entry->graph->name(), [&] { return guards_text(entry->guards, names); });
  entry->shape = shape_of(without_params(all, num_params));
  if (config_epoch() != epoch) return true;  // no guard could say what it was made for
  TRIAGE_ASSERT(entry->guards.hold(all, script_->variables()));
  add_entry(std::move(entry));
  return true;
}

/// The graph of the call answers it in place of the script.
void Compiled::answer_from(const Entry& entry, at::ArrayRef<at::Tensor> taken, const Deadline& deadline,
                           std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> answer;
  try {
    entry.executable->run(taken, answer, {deadline});
  } catch (const std::exception&) {  // of what the script caught, or of a branch that it did not take
    if ((!entry.script_handles_errors && !entry.failed) || deadline_passed(deadline)) throw;
    return;
  }
  outputs = std::move(answer);
}

/// What the call is followed for meets it as well, and counts it; if the capture was given up, the call that follows does.
void Compiled::note_broken(const GraphBreak& graph_break, const TraceReplayer* replayer) {
  broken_under_.store(settings_of(get_compiler_config()), std::memory_order_relaxed);
  broken_.store(true, std::memory_order_relaxed);
  note_break(graph_break, replayer && replayer->met(graph_break) ? 0 : 1);
}

/// After a call that was followed.
void Compiled::finish_replay(TraceReplayer& replayer, at::ArrayRef<at::Tensor> outputs) {
  if (replayer.raised()) throw replayer.raised()->error();
  const std::string failure = replayer.finish(outputs, options_.fail_on_backend_error);
  for (const auto& met : replayer.breaks()) note_break(*met.graph_break, met.times);
  if (!failure.empty()) trace_failure(*script_, options_.backend, failure);
  if (!failure.empty() && options_.warn)
    options_.warn(named(script_->name(), script_->definition().where) +
                  ": the backend cannot compile a graph between two breaks, so ATen runs its operators: " + failure);
  std::lock_guard<std::mutex> lock(notes_mutex_);
  if (segments_ != options_.traces->segments) segments_ = options_.traces->segments;
}

/// Following costs about as much as the calls of two operators. Other ways through the script, where more may be gained, are
/// looked for now and then. What is not followed meets no graph breaks, which a profiler counts.
bool Compiled::is_worth_following() {
  constexpr uint64_t first_calls = 4;
  constexpr size_t fewest_spared = 2;
  const uint64_t call = calls_with_breaks_++;
  if (call < first_calls || options_.observer) return true;
  script_is_faster_ = options_.traces->spared_calls < fewest_spared;
  return !script_is_faster_ || call % follow_each(call) == 0;
}

size_t Compiled::skip_calls() {
  if (!script_is_faster_ || !gave_up() || newest_.load(std::memory_order_relaxed)) return 0;
  const uint64_t each = follow_each(calls_with_breaks_), next = calls_with_breaks_ % each;
  if (next == 0) return 0;
  calls_with_breaks_ += each - next;
  return each - next;
}

std::vector<CompiledSegment> Compiled::segments() const {
  std::lock_guard<std::mutex> lock(notes_mutex_);
  return segments_;
}

/// The inputs of a policy are the host's, and so is what it gets.
LentMemory Compiled::lent_memory() const { return {!options_.protect_inputs, !options_.protect_inputs}; }

std::unique_ptr<Executable> Compiled::compile(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                              bool raises) const {
  try {
    auto executable = by_interpreter_ ? compile_outputs_eager(graph, backend_, lent_memory())
                                      : compile_outputs(graph, examples, backend_, lent_memory());
    if (options_.fail_on_backend_error) executable->never_fall_back();
    return executable;
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception& error) {
    trace_failure(*script_, options_.backend, messages::message_of(error));
    if (options_.fullgraph || options_.fail_on_backend_error || raises)
      throw Error("'" + script_->name() + "': the backend cannot compile graph `" + graph.name() +
                  "`: " + messages::message_with_hint(error));
    if (options_.warn)
      options_.warn(named(script_->name(), script_->definition().where) +
                    " runs with the eager backend, because its own backend cannot compile graph `" + graph.name() +
                    "`: " + messages::message_with_hint(error));
  }
  return nullptr;
}

/// What the declared types of the inputs ask of their sizes. Flags last: where they disagree with data, they are malformed.
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

std::optional<std::string> Compiled::prepare(const std::vector<InputShape>& shape, at::ArrayRef<at::Tensor> params,
                                             at::ArrayRef<size_t> donated) {
  std::vector<at::Tensor> all;
  std::optional<std::string> refused;
  for (const SyntheticValues values : {SyntheticValues::ones, SyntheticValues::zeros, SyntheticValues::identity}) {
    all.clear();
    for (const auto& input : shape) all.push_back(synthetic(input, values));
    all.insert(all.end(), params.begin(), params.end());
    refused = capture_synthetic(all, params.size());
    if (!refused) break;
  }
  if (!refused) finish_compiling(all, donated);
  return refused;
}

/// Nothing where there is, or now is, an entry for these inputs, or none is wanted; else why there cannot be one ahead.
std::optional<std::string> Compiled::capture_synthetic(at::ArrayRef<at::Tensor> all, size_t num_params) {
  const ScriptLock lock(*this, std::nullopt);
  if (find(all) || gave_up() || limit_reached() || !is_debugged()) return std::nullopt;
  const c10::InferenceMode outside(false);
  const SyntheticInputs synthetic;
  const random::DrawAside draws_aside;
  try {
    std::vector<at::Tensor> outputs;
    capture(all, num_params, std::nullopt, outputs);
  } catch (const GraphBreakError&) {
    if (!synthetic.stopped()) throw;
    return "a function of the host would be called";
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception& error) {
    if (!synthetic.stopped() && !synthetic.values_refused()) throw;
    return error.what();
  }
  return std::nullopt;
}

// None of these takes the mutex of the script: a reload asks them while a call may be inside the script for long.
std::vector<GraphBreak> Compiled::breaks() const {
  std::lock_guard<std::mutex> lock(notes_mutex_);
  return breaks_;
}

CompileTimes Compiled::compile_times() const { return options_.clock->times(); }

std::vector<std::string> Compiled::graph_breaks() const {
  std::vector<std::string> texts;
  for (const GraphBreak& graph_break : breaks()) texts.push_back(graph_break.brief());
  return texts;
}

}  // namespace triage::capture
