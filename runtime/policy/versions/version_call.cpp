#include "runtime/policy/versions/version_call.h"

#include <c10/util/SmallVector.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <new>

#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/versions/recorded_call.h"

namespace triage::policy {

void VersionCall::run(Answer& answer) const {
  if (may_be_recorded && (capsule::wanted() || answer.capsules)) [[unlikely]]
    return RecordedCall(*this).run(answer);
  const size_t num_hidden = capture::num_hidden(version.signature);
  const bool needs_inputs = version.signature.num_ranges() > 0 && version.on_violation != OnViolation::flag;
  c10::SmallVector<at::Tensor, 4> given;
  for (const size_t index : options.donate)
    if (!needs_inputs && may_be_taken(inputs[index])) given.push_back(inputs[index]);
  const CallContext call{options.deadline, given};
  const operators::Untrusted graphs(version.held_to());
  answer.version = &version;
  answer.violations.reset();
  answer.positions.clear();
  if (answer.state) [[unlikely]]
    answer.state->begin_again();  // another version may have been asked, with state of other names
  const bool has_state = !version.signature.state.empty();
  try {
    answer.ran = options.params.empty() && !has_state
                     ? version.compiled.run(inputs, params, call, answer.outputs)
                     : version.compiled.run(inputs, values(answer), call, answer.outputs);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // what ATen throws: mostly c10::Error
    throw PolicyError(fmt::format("policy '{}' (version {}) failed: {}", version.name, version.number,
                                  messages::message_without_backtrace(error)),
                      {version.path, 0});
  }
  std::vector<FirstPositions> positions;
  if (!version.signature.positions.empty()) [[unlikely]]
    positions = take_positions(version.signature, answer.outputs);
  auto violations = num_hidden > 0 ? take_violations(version.signature, answer.outputs) : nullptr;
  std::optional<std::string> failure;
  if (has_state) [[unlikely]]
    failure = take_state(version.signature, inputs, *answer.state, answer.outputs);
  if (!failure && !version.output_types.empty() && !version.output_types.fit(inputs, answer.outputs))
    failure = output_failure(version.signature, inputs, answer.outputs);
  if (failure) [[unlikely]]
    throw_at(version, ": " + *failure);
  answer.violations = std::move(violations);
  answer.positions = std::move(positions);
  if (answer.violations) [[unlikely]]
    mark_violations(answer);
}

/// The params of the call, and the state that the version begins with.
std::vector<at::Tensor> VersionCall::values(Answer& answer) const {
  std::vector<at::Tensor> values = override_params(version, params, options.params);
  if (version.signature.state.empty()) return values;
  if (!answer.state) answer.begin_with(nullptr);
  begin_state(version.signature, inputs, *answer.state, version.held_to() ? version.held_to()->bytes : 0);
  values.insert(values.end(), answer.state->given.begin(), answer.state->given.end());
  return values;
}

/// Whether outputs may take over a donated input. Graphs look at what they read; these tensors belong to later calls.
bool VersionCall::may_be_taken(const at::Tensor& input) const {
  const auto& host_tensors = version.compiled.options().host_tensors;
  return !shares_memory(input, params) &&
         std::none_of(host_tensors.begin(), host_tensors.end(),
                      [&](const HostTensor& given) { return share_memory(given.tensor, input); });
}

void VersionCall::mark_violations(Answer& answer) const {
  const std::vector<bool>& is_flags = answer.flags_outputs();
  flag(*answer.violations, version.signature, is_flags, answer.outputs);
  if (version.on_violation == OnViolation::pass_through)
    pass_rows_through(*answer.violations, version.signature, is_flags, inputs, answer.outputs);
}

RunOptions as_asked(const PolicyVersion& version, const RunOptions& options) {
  RunOptions same = options;
  same.donate.clear();
  same.params = those_of(version, options.params);
  return same;
}

}  // namespace triage::policy
