#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace triage::cli {

/// The tensor that a text such as `randn:32x512,seed=1,dtype=float16,nan=3,inf=2` describes; nullopt where the text is
/// no generator (it is a file then). Kinds: randn, rand, randint, zeros, ones, arange; the shape is sizes joined by
/// `x`. `nan=K` and `inf=K` put one such element into K samples, chosen by the seed, no sample twice. The same text
/// gives the same tensor. Throws UsageError.
std::optional<at::Tensor> generate(const std::string& text);

/// What --help says of it.
extern const char* const generator_help;

}  // namespace triage::cli
