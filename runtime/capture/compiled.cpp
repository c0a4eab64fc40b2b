#include "runtime/capture/compiled.h"
#include "runtime/capture/reports/compile_observer.h"

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/repro.h"
#include "runtime/backends/unmasked_rows.h"
#include "runtime/capture/context.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/reports/compile_clock.h"
#include "runtime/capture/reports/logs.h"
#include "runtime/capture/reports/trace_events.h"
#include "runtime/capture/retire_if_written.h"
#include "runtime/capture/tensors/synthetic_inputs.h"
#include "runtime/compat/readable_memory.h"
#include "runtime/graph/memory.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/profiling/profiler_spans.h"
#include "runtime/random/sequence.h"

#include <fmt/format.h>
#include <triage/compiler_config.h>
#include <triage/config.h>
#include <triage/error.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace triage::capture {
std::vector<InputShape> shape_of(at::ArrayRef<at::Tensor> inputs) {
  std::vector<InputShape> shape;
  for (const auto& input : inputs)
    shape.push_back({input.sizes().vec(), input.scalar_type(), input.device(), input.requires_grad()});
  return shape;
}

namespace {

std::string name_of_input(const Script& script, size_t input) {
  const std::vector<std::string> names = input_names(script.signature());
  return input < names.size() ? names[input] : "#" + std::to_string(input);
}

/// Sparse tensors and those of MKL-DNN have no strides, by which tensors that share memory are told; and of tensors
/// that LibTorch wraps (functional, batched, zeros of forward-mode AD, subclasses) only its dispatcher knows what they
/// are.
std::optional<GraphBreak> find_not_captured(const Script& script, at::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool strided = inputs[i].layout() == c10::kStrided;
    if (strided && compat::has_only(inputs[i], compat::captured_keys)) continue;
    std::ostringstream what;
    what << "tensor '" << name_of_input(script, i) << "' ";
    if (strided)
      what << "is none of plain memory (" << inputs[i].key_set() << ")";
    else
      what << "has layout " << inputs[i].layout();
    const Script::Definition definition = script.definition();
    return GraphBreak{
        Break::other_argument, what.str(),
        strided ? "Pass a tensor of plain memory, such as a clone()." : "Pass a strided tensor: x:to_dense().",
        definition.where, definition.quoted};
  }
  return std::nullopt;
}

/// LibTorch would read past the end of memory, or at null.
void check_memory(const Script& script, const CompileOptions& options, at::ArrayRef<at::Tensor> all) {
  const auto refuse = [&](const at::Tensor& tensor, const std::string& name) {
    throw InputError("policy '" + script.name() + "': the tensor '" + name + "' has no memory for its " +
                     std::to_string(tensor.numel()) +
                     " elements: its storage was freed or made smaller, or it was made of a null pointer; pass a "
                     "tensor whose memory is there");
  };
  for (size_t i = 0; i < all.size(); ++i)
    if (compat::lacks_memory(all[i])) refuse(all[i], name_of_input(script, i));
  for (const HostTensor& given : options.host_tensors)
    if (compat::lacks_memory(given.tensor)) refuse(given.tensor, given.name);
}

/// Of the calls with breaks, where the script is faster. One that is followed costs as much as several that are not.
constexpr uint64_t follow_each(uint64_t call) noexcept { return call < 1024 ? 64 : 1024; }

/// TRIAGE_DEBUG_FUNCTION names this function, or none.
bool is_debugged(const Script& script) {
  return messages::is_debugged(script.name(), [&] {
    const Source where = script.definition().where;
    return where.file + ":" + std::to_string(where.line);
  });
}

constexpr int any_settings = -1;
/// The settings that decide what breaks a graph.
int settings_of(const CompilerConfig& config) {
  return (config.capture_dynamic_output_shape_ops ? 1 : 0) | (config.capture_scalar_outputs ? 2 : 0);
}

/// In full, and once for each line of the script: what breaks there again, for other arguments or variables, is the
/// same to who reads it. `always`: also one that was told.
void warn_of(const Script& script, const CompileOptions& options, const GraphBreak& graph_break, bool always) {
  if (!options.warn || !options.warn_of_breaks || !messages::logs(messages::Artefact::graph_breaks)) return;
  std::vector<GraphBreak>& told = options.warned->breaks;
  if (!always &&
      std::any_of(told.begin(), told.end(), [&](const GraphBreak& one) { return same_place(one, graph_break); }))
    return;
  told.push_back({graph_break.kind, graph_break.what, "", graph_break.where, ""});
  const char* outcome = "' has a graph break, so its script runs on every call, with graphs for the parts: ";
  if (graph_break.kind == Break::other_argument)
    outcome = "' runs as a script when it is called with such an argument: ";
  options.warn("'" + script.name() + outcome + graph_break.text() +
               "\n\nTRIAGE_LOGS=+capture shows each operation that is recorded before it.");
}

/// A call of the graph for these inputs, with copies of some of them donated: it asks for the code of such calls.
void ask_for_donation(const Script& script, const CacheEntry& entry, at::ArrayRef<at::Tensor> all,
                      at::ArrayRef<size_t> donated) {
  CacheEntry::Tensors copies(all.begin(), all.end()), given;
  for (const size_t index : donated) {
    if (index >= all.size() || all[index].requires_grad()) continue;
    copies[index] = all[index].clone();
    given.push_back(copies[index]);
  }
  const random::Replay unseen(entry.draws);
  std::vector<at::Tensor> outputs;
  try {
    entry.executable->run(entry.taken(copies, script.variables()), outputs, {triage::Deadline::current(), given});
  } catch (const std::exception&) {  // of values that were made up; a real call says what it thinks of its own
  }
}

}  // namespace

void Compiled::replay_always() noexcept {
  broken_under_.store(any_settings, std::memory_order_relaxed);
  broken_.store(true, std::memory_order_relaxed);
}

namespace {

/// The script has answered by the time that its graph is compiled, but whoever called it waits.
Backend within(double seconds, Backend backend) {
  return [seconds, backend = std::move(backend)](const graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    const auto end = triage::Deadline::in(seconds);
    try {
      const triage::Deadline bound(end);
      return backend(graph, examples);
    } catch (const LimitError&) {
      if (!deadline_passed(end) || deadline_passed()) throw;  // another limit, or the deadline of who called
      throw Error(
          fmt::format("it took longer than the {:g} s that the limits allow; raise `seconds` of the limits, or "
                      "give the policy less to do",
                      seconds));
    }
  };
}

}  // namespace

Compiled::Compiled(std::shared_ptr<Script> script, Options options)
    : script_(std::move(script)),
      options_(std::move(options)),
      backend_(options_.compile_with ? options_.compile_with : find_backend(options_.backend)),
      by_interpreter_(is_eager(backend_)) {
  if (options_.observer && !options_.compile_with) backend_ = observed(std::move(backend_), options_.observer);
  if (!options_.clock) options_.clock = std::make_shared<CompileClock>();
  if (options_.compile_seconds > 0) backend_ = within(options_.compile_seconds, std::move(backend_));
  backend_ = with_repro(options_.clock->timed(with_step(std::move(backend_), options_.backend)), options_.backend);
  if (!options_.graphs_made) options_.graphs_made = std::make_shared<std::atomic<int64_t>>(0);
  if (!options_.traces) options_.traces = std::make_shared<TraceTree>(script_->name(), backend_, options_.backend);
  if (!options_.warned) options_.warned = std::make_shared<Options::Warned>();
  for (const HostTensor& given : options_.host_tensors) host_memory_.add(given.tensor, given.name);
}

/// The script runs on one thread at a time, for the life of this object on this one. A thread that holds the lock
/// already would wait for itself (the script called a function of the host, which called the policy); a deadline may
/// pass while others hold it.
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
                          "calls?); a policy cannot call itself: load its source as another policy for that");
    const auto nearest = triage::Deadline::nearest(deadline);
    if (!compiled.mutex_.lock(nearest, [&] { return "policy '" + compiled.script_->name() + "'"; }))
      throw WaitedError("the deadline of the call passed while another call was running the script of policy '" +
                        compiled.script_->name() + "'");
    context.script_lock = this;
  }
  ~ScriptLock() {
    context.script_lock = outer_;
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

CallOutcome Compiled::execute(const CacheEntry& entry, const CompiledCall& call, at::ArrayRef<at::Tensor> donated) {
  const messages::ProfilerSpan span([&] { return span_name(entry); });
  std::optional<random::DrawFrom> draws;
  if (entry.draws && options_.random) draws.emplace(random::or_aside(options_.random.get()));
  std::optional<CacheEntry::Tensors> taken;
  if (!entry.lifted.empty()) taken = entry.taken(call.all, script_->variables());
  const at::ArrayRef<at::Tensor> all = taken ? at::ArrayRef<at::Tensor>(*taken) : call.all;
  const CallOutcome by_graph{CallForm::graph, &entry};
  if (!entry.script_handles_errors && !entry.failed) {
    entry.executable->run(all, call.outputs, {call.deadline, donated});
    return by_graph;
  }
  // A script that handles errors reads the inputs again where the graph fails.
  if (entry.script_handles_errors) donated = {};
  const random::GoBack go_back(entry.draws, call.all);
  bool over_limit = false;
  try {
    entry.executable->run(all, call.outputs, {call.deadline, donated});
    return by_graph;
  } catch (const LimitError&) {  // of a branch that the script may not take, unless time is up
    if (!entry.failed || deadline_passed(call.deadline)) throw;
    over_limit = true;
  } catch (const std::exception&) {
  }
  call.outputs.clear();
  go_back();
  draws.reset();
  return run_again(entry, over_limit, call);
}

/// A call whose graph failed: the script answers it, as if it began now.
CallOutcome Compiled::run_again(const CacheEntry& failed, bool over_limit, const CompiledCall& call) {
  const ScriptLock lock(*this, call.deadline);
  const bool may_capture = failed.failed && !over_limit && get_stance() == Stance::default_stance && !gave_up() &&
                           !recompiles_.limit_reached();
  const CallOutcome ran = may_capture && capture(call) ? CallOutcome{CallForm::capture} : run_script(call);
  if (failed.failed) failed.failed->add(call.all);  // an error of the script is one of the graph, rightly
  return ran;
}

CallOutcome Compiled::run(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params, const CallContext& context,
                          std::vector<at::Tensor>& outputs) {
  std::optional<c10::SmallVector<at::Tensor, 8>> joined;
  if (!params.empty()) {
    joined.emplace(inputs.begin(), inputs.end());
    joined->append(params.begin(), params.end());
  }
  const CompiledCall call{joined ? at::ArrayRef<at::Tensor>(*joined) : inputs, params.size(), context.deadline,
                          outputs};
  if (get_stance() == Stance::force_eager) {
    const ScriptLock lock(*this, call.deadline);
    check_memory(*script_, options_, call.all);
    return run_script(call, /*follow=*/false);
  }
  if (const CacheEntry* entry = find_for_call(call.all)) return execute(*entry, call, context.donated);
  return miss(call);
}

/// Where a graph that the backend cannot compile is an error, the call has to run into it.
const CacheEntry* Compiled::find_for_call(at::ArrayRef<at::Tensor> all) const noexcept {
  const CacheEntry* const entry = find(all);
  return entry && entry->fell_back && OnGraphBreak::raises() ? nullptr : entry;
}

bool Compiled::gave_up() const {
  if (!broken_.load(std::memory_order_relaxed)) return false;
  const int under = broken_under_.load(std::memory_order_relaxed);
  return under == any_settings || under == settings_of(get_compiler_config());
}

CallOutcome Compiled::miss(const CompiledCall& call) {
  std::optional<ScriptLock> lock(std::in_place, *this, call.deadline);
  if (const CacheEntry* entry = find_for_call(call.all)) {  // another thread captured it meanwhile
    lock.reset();
    return execute(*entry, call, {});
  }
  check_memory(*script_, options_, call.all);
  if (const auto odd = find_not_captured(*script_, call.all)) {
    if (options_.fullgraph || OnGraphBreak::raises()) throw odd->error();
    note_break(*odd);
    return run_script(call, /*follow=*/false);
  }
  const bool first_call = !std::exchange(was_called_, true);
  switch (get_stance()) {
    case Stance::eager_on_recompile:
      recompiles_.report(call.all, Stance::eager_on_recompile);
      return run_script(call, /*follow=*/false);
    case Stance::fail_on_recompile: {
      const std::string reason = recompiles_.last_reason(call.all);
      throw Error("'" + script_->name() + "' has no graph for this call, and the stance is fail_on_recompile" +
                  (reason.empty() ? "; call it once before you set the stance" : ": " + reason));
    }
    case Stance::eager_then_compile:
      if (first_call) return run_script(call, /*follow=*/false);
      break;
    default:
      break;
  }
  if (!is_debugged(*script_)) return run_script(call, /*follow=*/false);
  if (gave_up()) return run_script(call);
  if (const auto limit = recompiles_.limit_reached()) {
    recompiles_.report_limit(*limit, call.all);
    return run_script(call, /*follow=*/false);
  }
  return capture(call) ? CallOutcome{CallForm::capture} : run_script(call);
}

CallOutcome Compiled::run_script(const CompiledCall& call, bool follow) {
  const messages::ProfilerSpan span([this] { return "script " + script_->name(); });
  const auto inputs = call.inputs();
  const NotCaptured nothing(false);  // whatever calls this, through the host
  std::optional<random::DrawFrom> draws;
  if (options_.random) draws.emplace(random::or_aside(options_.random.get()));
  check_signature(inputs);
  std::optional<ProtectInputs> protect;
  if (options_.protect_inputs) protect.emplace(call.all, &host_memory_);
  const RetireIfWritten retire(*script_, cache_);
  std::optional<TraceReplayer> replayer;
  std::optional<NotFollowed> not_followed;
  if (follow && has_breaks()) {
    if (is_worth_following())
      replayer.emplace(options_.traces, inputs, call.all.slice(inputs.size(), script_->signature().params.size()),
                       [this] { return script_->stores(); });
    else
      not_followed.emplace();
  }
  call.outputs = script_->call(inputs, call.all.slice(inputs.size()), call.deadline);
  finish_script(replayer ? &*replayer : nullptr, call.outputs);
  note_answer(inputs, call.outputs);
  if (options_.protect_inputs) host_memory_.take_over(inputs, call.outputs);
  return {replayer ? CallForm::segments : CallForm::script};
}

UnmaskedRows Compiled::unmasked_by_script() const {
  const std::vector<GraphBreak> met = breaks();
  if (met.empty()) return {"the script answers the call", script_->definition().where};
  return unmasked_by_break(met.front().what, met.front().where);
}

std::optional<UnmaskedRows> Compiled::unmasked_rows(at::ArrayRef<at::Tensor> all) const {
  const CacheEntry* entry = find(all);
  return entry ? entry->executable->unmasked_rows(entry->taken(all, script_->variables())) : unmasked_by_script();
}

void Compiled::note_break(const GraphBreak& graph_break, size_t times) {
  if (options_.counts) options_.counts->graph_breaks.fetch_add(times, std::memory_order_relaxed);
  if (options_.observer && times > 0) options_.observer->met_break(script_->name(), graph_break, times);
  const bool always = messages::logs(messages::Artefact::graph_breaks, messages::Detail::more);
  {
    std::lock_guard<std::mutex> lock(notes_mutex_);
    const auto same = [&](const GraphBreak& known) { return same_break(known, graph_break); };
    const bool known = std::any_of(breaks_.begin(), breaks_.end(), same);
    if (known && !always) return;
    if (!known) {
      breaks_.push_back(graph_break);
      trace_break(*script_, graph_break);
    }
  }
  warn_of(*script_, options_, graph_break, always);
}

/// What the call is followed for meets it as well, and counts it; if the capture was given up, the call that follows
/// does.
void Compiled::note_broken(const GraphBreak& graph_break, const TraceReplayer* replayer) {
  broken_under_.store(settings_of(get_compiler_config()), std::memory_order_relaxed);
  broken_.store(true, std::memory_order_relaxed);
  note_break(graph_break, replayer && replayer->met(graph_break) ? 0 : 1);
}

/// After a call of the script, which may have been followed.
void Compiled::finish_script(TraceReplayer* replayer, at::ArrayRef<at::Tensor> outputs) {
  if (replayer) {
    if (replayer->raised()) throw replayer->raised()->error();
    const std::string failure = replayer->finish(outputs, options_.fail_on_backend_error);
    for (const auto& met : replayer->breaks()) note_break(*met.graph_break, met.times);
    if (!failure.empty()) trace_failure(*script_, options_.backend, failure);
    if (!failure.empty() && options_.warn)
      options_.warn(named(script_->name(), script_->definition().where) +
                    ": the backend cannot compile a graph between two breaks, so ATen runs its operators: " + failure);
    std::lock_guard<std::mutex> lock(notes_mutex_);
    if (segments_ != options_.traces->segments) segments_ = options_.traces->segments;
  }
  const auto requires_grad = [](const at::Tensor& output) { return output.defined() && output.requires_grad(); };
  if (options_.masked_rows == MaskedRows::require && std::any_of(outputs.begin(), outputs.end(), requires_grad))
    refuse_unmasked_rows("'" + script_->name() + "'", unmasked_by_script());
}

/// Following costs about as much as the calls of two operators. Other ways through the script, where more may be
/// gained, are looked for now and then. What is not followed meets no graph breaks, which a profiler counts.
bool Compiled::is_worth_following() {
  constexpr uint64_t first_calls = 4;
  constexpr size_t fewest_spared = 2;
  const uint64_t call = calls_with_breaks_++;
  if (call < first_calls || options_.observer) return true;
  script_is_faster_ = options_.traces->spared_calls < fewest_spared;
  return !script_is_faster_ || call % follow_each(call) == 0;
}

size_t Compiled::skip_calls() {
  if (!script_is_faster_ || !gave_up() || cache_.newest()) return 0;
  const uint64_t each = follow_each(calls_with_breaks_), next = calls_with_breaks_ % each;
  if (next == 0) return 0;
  calls_with_breaks_ += each - next;
  return each - next;
}

std::vector<CompiledSegment> Compiled::segments() const {
  std::lock_guard<std::mutex> lock(notes_mutex_);
  return segments_;
}

bool Compiled::run_graph(at::ArrayRef<at::Tensor> all, std::vector<at::Tensor>& outputs) const {
  const CacheEntry* entry = find(all);
  if (!entry || entry->script_handles_errors) return false;
  entry->executable->run(entry->taken(all, script_->variables()), outputs, {triage::Deadline::current()});
  return true;
}

void Compiled::finish_compiling(at::ArrayRef<at::Tensor> all, at::ArrayRef<size_t> donated) const {
  const CacheEntry* entry = find(all);
  if (!entry) return;
  if (!donated.empty()) ask_for_donation(*script_, *entry, all, donated);
  entry->executable->finish_compiling();
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
  if (find(all) || gave_up() || recompiles_.limit_reached() || !is_debugged(*script_)) return std::nullopt;
  const SyntheticInputs synthetic;
  const random::DrawAside draws_aside;
  try {
    std::vector<at::Tensor> outputs;
    capture({all, num_params, std::nullopt, outputs});
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

std::string Compiled::guards_text(const Guards& guards, const std::vector<std::string>& names) const {
  const std::string text = guards.text(names);
  if (options_.other_guards) return text + options_.other_guards();
  return text + "variables of the script: it has not written to them outside of a capture\n";
}

void add_segments(CacheStatistics& statistics, const std::vector<CompiledSegment>& segments) {
  statistics.segments += segments.size();
  for (const CompiledSegment& segment : segments) {
    statistics.bytes += graph::bytes(*segment.graph);
    if (segment.executable) statistics.loops += segment.executable->loops();
  }
}

}  // namespace triage::capture
