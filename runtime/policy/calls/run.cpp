// The path of one call through a policy, and what answers when the policy fails.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/error.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>

#include "runtime/backends/deadline.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/profiling/profiler_spans.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/capsules/recorded_call.h"
#include "runtime/policy/core.h"
#include "runtime/policy/decisions/decisions.h"

namespace triage::policy {
namespace {

at::Tensor unknown_flags(const at::Tensor& like) {
  auto& dispatcher = c10::Dispatcher::singleton();
  static const auto make =
      dispatcher.findSchemaOrThrow("triage::new", "").typed<at::Tensor(const at::Tensor&, int64_t, at::ScalarType)>();
  static const auto push = dispatcher.findSchemaOrThrow("triage::push", "scalar")
                               .typed<at::Tensor(const at::Tensor&, int64_t, int64_t, int64_t, int64_t, int64_t)>();
  const ErrorConfig& config = get_config();
  const at::Tensor flags = make.call(like, config.num_slots, config.flag_dtype);
  return push.call(flags, to_int(err::unknown), /*location=*/0, to_int(err::error), config.num_slots, config.policy());
}

/// Throws the error being handled, with `why` it could not be answered, as a PolicyError.
[[noreturn]] void give_up(const PolicyVersion& version, const std::string& why) {
  const std::string tail =
      fmt::format("; on_error = pass_through cannot return outputs for policy '{}', because {}", version.name, why);
  try {
    throw;
  } catch (const Error& error) {
    throw PolicyError(error.what() + tail, error.source(), error.traceback());
  } catch (const std::exception& error) {
    throw PolicyError(error.what() + tail, {version.path, 0});
  }
}

/// Answers a call without the policy, which has just failed (call it while that error is being handled): an output
/// named as an input is that input; a flags output says UNKNOWN, at ERROR, for every sample, because nobody has looked
/// at them. Throws PolicyError, with what the policy had thrown in it, where an output is neither.
std::vector<at::Tensor> pass_through(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs) {
  const std::vector<std::string> names = version.known_signature().outputs;
  if (names.empty()) give_up(version, "its outputs are not known yet; name them in the script's `outputs`");
  const std::vector<std::string>& input_names = version.signature.inputs;
  const std::vector<bool> is_flags = version.compiled.flags_outputs();
  const auto batch =
      std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor& input) { return input.dim() > 0; });
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto same_name = std::find(input_names.begin(), input_names.end(), names[i]);
    if (same_name != input_names.end()) {
      outputs.push_back(inputs[static_cast<size_t>(same_name - input_names.begin())]);
    } else if (i < is_flags.size() && is_flags[i] && batch != inputs.end()) {
      outputs.push_back(unknown_flags(*batch));
    } else {
      give_up(version, fmt::format("its output '{}' is neither an input nor known to be flags", names[i]));
    }
  }
  return outputs;
}

[[noreturn]] void throw_input_count(const PolicyVersion& version, size_t got) {
  const auto& names = version.signature.inputs;
  throw InputError(fmt::format("policy '{}' takes {} input{} ({}), got {}", version.name, names.size(),
                               names.size() == 1 ? "" : "s", fmt::join(names, ", "), got));
}

[[noreturn]] void throw_undefined(const PolicyVersion& version, size_t index) {
  throw InputError(fmt::format("policy '{}': input '{}' is an undefined tensor; every input must be given",
                               version.name, version.signature.inputs[index]));
}

void check_sample_ids(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<std::string> ids) {
  const int64_t rows = rows_of(inputs);
  if (rows != static_cast<int64_t>(ids.size()))
    throw InputError(fmt::format("policy '{}': RunOptions::sample_ids has {} names for a batch of {} samples",
                                 version.name, ids.size(), rows));
}

void check_types(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs) {
  const auto failure = output_failure(version.signature, inputs, outputs);
  if (failure) throw_at(version, ": " + *failure);
}

/// The params of the call, and the state that the version begins with.
std::vector<at::Tensor> values_for(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs,
                                   const std::vector<at::Tensor>& params, const RunOptions& options, Answer& answer) {
  std::vector<at::Tensor> values = override_params(version, params, options.params);
  if (version.signature.state.empty()) return values;
  if (!answer.state) answer.begin_with(nullptr);
  begin_state(version.signature, inputs, *answer.state, version.held_to() ? version.held_to()->bytes : 0);
  values.insert(values.end(), answer.state->given.begin(), answer.state->given.end());
  return values;
}

/// Whether outputs may take over a donated input. Graphs look at what they read; these tensors belong to later calls.
bool may_be_taken(const PolicyVersion& version, const at::Tensor& input, const std::vector<at::Tensor>& params) {
  const auto& host_tensors = version.compiled.options().host_tensors;
  return !shares_memory(input, params) &&
         std::none_of(host_tensors.begin(), host_tensors.end(),
                      [&](const HostTensor& given) { return share_memory(given.tensor, input); });
}

/// Of an answer that does not fit: whether its outputs lie where donated inputs were, which nobody can be asked with again then.
bool took_inputs(at::ArrayRef<at::Tensor> inputs, const RunOptions& options, at::ArrayRef<at::Tensor> outputs) {
  return std::any_of(options.donate.begin(), options.donate.end(), [&](size_t index) {
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const at::Tensor& output) { return share_memory(output, inputs[index]); });
  });
}

/// The ends of the clock stand for "never" and "long ago"; no difference to them fits.
bool has_odd_deadline(const RunOptions& options) { return options.deadline && !Deadline::is_plain(*options.deadline); }

RunOptions with_plain_deadline(RunOptions options) {
  options.deadline = Deadline::plain(*options.deadline);
  return options;
}

}  // namespace

void PolicyCore::check_inputs(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs,
                              const RunOptions& options) {
  if (inputs.size() != version.signature.inputs.size()) throw_input_count(version, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined()) throw_undefined(version, i);
  for (const size_t index : options.donate)
    if (index >= inputs.size())
      throw InputError(fmt::format("policy '{}': cannot donate input {}; there are {} inputs, counted from 0",
                                   version.name, index, inputs.size()));
  if (!options.sample_ids.empty()) check_sample_ids(version, inputs, options.sample_ids);
}

std::vector<at::Tensor> PolicyCore::run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options) {
  if (has_odd_deadline(options)) [[unlikely]]
    return run(inputs, with_plain_deadline(options));
  const messages::ProfilerSpan span([this] { return "policy " + name_; });
  const auto begin = std::chrono::steady_clock::now();
  const Epochs::Reading reading(*epochs_);
  const Live& live = *live_.load(std::memory_order_seq_cst);
  Answer answer = new_answer();
  if (live.beside) [[unlikely]]
    answer_beside(live, begin, inputs, options, answer);
  else
    answer_live(live, begin, inputs, options, answer);
  return std::move(answer.outputs);
}

/// To be filled; it knows where a capsule of the call goes, if the decision log asks for one.
Answer PolicyCore::new_answer() const {
  Answer answer;
  if (const auto& log = runtime_->options().decisions) answer.capsules = DecisionQueue::of(*log).capsules();
  return answer;
}

std::optional<Counters::Flagged> PolicyCore::answer_live(const Live& live, CallBegin begin,
                                                         at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                                                         Answer& answer) {
  answer_or_note(live, begin, inputs, options, options, answer);
  return note_call(*live.version, begin, inputs, options, answer);
}

/// A call that throws is counted, too, with the options that the host gave; `mine` may differ from them.
void PolicyCore::answer_or_note(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs,
                                const RunOptions& options, const RunOptions& mine, Answer& answer) {
  try {
    find_answer(live, inputs, mine, answer);
  } catch (const std::exception& error) {
    if (!answer.failure) answer.note_failure(error);
    answer.by = Answered::failed;
    note_call(*live.version, begin, inputs, options, answer);
    throw;
  }
}

void PolicyCore::find_answer(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                             Answer& answer) {
  check_inputs(*live.version, inputs, options);
  note_use(options);
  if (live.has_state) [[unlikely]]
    return find_answer_with_state(live, inputs, options, answer);
  ask_live(live, inputs, options, answer);
}

void PolicyCore::ask_live(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                          Answer& answer) {
  if (live.version->trial.on()) return run_on_trial(live, inputs, options, answer);
  try {
    run_version(*live.version, inputs, live.params, options, answer);
    if (answer.ran.form != CallForm::graph) hold_to_form(live, inputs, options, answer);  // a graph gives one form
    note_answered(*live.version);
    answer.by = Answered::live;
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    answer.note_failure(error);
    const size_t limit = runtime_->options().failures_to_revert;
    const bool too_often = ++live.version->failures_in_row >= limit && limit > 0 && options.donate.empty();
    const bool by_script = dynamic_cast<const FormChanged*>(&error);  // which leaves donated inputs as they are
    if ((too_often || by_script) && answer_from_before(live, inputs, options, answer, error)) return;
    report_failure(*live.version, error);
    if (on_error(*live.version, options) == OnError::raise || took_inputs(inputs, options, answer.outputs)) throw;
    recover(live, inputs, options, answer);
  }
}

OnError PolicyCore::on_error(const PolicyVersion& version, const RunOptions& options) const {
  if (options.on_error) return *options.on_error;
  return version.on_error.value_or(runtime_->options().on_error);
}

/// Versions to come are made ready for calls like this one.
void PolicyCore::note_use(const RunOptions& options) noexcept {
  const auto note = [](std::atomic<bool>& noted, bool now) {
    if (noted.load(std::memory_order_relaxed) != now) noted.store(now, std::memory_order_relaxed);
  };
  note(grad_mode_, c10::GradMode::is_enabled());
  note(inference_mode_, c10::InferenceMode::is_enabled());
  for (const size_t index : options.donate)
    if (const uint64_t bit = index < 64 ? uint64_t{1} << index : 0; bit & ~donated_.load(std::memory_order_relaxed))
      donated_.fetch_or(bit, std::memory_order_relaxed);
}

std::vector<size_t> PolicyCore::donated() const {
  std::vector<size_t> inputs;
  for (size_t index = 0; index < 64; ++index)
    if (donated_.load(std::memory_order_relaxed) >> index & 1) inputs.push_back(index);
  return inputs;
}

void PolicyCore::prepare(at::ArrayRef<at::Tensor> inputs, const RunOptions& options) {
  if (has_odd_deadline(options)) return prepare(inputs, with_plain_deadline(options));
  const Epochs::Reading reading(*epochs_);
  const Live& live = *live_.load(std::memory_order_seq_cst);
  check_inputs(*live.version, inputs, options);
  note_use(options);
  RunOptions keeping = options;
  keeping.donate.clear();
  keeping.on_error = OnError::raise;
  const random::DrawAside draws_aside;
  Answer answer;
  if (live.has_state) answer.begin_with(state_.look(options.state_key));
  if (live.version->trial.on()) {
    run_on_trial(live, inputs, keeping, answer);
  } else {
    run_version(*live.version, inputs, live.params, keeping, answer);
    note_answered(*live.version);
  }
  std::vector<at::Tensor> all(inputs.begin(), inputs.end());
  all.insert(all.end(), live.params.begin(), live.params.end());
  if (live.has_state) {
    begin_state(live.version->signature, inputs, *answer.state);
    all.insert(all.end(), answer.state->given.begin(), answer.state->given.end());
  }
  const operators::Untrusted graphs(live.version->held_to());
  const Deadline deadline(options.deadline);
  live.version->compiled.finish_compiling(all, options.donate);
}

/// A call of its own: not one that it answered in place of another version, or was asked what it would have answered.
void PolicyCore::note_answered(PolicyVersion& version) noexcept {
  if (!version.has_run.load(std::memory_order_relaxed)) version.has_run.store(true, std::memory_order_relaxed);
  if (version.failures_in_row.load(std::memory_order_relaxed) != 0)
    version.failures_in_row.store(0, std::memory_order_relaxed);
}

void PolicyCore::run_version(PolicyVersion& version, at::ArrayRef<at::Tensor> inputs,
                             const std::vector<at::Tensor>& params, const RunOptions& options, Answer& answer) {
  if (!capsule::wanted() && !answer.capsules) return run_unrecorded(version, inputs, params, options, answer);
  RecordedCall recorded(version, inputs, params, options);
  try {
    run_unrecorded(version, inputs, params, options, answer);
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    recorded.failed(error, answer);
    throw;
  }
  recorded.answered(answer);
}

void PolicyCore::run_unrecorded(PolicyVersion& version, at::ArrayRef<at::Tensor> inputs,
                                const std::vector<at::Tensor>& params, const RunOptions& options, Answer& answer) {
  c10::SmallVector<at::Tensor, 4> given;
  for (const size_t index : options.donate)
    if (may_be_taken(version, inputs[index], params)) given.push_back(inputs[index]);
  const CallContext call{options.deadline, given};
  const operators::Untrusted graphs(version.held_to());
  answer.version = &version;
  if (answer.state) [[unlikely]]
    answer.state->begin_again();  // another version may have been asked, with state of other names
  const bool has_state = !version.signature.state.empty();
  try {
    if (options.params.empty() && !has_state)
      answer.ran = version.compiled.run(inputs, params, call, answer.outputs);
    else
      answer.ran =
          version.compiled.run(inputs, values_for(version, inputs, params, options, answer), call, answer.outputs);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // what ATen throws: mostly c10::Error
    throw PolicyError(fmt::format("policy '{}' (version {}) failed: {}", version.name, version.number,
                                  messages::message_without_backtrace(error)),
                      {version.path, 0});
  }
  if (has_state) [[unlikely]]
    if (const auto failure = take_state(version.signature, inputs, *answer.state, answer.outputs))
      throw_at(version, ": " + *failure);
  if (!version.output_types.empty() && !version.output_types.fit(inputs, answer.outputs))
    check_types(version, inputs, answer.outputs);
}

/// Called while the policy's error is being handled; throws that error again where the chosen way does not lead on.
void PolicyCore::recover(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options, Answer& answer) {
  answer.outputs.clear();
  if (on_error(*live.version, options) == OnError::pass_through) {
    answer.outputs = pass_through(*live.version, inputs);
    answer.by = Answered::passed_through;
    answer.ran = {};
    return;
  }
  if (!live.last_good) throw;
  RunOptions earlier = options;
  earlier.params = those_of(*live.last_good, options.params);
  try {
    run_version(*live.last_good, inputs, live.last_good_params, earlier, answer);
    answer.by = Answered::last_good;
    return;
  } catch (const std::exception& error) {
    report_failure(*live.last_good, error);
  }
  throw;
}

void PolicyCore::report_failure(PolicyVersion& version, const std::exception& error) const {
  // A policy that fails on every batch must not drown the log: the 1st, 2nd, 4th, 8th ... failure is told.
  const uint64_t count = version.failures.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((count & (count - 1)) != 0) return;
  log(LogLevel::warn,
      fmt::format("policy '{}' version {} failed (failure {} of this version): {}", version.name, version.number, count,
                  error.what()),
      error.what(), version.number);
}

}  // namespace triage::policy
