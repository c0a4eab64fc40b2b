#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Where a value differs between two runs whose inputs differ in one sample.
namespace triage::diagnose {

enum class Spread : uint8_t {
  nowhere,
  own_sample,  // only in the part that belongs to the sample
  others       // in the part of another sample, or in what all samples share
};

/// Of a value inside of a computation, whose samples may lie along any dim: that of a transposed batch, or a dim in
/// which samples were merged with others.
Spread spread_of(const at::Tensor& clean, const at::Tensor& other, int64_t samples, int64_t row, bool is_flags);

/// The dim along which one index alone differs, for values in which no dim has a multiple of the samples: a slice of
/// the batch, or a reduction of which one feature changed. Who knows where the value comes from can tell.
std::optional<int64_t> dim_of_one_index(const at::Tensor& clean, const at::Tensor& other, int64_t samples,
                                        bool is_flags);

/// Of an output, whose samples lie along dim 0 if it has as many as the batch.
struct OutputChange {
  Spread spread = Spread::nowhere;
  std::vector<int64_t> rows;  // other samples that differ; empty where the output has no samples, or another form
  std::string form;           // "float32 4x3 became float32 3x3"; empty: it has the same form
};
OutputChange change_of(const at::Tensor& clean, const at::Tensor& other, int64_t samples, int64_t row, bool is_flags);

/// The dim along which an output has its samples; nothing where no dim has that size.
std::optional<int64_t> dim_of_samples(const at::Tensor& output, int64_t samples);

}  // namespace triage::diagnose
