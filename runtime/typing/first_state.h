#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <cstdint>
#include <vector>

/// The state of a policy before its first call.
namespace triage {

/// The samples of a call: the rows of its first input that has any, 0 where none has.
int64_t rows_of(at::ArrayRef<at::Tensor> inputs);
/// Whether it has a dimension of the batch, which is its first then.
bool has_batch(const StateSpec& spec);
std::vector<int64_t> sizes_for(const StateSpec& spec, int64_t batch);
at::Tensor first_state(const StateSpec& spec, int64_t batch, c10::Device device);

}  // namespace triage
