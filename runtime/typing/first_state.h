#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <cstdint>
#include <vector>

/// The state of a policy before its first call.
namespace triage {

/// The first input that has dimensions: its rows are the samples of a call. Null where none has.
const at::Tensor* batch_of(at::ArrayRef<at::Tensor> inputs);
/// The samples of a call, 0 without such an input.
int64_t rows_of(at::ArrayRef<at::Tensor> inputs);
/// Whether it has a dimension of the batch, which is its first then.
bool has_batch(const StateSpec& spec);
inline int64_t size_for(const Dim& dim, int64_t batch) { return dim.kind == Dim::Kind::name ? batch : dim.value; }
std::vector<int64_t> sizes_for(const StateSpec& spec, int64_t batch);
at::Tensor first_state(const StateSpec& spec, int64_t batch, c10::Device device);

}  // namespace triage
