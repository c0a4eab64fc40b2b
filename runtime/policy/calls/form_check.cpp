// Whether an answer has the form that callers know, or that the version before would give.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/capture/recording/recorder.h"
#include "runtime/policy/calls/call.h"
#include "runtime/policy/trials/answer_forms.h"
#include "runtime/random/sequence.h"

namespace triage::policy {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

/// For a question that the answer does not depend on: some other call may be inside the script of the version before
/// for long.
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

/// What the form of an answer may depend on: the inputs, and the tensors of the host, whose dtype and sizes it may
/// change.
std::vector<at::Tensor> read_by_script(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs) {
  std::vector<at::Tensor> tensors = inputs.vec();
  for (const HostTensor& given : version.compiled.options().host_tensors) tensors.push_back(given.tensor);
  return tensors;
}

}  // namespace

/// Throws FormChanged where the version before would have given another form of answer. What that would be is known for
/// inputs of sizes seen before; for others it is asked, unless a function of the host would be called a second time.
/// False where nobody knows.
bool PolicyCall::is_form_of_before() const {
  PolicyVersion &version = *asked_->version, &before = *asked_->before;
  const std::vector<std::string>& names = before.signature.outputs;
  const std::vector<bool> declared = declared_alike(before.signature, version.signature);
  const Form form = form_of(answer_.outputs, version.compiled.flags_outputs());
  std::optional<Form> expected = version.trial.expected(inputs_);
  if (expected && difference(*expected, form, version.trial.open(), names, declared).empty()) return true;
  bool busy = false;
  const auto ask = [&](const Moment& deadline) -> std::optional<Form> {
    try {
      const capture::SyntheticInputs no_host_functions;
      const random::DrawAside draws_aside;  // the answer is for nobody
      Answer answer;
      if (answer_.state) answer.begin_with(answer_.began_with());
      RunOptions question = as_asked(before, options_);
      question.deadline = deadline;
      VersionCall{before, inputs_, asked_->before_params, question}.run(answer);
      if (!no_host_functions.stopped()) return form_of(answer.outputs, before.compiled.flags_outputs());
    } catch (const LimitError&) {
      busy = true;
    } catch (const std::exception&) {  // it cannot answer either
    }
    return std::nullopt;
  };
  std::optional<Form> told = ask(question_deadline(options_.deadline, version.trial.time_before()));
  // An answer that nothing is known about waits for what takes longer: it may be of any form.
  if (!told && busy && !expected && !version.trial.expected_of_kind(inputs_)) told = ask(options_.deadline);
  OpenSizes open;
  if (told) {
    if (expected) version.trial.add_open(*expected, *told);
    version.trial.expect(inputs_, *told);
    expected = told;
  } else if (!expected) {
    auto usual = version.trial.expected_of_kind(inputs_);
    if (!usual) return false;
    expected = std::move(usual->first);
    open = std::move(usual->second);
  }
  open.merge(version.trial.open());
  const std::string change = difference(*expected, form, open, names, declared);
  if (!change.empty()) throw_changed(version, change, fmt::format("version {}", before.number));
  return true;
}

/// Throws FormChanged where the answer has another form than callers got before for such inputs, and the version before
/// it would not give that one either. Where there is none before, sizes are free.
void PolicyCall::hold_to_form() const {
  using Seen = AnswerForms::Seen;
  PolicyVersion& version = *asked_->version;
  const bool of_this_call = !asked_->before && !options_.params.empty();
  const AnswerForms::AnswerOutputs outputs{answer_.outputs, answer_.flags_outputs(), version.signature};
  if (of_this_call || !outputs.defined()) return;
  const bool is_asked = asked_->before && version.trial.compares();
  const std::vector<at::Tensor> decisive = read_by_script(version, inputs_);
  const Seen seen = version.forms.look(decisive, outputs);
  if (seen == Seen::fits && !is_asked) return;
  const bool confirmed = asked_->before && is_form_of_before();
  if (const auto known = version.forms.known(decisive); seen == Seen::other && !confirmed && known)
    throw_changed(version,
                  difference(*known, form_of(answer_.outputs, outputs.is_flags), {}, version.known_signature().outputs,
                             declared_alike(version.signature, version.signature)),
                  "its answers so far");
  version.forms.accept(decisive, outputs);
}

}  // namespace triage::policy
