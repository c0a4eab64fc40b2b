// Calls that a version on trial gets, and what happens where a version fails and the one before it answers.
#include "runtime/policy/trials/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/backends/deadline.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/thread_stack.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/bundles/bundle.h"
#include "runtime/policy/core.h"

namespace triage::policy {
namespace {

/// dtypes and ranks count, sizes do not.
bool same_kind(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return shape.dtype == input.scalar_type() && static_cast<int64_t>(shape.sizes.size()) == input.dim();
  });
}

bool same_but_rows(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return capture::same_but_rows(shape.sizes, input.sizes());
  });
}

bool same_sizes(const Kind& kind, at::ArrayRef<at::Tensor> inputs) {
  return std::equal(kind.begin(), kind.end(), inputs.begin(), inputs.end(), [](const auto& shape, const auto& input) {
    return shape.dtype == input.scalar_type() && input.sizes() == shape.sizes && shape.device == input.device();
  });
}

}  // namespace

void Trial::begin(Known known, size_t calls) {
  {
    const std::lock_guard lock(mutex_);
    known_ = std::move(known);
  }
  begin_again(calls);
}

void Trial::begin_again(size_t calls) {
  const std::lock_guard lock(mutex_);
  calls_left_ = calls;
  most_left_ = calls > SIZE_MAX / 100 ? SIZE_MAX : 100 * calls;
  on_.store(calls > 0, std::memory_order_release);
}

bool Trial::tried() const {
  const std::lock_guard lock(mutex_);
  return known_.untried.empty();
}

std::string Trial::reason() const {
  const std::lock_guard lock(mutex_);
  return known_.reasons.empty() ? "" : known_.reasons.front();
}

std::optional<std::chrono::nanoseconds> Trial::time_before() const {
  const std::lock_guard lock(mutex_);
  return known_.time_before;
}

std::optional<Form> Trial::expected(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, form] : known_.forms)
    if (same_sizes(kind, inputs)) return form;
  return std::nullopt;
}

std::optional<std::pair<Form, OpenSizes>> Trial::expected_of_kind(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  const auto find = [&](bool alike) {
    return std::find_if(known_.shown.begin(), known_.shown.end(), [&](const auto& one) {
      return same_kind(one.inputs, inputs) && (!alike || same_but_rows(one.inputs, inputs));
    });
  };
  auto shown = find(/*alike=*/true);
  const bool alike = shown != known_.shown.end();
  if (!alike) shown = find(/*alike=*/false);
  if (shown == known_.shown.end()) return std::nullopt;
  const auto with_rows = std::find_if(inputs.begin(), inputs.end(), [](const auto& input) { return input.dim() > 0; });
  const int64_t batch = with_rows == inputs.end() ? -1 : with_rows->size(0);
  Form form = form_of(shown->outputs, shown->flags_outputs);
  OpenSizes open(shown->other_sizes.begin(), shown->other_sizes.end());
  const bool ambiguous = std::any_of(shown->inputs.begin(), shown->inputs.end(), [&](const auto& input) {
    return std::count(input.sizes.begin() + !input.sizes.empty(), input.sizes.end(), shown->batch()) > 0;
  });
  for (size_t i = 0; i < form.size(); ++i)
    for (size_t dim = 0; dim < form[i].sizes.size(); ++dim) {
      int64_t& size = form[i].sizes[dim];
      const bool is_batch = size == shown->batch();
      // The first size may be how many samples were chosen; another is that of the batch by chance.
      const bool may_differ = dim == 0 ? !is_batch || ambiguous : is_batch;
      if (!alike || (may_differ && (!is_batch || size != batch))) open.emplace(i, dim);
      size = shown->size_for(batch, size);
    }
  return std::pair(std::move(form), std::move(open));
}

std::vector<capture::Compiled::Answered> Trial::shown() const {
  const std::lock_guard lock(mutex_);
  return known_.shown;
}

void Trial::expect(at::ArrayRef<at::Tensor> inputs, Form form) {
  constexpr size_t most = 64;
  const std::lock_guard lock(mutex_);
  for (auto& [kind, known] : known_.forms)
    if (same_sizes(kind, inputs)) {
      known = std::move(form);
      return;
    }
  if (known_.forms.size() >= most) return;
  known_.forms.emplace_back(capture::shape_of(inputs), std::move(form));
}

void Trial::note_wait(std::string message) {
  const std::lock_guard lock(mutex_);
  waited_ = std::move(message);
}

std::optional<std::string> Trial::take_wait() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waited_, std::nullopt);
}

OpenSizes Trial::open() const {
  const std::lock_guard lock(mutex_);
  return known_.open;
}

void Trial::add_open(const Form& one, const Form& other) {
  const std::lock_guard lock(mutex_);
  add_open_sizes(known_.open, one, other);
}

Trial::Progress Trial::pass(at::ArrayRef<at::Tensor> inputs) {
  const std::lock_guard lock(mutex_);
  const size_t untried = std::erase_if(known_.untried, [&](const Kind& kind) { return same_kind(kind, inputs); });
  if (calls_left_ > 0) --calls_left_;
  if (most_left_ > 0) --most_left_;
  const bool over = most_left_ == 0 || (calls_left_ == 0 && known_.untried.empty());
  if (over && on_.exchange(false, std::memory_order_acq_rel)) {
    known_.forms.clear();
    return Progress::over;
  }
  return untried > 0 && known_.untried.empty() ? Progress::tried : Progress::going_on;
}

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

}  // namespace

Moment trial_deadline(const Moment& deadline, std::optional<nanoseconds> time_before, const Limits& limits) {
  const auto now = Clock::now();
  if (!deadline) {
    const std::optional<nanoseconds> budget = Deadline::span(limits.seconds);
    if (!budget) return std::nullopt;
    return now + (time_before ? std::max(*budget, 20 * *time_before) : 10 * *budget);
  }
  const auto left = std::chrono::duration_cast<nanoseconds>(*deadline - now);
  if (!time_before) return now + left / 2;
  const auto needed = *time_before * 3 / 2 + std::chrono::microseconds(200);
  return needed > left / 2 ? *deadline : *deadline - needed;
}

Moment deadline_of_stand_in(const Moment& deadline, Clock::time_point begin) {
  if (!deadline) return std::nullopt;
  return std::max(*deadline, Clock::now() + (*deadline - begin));
}

namespace {

/// An answer came too late, where the version before would have been in time.
bool overran(const Moment& deadline, Clock::time_point begin, std::optional<nanoseconds> time_before) {
  return deadline && time_before && *time_before < *deadline - begin && Clock::now() > *deadline;
}

/// For a question that the answer does not depend on: some other call may be inside the script of the version before for long.
Moment question_deadline(const Moment& deadline, std::optional<nanoseconds> time_before) {
  constexpr nanoseconds least = std::chrono::milliseconds(100), unknown = std::chrono::seconds(1);
  const auto until = Clock::now() + (time_before ? std::max(least, 20 * *time_before) : unknown);
  return deadline ? std::min(*deadline, until) : until;
}

[[noreturn]] void throw_changed(const PolicyVersion& version, const std::string& change, const std::string& contract) {
  const auto [message, where] =
      told_of(version, fmt::format(" changes {}; hosts call the policy by the contract of {}", change, contract));
  throw FormChanged(message, where);
}

/// What the form of an answer may depend on: the inputs, and the tensors of the host, whose dtype and sizes it may change.
std::vector<at::Tensor> read_by_script(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs) {
  std::vector<at::Tensor> tensors = inputs.vec();
  for (const HostTensor& given : version.compiled.options().host_tensors) tensors.push_back(given.tensor);
  return tensors;
}

/// How another version is asked for its answer.
RunOptions as_asked(const PolicyVersion& version, const RunOptions& options) {
  RunOptions same = options;
  same.donate.clear();
  same.params = those_of(version, options.params);
  return same;
}

}  // namespace

void PolicyCore::run_on_trial(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                              Answer& answer) {
  PolicyVersion& version = *live.version;
  if (!options.params.empty()) override_params(version, live.params, options.params);  // the host's mistake throws here
  const auto begin = Clock::now();
  try {
    RunOptions mine = options;
    mine.donate.clear();  // another version may have to answer
    if (live.before)
      mine.deadline = trial_deadline(options.deadline, version.trial.time_before(), runtime_->options().limits);
    run_version(version, inputs, live.params, mine, answer);
    hold_to_form(live, inputs, options, answer);
    note_answered(version);
    answer.by = Answered::live;
  } catch (const capture::StackError&) {  // of the thread that calls
    throw;
  } catch (const std::exception& error) {
    answer.note_failure(error);
    RunOptions later = options;
    later.deadline = deadline_of_stand_in(options.deadline, begin);
    if (answer_from_before(live, inputs, later, answer, error)) return;
    report_failure(version, error);
    if (on_error(version, options) == OnError::raise || dynamic_cast<const InputError*>(&error)) throw;
    return recover(live, inputs, options, answer);
  }
  if (live.before && overran(options.deadline, begin, version.trial.time_before()))
    go_back(live,
            LimitError(
                fmt::format(
                    "policy '{}' (version {}) returned after the deadline of the call, which version {} would have met",
                    version.name, version.number, live.before->number),
                version.defined_at));
  else if (const auto waited = version.trial.take_wait(); waited && live.before)
    go_back(live, LimitError(*waited, version.defined_at));
  else
    promote(live, inputs);
}

/// Throws FormChanged where the version before would have given another form of answer. What that would be is known for inputs of
/// sizes seen before; for others it is asked, unless a function of the host would be called a second time. False where nobody knows.
bool PolicyCore::check_form(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                            const Answer& given) const {
  PolicyVersion &version = *live.version, &before = *live.before;
  const std::vector<std::string>& names = before.signature.outputs;
  const std::vector<bool> declared = declared_alike(before.signature, version.signature);
  const Form form = form_of(given.outputs, version.compiled.flags_outputs());
  std::optional<Form> expected = version.trial.expected(inputs);
  if (expected && difference(*expected, form, version.trial.open(), names, declared).empty()) return true;
  bool busy = false;
  const auto ask = [&](const Moment& deadline) -> std::optional<Form> {
    try {
      const capture::SyntheticInputs no_host_functions;
      const random::DrawAside draws_aside;  // the answer is for nobody
      Answer answer;
      if (given.state) answer.begin_with(given.began_with());
      RunOptions question = as_asked(before, options);
      question.deadline = deadline;
      run_version(before, inputs, live.before_params, question, answer);
      if (!no_host_functions.stopped()) return form_of(answer.outputs, before.compiled.flags_outputs());
    } catch (const LimitError&) {
      busy = true;
    } catch (const std::exception&) {  // it cannot answer either
    }
    return std::nullopt;
  };
  std::optional<Form> asked = ask(question_deadline(options.deadline, version.trial.time_before()));
  // An answer that nothing is known about waits for what takes longer: it may be of any form.
  if (!asked && busy && !expected && !version.trial.expected_of_kind(inputs)) asked = ask(options.deadline);
  OpenSizes open;
  if (asked) {
    if (expected) version.trial.add_open(*expected, *asked);
    version.trial.expect(inputs, *asked);
    expected = asked;
  } else if (!expected) {
    auto told = version.trial.expected_of_kind(inputs);
    if (!told) return false;
    expected = std::move(told->first);
    open = std::move(told->second);
  }
  open.merge(version.trial.open());
  const std::string change = difference(*expected, form, open, names, declared);
  if (!change.empty()) throw_changed(version, change, fmt::format("version {}", before.number));
  return true;
}

/// Throws FormChanged where the answer has another form than callers got before for such inputs, and the version before it would not
/// give that one either. Where there is none, sizes are free.
void PolicyCore::hold_to_form(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                              const Answer& given) const {
  using Seen = AnswerForms::Seen;
  PolicyVersion& version = *live.version;
  const bool of_this_call = !live.before && !options.params.empty();
  std::vector<bool> kept;
  const AnswerForms::Outputs outputs{given.outputs, given.flags_outputs(kept), version.signature};
  if (of_this_call || !outputs.defined()) return;
  const bool is_asked = live.before && version.trial.on();
  const std::vector<at::Tensor> decisive = read_by_script(version, inputs);
  const Seen seen = version.forms.look(decisive, outputs);
  if (seen == Seen::fits && !is_asked) return;
  const bool confirmed = live.before && check_form(live, inputs, options, given);
  if (const auto known = version.forms.known(decisive); seen == Seen::other && !confirmed && known)
    throw_changed(version,
                  difference(*known, form_of(given.outputs, outputs.is_flags), {}, version.known_signature().outputs,
                             declared_alike(version.signature, version.signature)),
                  "its answers so far");
  version.forms.accept(decisive, outputs);
}

/// Calls count only while the version is live: one that was taken back stays on trial for the calls that are still inside it.
void PolicyCore::promote(const Live& live, at::ArrayRef<at::Tensor> inputs) {
  afterwards(runtime_->logger(), [&] {
    bool is_settled = false;
    {
      const std::lock_guard lock(mutex_);
      if (live_.load(std::memory_order_relaxed)->version != live.version) return;
      const Trial::Progress progress = live.version->trial.pass(inputs);
      if (progress == Trial::Progress::going_on) return;
      if (progress == Trial::Progress::over) {
        Staged staged = stage(live.version, params_);
        staged.known = known_sources_.to_note(live.version->contents, /*proven=*/true);
        commit(std::move(staged));
        is_settled = choice_ && choice_->retries(live.version->contents.source);
        if (is_settled) choice_.reset();
      }
    }
    drop_unfitting_state();
    keep_source();
    if (is_settled) keep_choice();
    if (bundle_) bundle_->end_trial();
  });
}

/// `live.version` has failed. Where the version before it can answer, it does, and is live again; else the inputs are at fault, and
/// false is returned. A call on trial that only waited for another one, which its budget ends, leaves it to that one to say what is
/// wrong.
bool PolicyCore::answer_from_before(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                                    Answer& answer, const std::exception& error) {
  if (!live.before) return false;
  answer.outputs.clear();
  try {
    run_version(*live.before, inputs, live.before_params, as_asked(*live.before, options), answer);
    answer.by = Answered::previous;
  } catch (const std::exception&) {
    answer.outputs.clear();
    return false;
  }
  Trial& trial = live.version->trial;
  const bool waited =
      dynamic_cast<const capture::WaitedError*>(&error) && Deadline::span(runtime_->options().limits.seconds);
  if (waited && trial.on())
    trial.note_wait(error.what());
  else
    go_back(live, error);
  return true;
}

void PolicyCore::go_back(const Live& live, const std::exception& error) {
  const Source where = source_of(error, live.version->defined_at, path_);
  if (bundle_) {
    if (!bundle_->go_back(*this, *live.version, *live.before, {error.what(), where, std::chrono::system_clock::now()}))
      report_failure(*live.version, error);
    return;
  }
  std::shared_ptr<PolicyVersion> before;
  {
    const std::lock_guard lock(mutex_);
    const Live& now = *live_.load(std::memory_order_relaxed);
    if (now.version != live.version) {  // another call, or a reload, was first
      live.version->failures.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (!pinned_) before = live.before->can_stand_in() ? live.before : now.before;  // it may have been taken back since
    if (before) {
      LoadFailure failure{error.what(), where, std::chrono::system_clock::now()};
      Reversal reversal{before->number, failure};
      auto choice = choice_after_failure(*before, error.what());
      commit(take_back(*live.version, [&] { return stage(before, params_); }));
      live.version->failures.fetch_add(1, std::memory_order_relaxed);
      ++reverted_;
      known_sources_.forget(live.version->contents);
      choice_ = std::move(choice);
      last_error_ = std::move(failure);
      reversal_ = std::move(reversal);
    }
  }
  if (!before) return report_failure(*live.version, error);
  afterwards(runtime_->logger(), [&] {
    keep_source();
    keep_choice();
    log(LogLevel::error,
        fmt::format("policy '{}': version {} failed, version {} is live again: {}", name_, live.version->number,
                    before->number, error.what()),
        error.what(), live.version->number);
    tell_params(*before);
    tell_state(*before);
    runtime_->wake_watches();
  });
}

}  // namespace triage::policy
