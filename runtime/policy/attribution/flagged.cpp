#include "runtime/policy/attribution/flagged.h"
#include "runtime/compat/readable_memory.h"

#include "runtime/flags/records/errors.h"
#include "runtime/location/owner.h"

#include <triage/config.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace triage::policy {
namespace {

bool same_kind(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

/// The input that output `index` is compared with; none where it has no such one, or several are meant.
const at::Tensor* input_of(const AnsweredCall& call, size_t index) {
  const at::Tensor& output = call.outputs[index];
  const bool named = index < call.output_names.size();
  const at::Tensor* found = nullptr;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const at::Tensor& input = call.inputs[i];
    if (!is_dense_cpu(input) || !same_kind(input, output)) continue;
    const bool is_donated = std::find(call.donated.begin(), call.donated.end(), i) != call.donated.end();
    if (named && call.input_names[i] == call.output_names[index]) return is_donated ? nullptr : &input;
    if (named) continue;
    if (found || is_donated) return nullptr;
    found = &input;
  }
  return found;
}

/// Tells of the errors of an output, sample by sample, without the counts of dropped ones. Their locations have left
/// triage. Returns how many records have no free slot.
template <class Tell>
uint64_t each_left(const at::Tensor& output, const Tell& tell) {
  if (output.numel() == 0) return 0;
  uint64_t full = 0;
  const at::Tensor f = output.contiguous();
  const flags::Overflow overflow(f, get_config());
  const int64_t last_slot = flags::last_slot(f, get_config());
  flags::each_error(f, 0, f.size(0), [&](int64_t sample, int64_t at, uint16_t slot) {
    full += at == last_slot;
    if (overflow.is(at, slot)) return;
    note_left(slot >> LOCATION_SHIFT);
    tell(sample, slot);
  });
  return full;
}

}  // namespace

bool is_dense_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && compat::is_readable(tensor);
}

FlaggedSamples flagged_samples(const AnsweredCall& call) {
  FlaggedSamples found;
  for (size_t i = 0; i < call.outputs.size() && i < call.flags_outputs.size(); ++i) {
    const at::Tensor& output = call.outputs[i];
    if (!call.flags_outputs[i] || !output.defined() || output.dim() != 2) continue;
    if (!is_dense_cpu(output)) {
      found.elsewhere = true;
      continue;
    }
    found.full += each_left(output, [&](int64_t sample, uint16_t slot) { found.errors.push_back({sample, slot}); });
    if (found.counted)  // of a second output: one sample's errors together
      std::stable_sort(found.errors.begin(), found.errors.end(),
                       [](const auto& a, const auto& b) { return a.sample < b.sample; });
    found.samples = std::max(found.samples, output.size(0));
    found.counted = true;
  }
  return found;
}

bool leaves_unread(at::ArrayRef<at::Tensor> outputs, const std::vector<bool>& flags_outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || outputs[i].numel() == 0) continue;
    const bool is_flags = i < flags_outputs.size() && flags_outputs[i];
    // Words of flags that an operator moved, or ids as numbers, look like other numbers.
    const at::ScalarType dtype = outputs[i].scalar_type();
    const bool may_hold = dtype == at::kLong || dtype == at::kInt || dtype == get_config().flag_dtype;
    if (is_flags ? outputs[i].dim() != 2 || !is_dense_cpu(outputs[i]) : may_hold) return true;
  }
  return false;
}

RowPairs::RowPairs(const AnsweredCall& call, int64_t rows) {
  const at::Tensor& mask = call.out_of_range;
  if (mask.defined() && mask.dim() == 1 && mask.size(0) == rows && is_dense_cpu(mask))
    out_of_range_ = mask.contiguous();
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const at::Tensor& output = call.outputs[i];
    const bool is_flags = i < call.flags_outputs.size() && call.flags_outputs[i];
    if (is_flags || !is_dense_cpu(output) || output.dim() == 0 || output.size(0) != rows) continue;
    const at::Tensor* const input = input_of(call, i);
    if (!input) continue;
    any_ = true;
    if (output.is_same(*input) || output.numel() == 0) continue;
    const at::Tensor before = input->contiguous(), after = output.contiguous();
    if (before.data_ptr() == after.data_ptr()) continue;
    pairs_.push_back({before, after, after.nbytes() / static_cast<size_t>(rows)});
  }
}

bool RowPairs::differ(int64_t row) const {
  return std::any_of(pairs_.begin(), pairs_.end(), [row](const ComparedTensors& pair) {
    const size_t offset = static_cast<size_t>(row) * pair.row_bytes;
    return std::memcmp(static_cast<const char*>(pair.before.data_ptr()) + offset,
                       static_cast<const char*>(pair.after.data_ptr()) + offset, pair.row_bytes) != 0;
  });
}

Treatment RowPairs::treatment(int64_t row) const {
  if (!any_) return Treatment::not_compared;
  if (!differ(row)) return Treatment::kept;
  const bool bad = out_of_range_.defined() && out_of_range_.data_ptr<bool>()[row];
  return bad ? Treatment::out_of_range : Treatment::repaired;
}

std::optional<FlaggedTotals> count_flagged(const AnsweredCall& call,
                                           const std::function<void(uint16_t slot, uint64_t count)>& add) {
  FlaggedTotals totals;
  const at::Tensor* output = nullptr;
  for (size_t i = 0; i < call.outputs.size() && i < call.flags_outputs.size(); ++i) {
    if (!call.flags_outputs[i] || !call.outputs[i].defined() || call.outputs[i].dim() != 2) continue;
    if (!is_dense_cpu(call.outputs[i]))
      totals.elsewhere = true;
    else if (output)
      return std::nullopt;
    else
      output = &call.outputs[i];
  }
  if (!output) return totals;
  totals.counted = true;
  totals.samples = static_cast<uint64_t>(output->size(0));
  std::optional<RowPairs> pairs;
  int64_t last = -1;
  std::pair<uint16_t, uint64_t> run{0, 0};
  totals.full = each_left(*output, [&](int64_t sample, uint16_t slot) {
    if (run.second > 0 && run.first != slot) add(run.first, std::exchange(run.second, 0));
    run = {slot, run.second + 1};
    if (sample == last) return;
    last = sample;
    ++totals.flagged;
    if (!pairs) pairs.emplace(call, output->size(0));
    totals.repaired += pairs->treatment(sample) == Treatment::repaired;
  });
  if (run.second > 0) add(run.first, run.second);
  return totals;
}

std::vector<FlaggedSample> treatments(const AnsweredCall& call, const FlaggedSamples& found) {
  std::vector<FlaggedSample> samples;
  if (found.errors.empty()) return samples;
  const RowPairs pairs(call, found.samples);
  for (size_t begin = 0, end = 0; begin < found.errors.size(); begin = end) {
    const int64_t sample = found.errors[begin].sample;
    while (end < found.errors.size() && found.errors[end].sample == sample) ++end;
    samples.push_back({sample, end, pairs.treatment(sample)});
  }
  return samples;
}

}  // namespace triage::policy
