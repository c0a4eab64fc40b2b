#pragma once
#include "runtime/capture/compiled.h"

#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace triage::policy {

/// How the outputs of one call look: what a host relies on, beside their names.
struct OutputForm {
  at::ScalarType dtype;
  c10::DeviceType device;
  std::vector<int64_t> sizes;
  bool is_flags;
};
using Form = std::vector<OutputForm>;
/// Sizes (output, dimension) that depend on values, so that two versions may differ in them.
using OpenSizes = std::set<std::pair<size_t, size_t>>;

Form form_of(at::ArrayRef<at::Tensor> outputs, const std::vector<bool>& is_flags);
Form form_of(const std::vector<capture::InputShape>& outputs, const std::vector<bool>& is_flags);
/// The first way in which `after` is another form than `before`: "the type of output 'y' from Float to Double". Empty:
/// none. `names` of the outputs, where they have some. `declared`: which outputs have a type that both versions
/// declare, so that each answer was held to it; what it leaves open (dtype, rank, sizes) may differ.
std::string difference(const Form& before, const Form& after, const OpenSizes& open,
                       const std::vector<std::string>& names, const std::vector<bool>& declared = {});
/// The outputs for which both declare the same type.
std::vector<bool> declared_alike(const Signature& before, const Signature& after);
/// Adds the sizes in which two answers of one version to inputs of the same sizes differ.
void add_open_sizes(OpenSizes& open, const Form& one, const Form& other);

}  // namespace triage::policy
