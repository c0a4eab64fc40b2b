#include "runtime/diagnose/isolation/start_batches.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/diagnose/isolation/poison.h"

namespace triage::diagnose {
namespace {

/// Of a batch of two or three samples the first, else that and one in the middle.
std::vector<int64_t> rows_to_spoil(int64_t samples) {
  return samples < 4 ? std::vector<int64_t>{0} : std::vector<int64_t>{0, samples / 2};
}

/// Floats of these samples get one NaN each.
at::Tensor with_nan(at::Tensor tensor, const std::vector<int64_t>& rows) {
  for (const int64_t row : rows) tensor = poisoned(tensor, row, Poison::one_nan);
  return tensor;
}

}  // namespace

std::vector<StartBatch> start_batches(const std::vector<IsolationInput>& inputs) {
  StartBatch good, bad;
  bool has_bad = false, has_floats = false;
  for (const IsolationInput& input : inputs) {
    const bool floats = input.has_samples && input.tensor.size(0) > 1 && !input.is_flags &&
                        poisons_for(input.tensor.scalar_type(), false).size() > 2;
    good.tensors.push_back(floats ? without_bad_values(input.tensor) : input.tensor);
    has_bad |= !good.tensors.back().is_same(input.tensor);
    const auto rows = rows_to_spoil(floats ? input.tensor.size(0) : 0);
    bad.tensors.push_back(floats ? with_nan(input.tensor, rows) : input.tensor);
    if (floats)
      bad.note =
          rows.size() == 1 ? ", sample 0 bad before" : ", samples 0 and " + std::to_string(rows[1]) + " bad before";
    has_floats |= floats;
  }
  if (!has_floats) return {good};
  if (!has_bad) return {good, bad};
  good.note = made_good;
  StartBatch given;
  for (const IsolationInput& input : inputs) given.tensors.push_back(input.tensor);
  return {good, given};
}

}  // namespace triage::diagnose
