#include "runtime/policy/candidates/shadow.h"
#include "runtime/compat/readable_memory.h"

#include "runtime/backends/deadline.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/graph/output_names.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/trials/form.h"
#include "runtime/policy/versions/version_call.h"
#include "runtime/random/sequence.h"
#include "runtime/typing/first_state.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

namespace triage::policy {
namespace {

at::Tensor copied(const at::Tensor& tensor) {
  const c10::InferenceMode as_it_is(tensor.is_inference());
  at::Tensor copy = tensor.detach().clone();
  if (tensor.requires_grad() && copy.is_leaf()) copy.requires_grad_();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

/// By location and code, as one number.
using ErrorKind = uint16_t;
/// Of the candidate, with a code that the live version calls otherwise: no kind of the live version is the same.
constexpr ErrorKind renamed = 1u << (LOCATION_SHIFT - CODE_SHIFT + LOCATION_BITS);

Code code_of(ErrorKind kind) { return static_cast<Code>(kind & CODE_MASK); }

/// Errors by sample, each kind once. `codes` of the version whose errors they are, `others` of the live one.
std::map<int64_t, std::vector<ErrorKind>> by_sample(const FlaggedSamples& found, const CodeNames& codes,
                                                    const CodeNames& others) {
  const auto kind_of = [&](const SampleError& error) {
    const auto kind = static_cast<ErrorKind>(error.slot >> CODE_SHIFT);
    const bool same = codes == others || code_name(code_of(kind), codes) == code_name(code_of(kind), others);
    return static_cast<ErrorKind>(same ? kind : kind | renamed);
  };
  std::map<int64_t, std::vector<ErrorKind>> samples;
  for (const SampleError& error : found.errors) samples[error.sample].push_back(kind_of(error));
  for (auto& [sample, kinds] : samples) {
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  }
  return samples;
}

/// The largest absolute difference in each row; 0 for two NaN, infinite where only one value is finite or NaN.
at::Tensor row_differences(const at::Tensor& before, const at::Tensor& after, int64_t rows) {
  if (before.is_complex())
    return row_differences(at::view_as_real(before.contiguous()), at::view_as_real(after.contiguous()), rows);
  const at::Tensor a = before.reshape({rows, -1}).to(at::kDouble), b = after.reshape({rows, -1}).to(at::kDouble);
  const at::Tensor same = a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const at::Tensor difference = (a - b).abs().nan_to_num(infinite, infinite, -infinite);
  return std::get<0>(difference.masked_fill(same, 0).max(1));
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const void *const one = compat::readable_memory(a), *const other = compat::readable_memory(b);
  return one && other && a.is_contiguous() && b.is_contiguous() && std::memcmp(one, other, a.nbytes()) == 0;
}

/// Compares one call.
class Comparing {
 public:
  Comparing(const ShadowCall& call, const Answer& answer, ShadowReport& report)
      : call_(call),
        answer_(answer),
        report_(report),
        options_(call.candidate->shadow),
        live_codes_(call.live->signature.codes),
        candidate_codes_(call.candidate->version->signature.codes) {}

  void run(const FlaggedSamples& live, const FlaggedSamples& candidate, int64_t rows) {
    compare_flags(by_sample(live, live_codes_, live_codes_), by_sample(candidate, candidate_codes_, live_codes_));
    std::vector<bool> flagged(static_cast<size_t>(rows)), differ(static_cast<size_t>(rows));
    for (const auto* found : {&live, &candidate})
      for (const SampleError& error : found->errors)
        if (error.sample < rows) flagged[static_cast<size_t>(error.sample)] = true;
    for (size_t i = 0; i < call_.outputs.size(); ++i)
      if (!is_flags(i)) compare_output(i, rows, differ);
    for (size_t sample = 0; sample < differ.size(); ++sample) {
      report_.different += differ[sample];
      report_.different_unflagged += differ[sample] && !flagged[sample];
    }
  }

 private:
  using BySample = std::map<int64_t, std::vector<ErrorKind>>;

  bool is_flags(size_t output) const { return output < call_.flags_outputs.size() && call_.flags_outputs[output]; }

  std::string name_of(int64_t sample) const {
    const auto index = static_cast<size_t>(sample);
    return index < call_.sample_ids.size() ? call_.sample_ids[index] : std::to_string(sample);
  }

  void compare_flags(const BySample& live, const BySample& candidate) {
    static const auto& none = *new std::vector<ErrorKind>;
    const auto kinds = [](const BySample& samples, int64_t sample) -> const std::vector<ErrorKind>& {
      const auto found = samples.find(sample);
      return found == samples.end() ? none : found->second;
    };
    for (const auto& [sample, of_live] : live) note_kinds(sample, of_live, kinds(candidate, sample), /*live=*/true);
    for (const auto& [sample, of_candidate] : candidate)
      note_kinds(sample, of_candidate, kinds(live, sample), /*live=*/false);
  }

  void note_kinds(int64_t sample, const std::vector<ErrorKind>& mine, const std::vector<ErrorKind>& others, bool live) {
    if (others.empty()) ++(live ? report_.only_live : report_.only_candidate);
    for (const ErrorKind kind : mine) {
      if (std::binary_search(others.begin(), others.end(), kind)) continue;
      FlagDifference& difference = find(kind, sample);
      ++(live ? difference.only_live : difference.only_candidate);
    }
  }

  FlagDifference& find(ErrorKind kind, int64_t sample) {
    const int64_t location = kind >> (LOCATION_SHIFT - CODE_SHIFT) & LOCATION_MASK;
    const Code code = code_of(kind);
    const std::string& name = code_name(code, kind & renamed ? candidate_codes_ : live_codes_);
    const auto known = std::find_if(report_.flags.begin(), report_.flags.end(), [&](const FlagDifference& one) {
      return one.location == location && one.code == code && one.code_name == name;
    });
    if (known != report_.flags.end()) return *known;
    return report_.flags.emplace_back(FlagDifference{location, code, 0, 0, name_of(sample), name});
  }

  /// An output without a row for each sample is one row.
  void compare_output(size_t index, int64_t rows, std::vector<bool>& differ) {
    const at::Tensor &before = call_.outputs[index], &after = answer_.outputs[index];
    if (before.numel() == 0 || same_bits(before, after)) return;
    const bool by_rows = before.dim() > 0 && before.size(0) == rows;
    const at::Tensor differences = row_differences(before, after, by_rows ? rows : 1);
    const auto* const values = differences.data_ptr<double>();
    for (int64_t row = 0; row < differences.numel(); ++row) {
      if (!(values[row] > options_.tolerance)) continue;
      report_.max_difference = std::max(report_.max_difference, values[row]);
      if (by_rows) differ[static_cast<size_t>(row)] = true;
      if (report_.examples.size() < options_.examples)
        report_.examples.push_back({call_.decision_id, by_rows ? name_of(row) : "all",
                                    graph::output_name(call_.live->signature.outputs, index), values[row]});
    }
  }

  const ShadowCall& call_;
  const Answer& answer_;
  ShadowReport& report_;
  const ShadowOptions& options_;
  const CodeNames& live_codes_;
  const CodeNames& candidate_codes_;
};

Counters::Flagged numbers_of(const FlaggedSamples& found) {
  Counters::Flagged numbers{static_cast<uint64_t>(found.samples)};
  int64_t last = -1;
  for (const SampleError& error : found.errors)
    if (std::exchange(last, error.sample) != error.sample) ++numbers.flagged;
  return numbers;
}

}  // namespace

std::vector<at::Tensor> copied(at::ArrayRef<at::Tensor> tensors) {
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto same = std::find_if(tensors.begin(), tensors.begin() + static_cast<ptrdiff_t>(i),
                                   [&](const at::Tensor& other) { return other.is_same(tensors[i]); });
    const auto before = static_cast<size_t>(same - tensors.begin());
    copies.push_back(before < i ? copies[before] : copied(tensors[i]));
  }
  return copies;
}

size_t bytes_of(at::ArrayRef<at::Tensor> tensors) noexcept {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.layout() == c10::kStrided) bytes += tensor.nbytes();
  return bytes;
}

namespace {

/// A call that the candidate failed, or answered in another form.
void count_shadow_failure(Comparison& comparison, const std::string& why) {
  comparison.change_shadow([](ShadowReport& report) { ++report.failed; });
  comparison.note_failure(why);
}

/// Counts what differs between the answer that the call got and that of the candidate.
void compare_answers(const ShadowCall& call, const Answer& answer, std::chrono::nanoseconds time) {
  const std::vector<bool>& is_flags = answer.flags_outputs();
  const std::vector<std::string>& names = call.live->signature.outputs;
  const std::string change =
      difference(form_of(call.outputs, call.flags_outputs), form_of(answer.outputs, is_flags), {}, names,
                 declared_alike(call.live->signature, call.candidate->version->signature));
  if (!change.empty()) return count_shadow_failure(*call.comparison, fmt::format("the candidate changes {}", change));
  for (size_t i = 0; i < call.outputs.size(); ++i)
    if (call.outputs[i].sizes() != answer.outputs[i].sizes() ||
        call.outputs[i].scalar_type() != answer.outputs[i].scalar_type())
      return call.comparison->not_comparable(
          "the size or dtype of an output differs, which depends on values, or is open in its declared type");
  const std::vector<size_t> none;
  const auto flagged = [&](at::ArrayRef<at::Tensor> outputs) {
    return flagged_samples({call.inputs, outputs, call.live->signature.inputs, names, call.flags_outputs, none});
  };
  const FlaggedSamples live = flagged(call.outputs), candidate = flagged(answer.outputs);
  const int64_t rows = rows_of(call.inputs);
  const auto timed = [&](std::chrono::nanoseconds took, bool wanted) {
    return wanted ? std::optional(took) : std::nullopt;
  };
  call.comparison->change_shadow([&](ShadowReport& report) {
    Comparing(call, answer, report).run(live, candidate, rows);
    // Before `compared`, so that who sees that sees these.
    call.comparison->live.note(timed(call.time, call.timed), numbers_of(live));
    call.comparison->candidate.note(timed(time, answer.ran.form != CallForm::capture), numbers_of(candidate));
    ++report.compared;
    report.samples += static_cast<uint64_t>(rows);
  });
}

}  // namespace

void run_in_shadow(ShadowCall& call, const Limits& limits) {
  PolicyVersion& version = *call.candidate->version;
  const capture::SyntheticInputs no_host_functions;
  Answer answer;
  if (call.state) answer.begin_with(call.state);
  std::chrono::nanoseconds time{0};
  std::string failure;
  try {
    const at::ThreadLocalStateGuard as_called(call.thread);
    const random::DrawAside draws_aside;
    RunOptions options;
    options.deadline = Deadline::in(10 * limits.seconds);
    const auto begin = std::chrono::steady_clock::now();
    VersionCall{version, call.inputs, call.params, options, /*may_be_recorded=*/false}.run(answer);
    time = std::chrono::steady_clock::now() - begin;
  } catch (const std::exception& error) {
    failure = error.what();
    if (failure.empty()) failure = "an error without a message";
  }
  if (no_host_functions.stopped()) return call.comparison->not_comparable("the candidate calls a function of the host");
  if (answer.ran.entry && answer.ran.entry->draws)
    return call.comparison->not_comparable("the candidate draws random numbers");
  const bool reverts = version.on_violation == OnViolation::revert;
  if (reverts && answer.violations && answer.violations->read())
    failure = fmt::format("it has {} out of range", answer.violations->text(version.signature));
  if (!failure.empty()) return count_shadow_failure(*call.comparison, failure);
  try {
    const at::NoGradGuard no_grad;
    compare_answers(call, answer, time);
  } catch (const std::exception& error) {
    call.comparison->not_comparable(fmt::format("its outputs cannot be compared: {}", error.what()));
  }
}

}  // namespace triage::policy
