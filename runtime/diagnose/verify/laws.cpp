#include <triage/verify.h>

#include <algorithm>

namespace triage {

const char* to_string(Law law) noexcept {
  static constexpr const char* names[] = {"answers", "finite", "unchanged", "isolated", "order", "stable", "gradients"};
  return names[static_cast<size_t>(law)];
}

const char* text_of(Law law) noexcept {
  static constexpr const char* texts[] = {
      "no sample makes a call fail",
      "NaN and Inf leave only with a record that tells of them, behind its last repair",
      "a sample without an entry in its record keeps its bits",
      "a bad sample changes no other one, in its call and in the next one",
      "the record of a sample depends neither on its place in the batch nor on the size of the batch",
      "the policy changes nothing in its own outputs",
      "no sample leaves NaN or Inf in the gradient of an input"};
  return texts[static_cast<size_t>(law)];
}

const char* to_string(LawResult::Verdict verdict) noexcept {
  static constexpr const char* names[] = {"held", "broken", "not_promised", "not_tried"};
  return names[static_cast<size_t>(verdict)];
}

bool Verification::ok() const noexcept {
  using Verdict = LawResult::Verdict;
  const auto is = [](Verdict verdict) { return [=](const LawResult& result) { return result.verdict == verdict; }; };
  return std::none_of(laws.begin(), laws.end(), is(Verdict::broken)) &&
         std::any_of(laws.begin(), laws.end(), is(Verdict::held));
}

}  // namespace triage
