#include "bindings/lua/testing/agreement.h"

#include "runtime/diagnose/bits.h"
#include "runtime/graph/output_names.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace triage::lua {
namespace {

using diagnose::kind_of;
using diagnose::same_bits;

/// "" where the two are the same.
std::string tensor_difference(const std::string& what, const at::Tensor& plain, const at::Tensor& captured,
                              bool exact) {
  if (!plain.defined() && !captured.defined()) return "";
  if (!diagnose::same_kind(plain, captured))
    return fmt::format("{} is {} as a plain script and {} captured", what, kind_of(plain), kind_of(captured));
  if (same_bits(plain, captured)) return "";
  if (!exact && plain.is_floating_point() &&
      at::allclose(plain.to(at::kDouble), captured.to(at::kDouble), 1e-5, 1e-5, /*equal_nan=*/true))
    return "";
  const diagnose::BitDifference first = diagnose::first_difference(plain, captured);
  return fmt::format("{} differs in sample {}: {} as a plain script, {} captured", what, first.row, first.a, first.b);
}

}  // namespace

std::string difference(const RunOutcome& plain, const RunOutcome& captured, const std::vector<std::string>& names,
                       bool exact) {
  if (plain.outputs.size() != captured.outputs.size())
    return fmt::format("as a plain script it returns {} tensors, captured {}", plain.outputs.size(),
                       captured.outputs.size());
  if (plain.flags != captured.flags) return "the plain script and the captured run mark different outputs as flags";
  for (size_t i = 0; i < plain.outputs.size(); ++i) {
    const std::string name = graph::output_name(names, i);
    const std::string found =
        tensor_difference(fmt::format("output '{}'", name), plain.outputs[i], captured.outputs[i], exact);
    if (!found.empty()) return found;
  }
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    const std::string found =
        tensor_difference(fmt::format("gradient {}", i), plain.gradients[i], captured.gradients[i], exact);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace triage::lua
