#include "runtime/diagnose/verify/blame.h"

#include <ATen/ATen.h>
#include <triage/config.h>
#include <triage/flags.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/verify/answers.h"
#include "runtime/diagnose/verify/taken.h"

namespace triage::diagnose {
namespace {

/// A recording, asked from its results back.
class RecordingIndex {
 public:
  explicit RecordingIndex(const Recording& recording) : recording_(recording), producers_(recording.values.size()) {
    for (size_t i = 0; i < recording.steps.size(); ++i)
      for (const size_t result : recording.steps[i].results) producers_[result] = i;
  }

  std::optional<size_t> producer(size_t value) const { return producers_[value]; }
  const RecordedStep& step(size_t index) const { return recording_.steps[index]; }
  const Value& value(size_t index) const { return recording_.values[index]; }
  const at::Tensor& tensor(size_t index) const { return recording_.values[index].tensor; }
  std::optional<size_t> output(size_t index) const {
    return index < recording_.outputs.size() ? recording_.outputs[index] : std::nullopt;
  }
  const Recording& recording() const { return recording_; }

 private:
  const Recording& recording_;
  std::vector<std::optional<size_t>> producers_;
};

/// What is followed from an output back.
class BadElements {
 public:
  BadElements(const at::Tensor& output, const std::optional<OutputRange>& range) {
    if (const at::Tensor nan = output.isnan(); nan.any().item<bool>()) {
      kind_ = Kind::nan;
      mask_ = nan;
    } else if (const at::Tensor inf = at::isinf(output); inf.any().item<bool>()) {
      kind_ = Kind::inf;
      mask_ = inf;
    } else if (range) {
      mask_ = outside(output, *range);
    }
  }

  enum class Kind : uint8_t { nan, inf, value };
  Kind kind() const { return kind_; }
  /// Of the output; undefined where there are none.
  const at::Tensor& mask() const { return mask_; }

  /// Those of a part of an operand; of values that are not to be here, those that left as they were.
  at::Tensor in(const at::Tensor& from, const at::Tensor& result, const at::Tensor& part) const {
    if (kind_ == Kind::nan) return from.isnan().logical_and(part);
    if (kind_ == Kind::inf) return at::isinf(from).logical_and(part);
    if (from.numel() != result.numel() || from.is_complex() != result.is_complex()) return at::zeros_like(part);
    return from.eq(result.reshape(from.sizes())).logical_and(part);
  }

 private:
  Kind kind_ = Kind::value;
  at::Tensor mask_;
};

/// Where the recording does not show what a call did, with more samples or another state: the last operator that has a
/// line.
std::optional<RecordedStep> last_with_line(const RecordingIndex& ways, size_t value) {
  for (std::optional<size_t> producer = ways.producer(value); producer; producer = ways.producer(value)) {
    const RecordedStep& step = ways.step(*producer);
    if (!step.is_view && !step.source.file.empty()) return step;
    if (step.reads.empty()) break;
    value = step.reads.front();
  }
  return std::nullopt;
}

using Entries = std::vector<flags::UnpackedError>;

/// The entries of the only record; nothing where there is none, or several.
std::optional<Entries> only_record(const Value& flags) {
  if (!flags.tensor.defined() || flags.tensor.dim() != 2 || flags.tensor.size(0) != 1) return std::nullopt;
  return flags::unpack(flags.tensor, 0);
}

bool has_error(const Entries& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const auto& one) { return one.severity >= Severity::error; });
}

/// Every slot of its only record has an entry.
bool is_full(const Value& flags) {
  constexpr int64_t bits_of_slot = 16;
  const std::optional<Entries> entries = only_record(flags);
  if (!entries) return false;
  const int64_t bits = flags.tensor.size(1) * static_cast<int64_t>(flags.tensor.element_size()) * 8;
  return static_cast<int64_t>(entries->size()) >= std::min(bits / bits_of_slot, get_config().num_slots);
}

/// The first operator that was to add an entry to a full record, and did not.
std::optional<RecordedStep> lost_an_entry(const Recording& recording) {
  for (const RecordedStep& step : recording.steps)
    for (const size_t read : step.reads)
      for (const size_t result : step.results) {
        const Value &before = recording.values[read], &after = recording.values[result];
        if (before.is_flags && after.is_flags && is_full(before) && is_full(after) &&
            same_kind(before.tensor, after.tensor) && step.reads.size() + step.results.size() > 2)
          return step;
      }
  return std::nullopt;
}

/// No record of a batch of one sample has an entry of an error.
bool is_clean(const Recording& recording) {
  for (const auto& output : recording.outputs) {
    if (!output || !recording.values[*output].is_flags) continue;
    const std::optional<Entries> entries = only_record(recording.values[*output]);
    if (!entries || has_error(*entries)) return false;
  }
  return true;
}

bool comes_from(const RecordingIndex& ways, size_t value, size_t input) {
  std::vector<size_t> open{value};
  for (std::set<size_t> seen; !open.empty();) {
    const size_t next = open.back();
    open.pop_back();
    if (next == input) return true;
    if (!seen.insert(next).second) continue;
    if (const auto producer = ways.producer(next))
      open.insert(open.end(), ways.step(*producer).reads.begin(), ways.step(*producer).reads.end());
  }
  return false;
}

/// What made a mask out of values: behind views, `any` and logic.
size_t origin_of_mask(const RecordingIndex& ways, size_t mask) {
  for (auto producer = ways.producer(mask); producer; producer = ways.producer(mask)) {
    const std::vector<size_t>& reads = ways.step(*producer).reads;
    const auto from = std::find_if(reads.begin(), reads.end(), [&](size_t read) {
      return ways.tensor(read).defined() && ways.tensor(read).scalar_type() == at::kBool && ways.producer(read);
    });
    if (from == reads.end()) break;
    mask = *from;
  }
  return mask;
}

/// The operator that took the last entry of an error out of the only record.
std::optional<RecordedStep> cleared(const Recording& recording) {
  const auto is_flags = [&](size_t value) { return recording.values[value].is_flags; };
  const auto tells_error = [&](size_t value) {
    const auto entries = is_flags(value) ? only_record(recording.values[value]) : std::nullopt;
    return entries && has_error(*entries);
  };
  for (const RecordedStep& step : recording.steps) {
    if (!std::any_of(step.results.begin(), step.results.end(), is_flags)) continue;
    if (std::any_of(step.reads.begin(), step.reads.end(), tells_error) &&
        std::none_of(step.results.begin(), step.results.end(), tells_error) && !step.source.file.empty())
      return step;
  }
  return std::nullopt;
}

/// The last operator that looked for bad values of `input`, or that made a mask of them for `push`: it saw none.
/// `what`: the other kind was not looked for.
std::optional<RecordedStep> last_search(const RecordingIndex& ways, size_t input, BadElements::Kind what) {
  const auto looks_for_another = [&](const std::string& op) {
    if (what == BadElements::Kind::nan) return op.rfind("triage::flag_inf", 0) == 0 || op.rfind("aten::isinf", 0) == 0;
    if (what == BadElements::Kind::inf) return op == "triage::flag_nan" || op.rfind("aten::isnan", 0) == 0;
    return false;
  };
  std::optional<RecordedStep> last;
  for (const RecordedStep& step : ways.recording().steps) {
    const bool pushes = step.op.rfind("triage::push", 0) == 0;
    if (!pushes && step.op.rfind("triage::flag_", 0) != 0) continue;
    for (const size_t read : step.reads) {
      if (ways.value(read).is_flags || !comes_from(ways, read, input)) continue;
      const auto mask = pushes ? ways.producer(origin_of_mask(ways, read)) : std::nullopt;
      const RecordedStep& search = mask && !ways.step(*mask).source.file.empty() ? ways.step(*mask) : step;
      const bool is_better = !last || looks_for_another(last->op) || !looks_for_another(search.op);
      if (!search.source.file.empty() && is_better) last = search;
    }
  }
  return last;
}

/// The last operator with a line that made a record which is returned.
std::optional<RecordedStep> made_flags(const RecordingIndex& ways) {
  for (const auto& output : ways.recording().outputs)
    if (output && ways.value(*output).is_flags)
      if (const auto step = last_with_line(ways, *output)) return step;
  return std::nullopt;
}

bool is_fallback(const RecordedStep& step, size_t read) {
  return step.op.rfind("triage::fix", 0) == 0 && step.reads.size() > 2 && step.reads[2] == read;
}

}  // namespace

std::optional<RecordedStep> made_bad(const Recording& recording, size_t output, const std::optional<OutputRange>& range,
                                     std::optional<int64_t> row) {
  const RecordingIndex ways(recording);
  std::optional<size_t> value = ways.output(output);
  if (!value || !ways.tensor(*value).defined()) return std::nullopt;
  const BadElements bad(ways.tensor(*value), range);
  at::Tensor mask = bad.mask();
  if (row && mask.defined() && mask.dim() > 0 && *row < mask.size(0)) {
    const at::Tensor only = at::zeros_like(mask);
    only.select(0, *row).copy_(mask.select(0, *row));
    mask = only;
  }
  if (!mask.defined() || !mask.any().item<bool>()) return last_with_line(ways, *value);
  std::optional<RecordedStep> last;
  for (std::set<size_t> seen; seen.insert(*value).second;) {
    const std::optional<size_t> producer = ways.producer(*value);
    if (!producer) break;
    const RecordedStep& step = ways.step(*producer);
    if ((!last || last->source.file.empty()) && !step.is_view) last = step;
    std::optional<size_t> next;
    for (const ValueElements& part : parts_behind(recording, step, *value, mask)) {
      const at::Tensor came = bad.in(ways.tensor(part.value), ways.tensor(*value), part.mask);
      if (!came.any().item<bool>()) continue;
      next = part.value;
      mask = came;
      break;
    }
    if (!next) return step.source.file.empty() && last ? last : step;
    if (is_fallback(step, *next) && ways.producer(*next))
      last.reset();  // then what let it into the fallback is to blame
    value = next;
  }
  if (row) return last;
  if (const auto lost = lost_an_entry(recording)) return lost;
  if (!is_clean(recording)) return last;
  if (const auto clears = cleared(recording)) return clears;
  if (const auto search = last_search(ways, *value, bad.kind())) return search;
  return last ? last : made_flags(ways);
}

namespace {

/// Whether a value is a view of what its operator read; one in another dtype has other bits.
bool shows_another(const RecordingIndex& ways, size_t value) {
  const auto producer = ways.producer(value);
  if (!producer || !ways.step(*producer).is_view || ways.step(*producer).reads.empty()) return false;
  return ways.tensor(ways.step(*producer).reads.front()).scalar_type() == ways.tensor(value).scalar_type();
}

/// Which values are the input, in whatever dtype and form.
class Carrying {
 public:
  Carrying(const RecordingIndex& ways, const at::Tensor& input) : ways_(ways), input_(input.flatten()) {}

  bool operator()(size_t value) const {
    if (ways_.value(value).is_flags || !ways_.tensor(value).defined()) return false;
    if (ways_.tensor(value).numel() == input_.numel() && !changes(value).any().item<bool>()) return true;
    if (!shows_another(ways_, value) || ways_.tensor(value).numel() != input_.numel()) return false;
    return (*this)(ways_.step(*ways_.producer(value)).reads.front());  // its elements may be in another order
  }

  /// The elements that are others; all where it has another number of them.
  at::Tensor changes(size_t value) const {
    const at::Tensor& tensor = ways_.tensor(value);
    if (tensor.numel() != input_.numel()) return at::ones(tensor.sizes(), tensor.options().dtype(at::kBool));
    return differing(tensor.flatten().to(input_.scalar_type()), input_).view(tensor.sizes());
  }

 private:
  const RecordingIndex& ways_;
  const at::Tensor input_;
};

/// A condition of the records, not of values.
bool is_by_flags(const RecordingIndex& ways, size_t value) {
  const auto producer = ways.producer(value);
  if (!producer) return false;
  const std::vector<size_t>& reads = ways.step(*producer).reads;
  return !reads.empty() && std::all_of(reads.begin(), reads.end(), [&](size_t read) {
    if (ways.value(read).is_flags) return true;
    return ways.tensor(read).scalar_type() == at::kBool && is_by_flags(ways, read);
  });
}

bool chooses_by_values(const RecordingIndex& ways, const RecordedStep& step) {
  const bool has_condition_first = step.op.rfind("aten::where", 0) == 0;
  if (!has_condition_first && step.op.rfind("aten::masked_fill", 0) != 0) return false;
  const size_t condition = has_condition_first ? 0 : 1;
  return condition < step.reads.size() && !is_by_flags(ways, step.reads[condition]);
}

/// What is behind the elements that changed: what has as many elements, else the largest that an operator made.
std::optional<size_t> next_behind(const RecordingIndex& ways, const RecordedStep& step, size_t value,
                                  const at::Tensor& mask) {
  std::optional<size_t> next;
  const auto fits = [&](size_t read) { return ways.tensor(read).numel() == ways.tensor(value).numel(); };
  for (const ValueElements& part : parts_behind(ways.recording(), step, value, mask)) {
    if (ways.tensor(part.value).scalar_type() == at::kBool || !ways.producer(part.value)) continue;
    if (!next || (fits(part.value) && !fits(*next))) next = part.value;
  }
  return next;
}

}  // namespace

std::optional<RecordedStep> changed(const Recording& recording, size_t output, const at::Tensor& input) {
  const RecordingIndex ways(recording);
  const Carrying carries(ways, input);
  std::optional<size_t> value = ways.output(output);
  std::optional<RecordedStep> first;
  for (std::set<size_t> seen; value && seen.insert(*value).second;) {
    const std::optional<size_t> producer = ways.producer(*value);
    if (!producer) break;
    const RecordedStep& step = ways.step(*producer);
    if (!first || (!shows_another(ways, *value) && !step.source.file.empty())) first = step;
    const at::Tensor mask = carries.changes(*value);
    const bool is_choice = choice_of(recording, step, *value).has_value();
    if (is_choice && chooses_by_values(ways, step)) return first;
    const bool is_origin = std::any_of(step.reads.begin(), step.reads.end(), carries);
    if (!is_choice && is_origin) return first;
    value = next_behind(ways, step, *value, mask);
  }
  return first;
}

namespace {

/// How a value of one run is to one of the other, for the sample that both have.
enum class Likeness : uint8_t { same, other, unknown };

class TwoRuns {
 public:
  TwoRuns(const RunOfSample& one, const RunOfSample& other)
      : one_(one), other_(other), ways_(one.recording), common_(common_steps(one.recording, other.recording)) {}

  std::optional<RecordedStep> operator()() {
    for (const bool flags : {true, false})
      for (size_t i = 0; i < std::min(one_.recording.outputs.size(), other_.recording.outputs.size()); ++i) {
        const auto a = one_.recording.outputs[i], b = other_.recording.outputs[i];
        if (!a || !b || one_.recording.values[*a].is_flags != flags) continue;
        if (*a != *b || is_behind_common(*a)) return parting();
        if (likeness(*a) != Likeness::other) continue;
        follow(*a);
        const auto found = data_ ? data_ : doubtful_ ? doubtful_ : no_data_;
        if (found) return ways_.step(*found);
      }
    return parting();
  }

 private:
  bool is_behind_common(size_t value) const {
    const auto producer = ways_.producer(value);
    return producer && *producer >= common_;
  }

  /// The first step that one of them has, and the other has not.
  std::optional<RecordedStep> parting() const {
    const std::vector<RecordedStep>&a = one_.recording.steps, &b = other_.recording.steps;
    if (common_ >= std::max(a.size(), b.size())) return std::nullopt;
    return a.size() >= b.size() ? a[common_] : b[common_];
  }

  static bool has_rows(const RunOfSample& run, const at::Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) == run.samples;
  }

  Likeness likeness(size_t value) const {
    const at::Tensor &a = one_.recording.values[value].tensor, &b = other_.recording.values[value].tensor;
    if (!a.defined() || !b.defined()) return a.defined() == b.defined() ? Likeness::same : Likeness::other;
    const bool rows = has_rows(one_, a) && has_rows(other_, b);
    const at::Tensor was = rows ? a.select(0, one_.row) : a, is = rows ? b.select(0, other_.row) : b;
    if (!same_kind(was, is)) return Likeness::unknown;  // it has the samples in another dim
    return same_bits(was, is) ? Likeness::same : Likeness::other;
  }

  static void keep_first(std::optional<size_t>& known, size_t step) {
    if (!known || step < *known) known = step;
  }

  void follow(size_t value) {
    if (!seen_.insert(value).second) return;
    const auto producer = ways_.producer(value);
    if (!producer) return;
    std::vector<size_t> others, unknown;
    for (const size_t read : ways_.step(*producer).reads) {
      if (is_size(read)) continue;
      const Likeness like = likeness(read);
      if (like == Likeness::other && ways_.producer(read)) others.push_back(read);
      if (like == Likeness::unknown) unknown.push_back(read);
    }
    for (const size_t read : others) follow(read);
    if (!others.empty()) return;
    for (const size_t read : unknown) follow(read);
    if (!depends_on_samples(value))
      keep_first(no_data_, *producer);
    else
      keep_first(likeness(value) == Likeness::other && unknown.empty() ? data_ : doubtful_, *producer);
  }

  /// The size of a dim, which captured graphs take from a tensor.
  bool is_size(size_t value) const {
    const auto producer = ways_.producer(value);
    return producer && ways_.step(*producer).op == "triage::size";
  }

  bool depends_on_samples(size_t value) {
    const auto known = depends_.find(value);
    if (known != depends_.end()) return known->second;
    const auto producer = ways_.producer(value);
    bool depends = false;
    if (producer)
      for (const size_t read : ways_.step(*producer).reads)
        depends = depends || (!is_size(value) && depends_on_samples(read));
    else
      depends = likeness(value) != Likeness::unknown && has_rows(one_, ways_.tensor(value)) &&
                has_rows(other_, other_.recording.values[value].tensor);
    return depends_[value] = depends;
  }

  const RunOfSample &one_, &other_;
  const RecordingIndex ways_;
  const size_t common_;
  std::set<size_t> seen_;
  std::map<size_t, bool> depends_;
  std::optional<size_t> data_, doubtful_, no_data_;  // steps
};

}  // namespace

std::optional<RecordedStep> first_other(const RunOfSample& one, const RunOfSample& other) {
  return TwoRuns(one, other)();
}

std::optional<RecordedStep> raised(const Recording& recording) {
  return recording.failure.empty() || recording.steps.empty() ? std::nullopt : std::optional(recording.steps.back());
}

}  // namespace triage::diagnose
