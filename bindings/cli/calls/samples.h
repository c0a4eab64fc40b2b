#pragma once
#include <ATen/core/Tensor.h>
#include <triage/flags.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

/// Which samples of a run were bad, and what became of them.
namespace triage::cli {

using NamedTensor = std::pair<std::string, at::Tensor>;

/// A sample's part of an output, beside that of the input that it belongs to.
struct SampleOutput {
  std::string output, input;
  int64_t changed = 0, values = 0;
  int64_t not_finite = 0;  // NaN and Inf that are left
};

struct BadSample {
  int64_t sample = 0;
  std::vector<flags::UnpackedError> errors;
  std::vector<SampleOutput> outputs;
};

struct BadSamples {
  std::vector<BadSample> listed;  // the first ones
  size_t count = 0;
};

/// Of the samples that `flags` tells of, as `options` say, the first `most`. An output belongs to the input of its
/// name; without one, to the only input that has its sizes and dtype; other outputs are not compared.
BadSamples bad_samples(const at::Tensor& flags, const InspectOptions& options, const std::vector<NamedTensor>& inputs,
                       const std::vector<NamedTensor>& outputs, size_t most);

/// A line each: "sample 3  NAN @ logits at [17]  out0: 4 of 512 values changed".
void print_samples(const BadSamples& samples);
nlohmann::ordered_json samples_json(const BadSamples& samples);

}  // namespace triage::cli
