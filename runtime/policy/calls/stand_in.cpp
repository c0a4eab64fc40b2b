// Who answers where the version that was asked fails, or leaves its ranges.
#include <fmt/format.h>
#include <triage/error.h>
#include <triage/flags.h>

#include <algorithm>
#include <exception>

#include "runtime/backends/deadline.h"
#include "runtime/capture/thread_stack.h"
#include "runtime/capture/waiting.h"
#include "runtime/memory/overlap.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/calls/call.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/releases/releases.h"
#include "runtime/policy/trials/answer_forms.h"

namespace triage::policy {
namespace {

at::Tensor unknown_flags(const at::Tensor& like) {
  return err::push_scalar(err::new_(like), err::unknown, ErrorLocation::UNKNOWN, {err::error});
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

/// Answers without the policy, whose error is being handled: an output named as an input is that input; a flags output
/// says UNKNOWN, at ERROR, for every sample, because nobody has looked at them. Throws PolicyError, with what the
/// policy had thrown in it, where an output is neither.
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

}  // namespace

/// Called while `error` is being handled. False: nothing may answer. Throws that error again where what was to answer
/// cannot.
bool PolicyCall::stand_in(const std::exception& error) {
  if (asked_ != &lineup_) return answer_as_live(error), true;
  if (!admitted_) return false;
  if (lineup_.has_state && !turn_ && !prepares_) {  // its turn did not come
    if (!dynamic_cast<const capture::WaitedError*>(&error) || on_error() == OnError::raise) return false;
    return recover(), true;
  }
  const bool of_inputs = dynamic_cast<const InputError*>(&error);
  if (replaceable_ ? dynamic_cast<const capture::StackError*>(&error) != nullptr : of_inputs) return false;
  const size_t limit = policy_.runtime().options().failures_to_revert;
  const bool by_script = dynamic_cast<const FormChanged*>(&error);  // which leaves donated inputs as they are
  const bool too_often = !replaceable_ && ++lineup_.version->failures_in_row >= limit && limit > 0;
  if (replaceable_ || by_script || (too_often && options_.donate.empty()))
    if (answer_from_before(error)) return true;
  policy_.report_failure(*lineup_.version, error);
  if (on_error() == OnError::raise || of_inputs || (!replaceable_ && took_inputs())) return false;
  return recover(), true;
}

/// The live version has failed. Where the version before it can answer, it does, and is live again; else the inputs are
/// at fault, and false is returned. A call on trial that only waited for another one, which its budget ends, leaves it
/// to that one to say what is wrong.
bool PolicyCall::answer_from_before(const std::exception& error) {
  if (!lineup_.before) return false;
  RunOptions asked = as_asked(*lineup_.before, options_);
  if (replaceable_) asked.deadline = deadline_of_stand_in(options_.deadline, asked_at_);
  answer_.outputs.clear();
  try {
    VersionCall{*lineup_.before, inputs_, lineup_.before_params, asked}.run(answer_);
    answer_.by = Answered::previous;
    count_violations();
  } catch (const std::exception&) {
    answer_.outputs.clear();
    return false;
  }
  Trial& trial = lineup_.version->trial;
  const bool waited =
      dynamic_cast<const capture::WaitedError*>(&error) && Deadline::span(policy_.runtime().options().limits.seconds);
  if (waited && trial.on())
    trial.note_wait(error.what());
  else
    policy_.releases().go_back(policy_, lineup_, error);
  return true;
}

/// Called while the policy's error is being handled; throws that error again where the chosen way does not lead on.
void PolicyCall::recover() {
  answer_.outputs.clear();
  if (on_error() == OnError::pass_through) {
    answer_.outputs = pass_through(*lineup_.version, inputs_);
    answer_.by = Answered::passed_through;
    answer_.ran = {};
    return;
  }
  if (!lineup_.last_good) throw;
  RunOptions earlier = options_;
  earlier.params = those_of(*lineup_.last_good, options_.params);
  try {
    VersionCall{*lineup_.last_good, inputs_, lineup_.last_good_params, earlier}.run(answer_);
    answer_.by = Answered::last_good;
    count_violations();
    return;
  } catch (const std::exception& error) {
    policy_.report_failure(*lineup_.last_good, error);
  }
  throw;
}

OnError PolicyCall::on_error() const {
  if (prepares_) return OnError::raise;
  if (options_.on_error) return *options_.on_error;
  return lineup_.version->on_error.value_or(policy_.runtime().options().on_error);
}

/// Of an answer that does not fit: whether its outputs lie where donated inputs were, which nobody can be asked with
/// again then.
bool PolicyCall::took_inputs() const {
  const auto& outputs = answer_.outputs;
  return std::any_of(options_.donate.begin(), options_.donate.end(), [&](size_t index) {
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const at::Tensor& output) { return share_memory(output, inputs_[index]); });
  });
}

/// Samples of outputs are not within their declared ranges. Their records say so already.
void PolicyCall::meet_violations() {
  const bool reverts = asked_->version->on_violation == OnViolation::revert;
  if (reverts && !answer_.violations->read()) return;
  count_violations();
  if (reverts) revert_for_violations();
}

/// Those that were read, for the version that answers.
void PolicyCall::count_violations() {
  if (prepares_ || !answer_.violations) return;
  const PolicyVersion& version = *answer_.version;
  bool any = false;
  for (const Violations::OutputViolation& output : answer_.violations->outputs)
    if (output.count > 0) {
      any = true;
      version.counters->violated(output.index, static_cast<uint64_t>(output.count));
    }
  if (any) afterwards(policy_.runtime().logger(), [&] { policy_.report_violations(version, *answer_.violations); });
}

/// The version before answers, and is live again, where it keeps to its own ranges; else the inputs are at fault, and
/// the answer stays. What a candidate promises and does not keep is a failure of it.
void PolicyCall::revert_for_violations() {
  const PolicyVersion& version = *asked_->version;
  const auto [message, where] = told_of(version, fmt::format(" has {} out of range, and on_violation = \"revert\"",
                                                             answer_.violations->text(version.signature)));
  const PolicyError error(message, where);
  if (asked_ != &lineup_) throw error;
  if (!lineup_.before) return;
  Answer before;
  if (answer_.state) before.begin_with(answer_.began_with());
  try {
    VersionCall{*lineup_.before, inputs_, lineup_.before_params, as_asked(*lineup_.before, options_)}.run(before);
    if (before.violations && before.violations->read()) return;
  } catch (const std::exception&) {
    return;
  }
  before.capsules = answer_.capsules;
  before.capsule = std::move(answer_.capsule);  // of what is to be looked at
  before.note_failure(error);
  before.by = Answered::previous;
  answer_ = std::move(before);
  policy_.releases().go_back(policy_, lineup_, error);
}

}  // namespace triage::policy
