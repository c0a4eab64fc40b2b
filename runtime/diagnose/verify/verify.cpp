#include "runtime/diagnose/verify/verify.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/verify/trial.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

using Verdict = LawResult::Verdict;

/// A batch of samples that are answered may fail: then that is told, and what was found is kept.
void try_law(TrialState& state, Law law, void (*check)(TrialState&)) {
  LawTrial trial(state);
  if (!trial.promise(law).kept && law != Law::answers) {
    trial.result(law).verdict = Verdict::not_promised;
    return;
  }
  if (state.samples.empty()) return trial.not_tried(law, "each sample makes the call fail");
  try {
    check(state);
  } catch (const std::exception& error) {
    if (trial.result(law).verdict == Verdict::held) trial.not_tried(law, messages::message_of(error));
  }
}

/// Numbers that the policy computes of constants: what is the same for two samples. Comparisons have their sides there,
/// too.
void add_computed_numbers(TrialState& state) {
  constexpr size_t most = 64;
  constexpr int64_t most_elements = 4;
  const auto record = [&](const TriedSample& sample) {
    return state.subject.record(batch_of(state.inputs, &sample, &sample + 1));
  };
  const Recording one = record(state.samples.front()), other = record(state.samples.back());
  for (size_t i = 0; i < common_steps(one, other); ++i)
    for (const size_t result : one.steps[i].results) {
      const at::Tensor &value = one.values[result].tensor, &again = other.values[result].tensor;
      if (!value.defined() || !value.is_floating_point() || value.numel() > most_elements || !same_kind(value, again) ||
          !same_bits(value, again))
        continue;
      for (int64_t k = 0; k < value.numel(); ++k)
        if (const auto number = value.reshape({-1})[k].item<double>();
            std::isfinite(number) && number != 0 && std::abs(number) != 1 && state.numbers.size() < most)
          state.numbers.push_back(number);
    }
}

}  // namespace

Verification check_laws(VerifySubject& subject, const std::vector<IsolationInput>& inputs, const LawsOptions& options) {
  TrialState state(subject, inputs, options);
  if (!learn(state)) return std::move(state.found);
  state.numbers = subject.numbers();
  if (state.samples.size() > 1) add_computed_numbers(state);
  state.samples = samples_to_try(state.inputs, state.numbers);
  const std::pair<Law, void (*)(TrialState&)> all[] = {{Law::answers, try_answers},     {Law::finite, try_finite},
                                                       {Law::unchanged, try_unchanged}, {Law::order, try_order},
                                                       {Law::stable, try_stable},       {Law::gradients, try_gradients},
                                                       {Law::isolated, try_isolated}};
  for (const auto& [law, check] : all) {
    if (options.progress) options.progress(to_string(law));
    try_law(state, law, check);
  }
  state.found.samples = state.samples.size();
  return std::move(state.found);
}

void merge(Verification& all, Verification one) {
  all.samples += one.samples;
  all.calls += one.calls;
  if (all.laws.empty()) {
    all.laws = std::move(one.laws);
    return;
  }
  for (size_t i = 0; i < all.laws.size(); ++i) {
    LawResult &known = all.laws[i], &more = one.laws[i];
    if (more.verdict == Verdict::broken || known.verdict == Verdict::not_tried) {
      known.verdict = known.verdict == Verdict::broken ? Verdict::broken : more.verdict;
      if (known.verdict != Verdict::not_tried) known.why.clear();
    }
    for (Violation& violation : more.violations) add_to(known, std::move(violation));
  }
}

}  // namespace triage::diagnose
