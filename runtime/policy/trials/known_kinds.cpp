#include "runtime/policy/trials/known_kinds.h"

#include "runtime/backends/fused/kernel_cache/cached_calls.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/tensor_text.h"

#include <optional>
#include <string_view>

namespace triage::policy {
namespace {

constexpr std::string_view grad = " grad";
constexpr int64_t most_elements = int64_t{1} << 26;  // of all inputs of a call

std::string text_of(const capture::InputShape& shape) {
  return graph::type_text({shape.dtype, shape.sizes, shape.device}) + (shape.requires_grad ? std::string(grad) : "");
}

std::optional<graph::Layout> layout_of(std::string_view text) {
  try {
    return graph::layout_of(text);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Nothing for a text that no build writes, and for an input that is not made up. Takes its elements from `left`.
std::optional<capture::InputShape> shape_of(std::string_view text, int64_t& left) {
  const bool requires_grad = text.ends_with(grad);
  if (requires_grad) text.remove_suffix(grad.size());
  const std::optional<graph::Layout> layout = layout_of(text);
  if (!layout) return std::nullopt;
  int64_t elements = 1;
  for (const int64_t size : layout->sizes)
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  left -= elements;
  const bool differentiable = at::isFloatingType(layout->dtype) || at::isComplexType(layout->dtype);
  if (left < 0 || layout->strides || !layout->device.is_cpu() || (requires_grad && !differentiable))
    return std::nullopt;
  return capture::InputShape{layout->sizes, layout->dtype, layout->device, requires_grad};
}

std::optional<Kind> kind_of(const KnownCall& call, size_t num_inputs) {
  if (call.inputs.size() != num_inputs) return std::nullopt;
  Kind kind;
  int64_t left = most_elements;
  for (const std::string& input : call.inputs) {
    const std::optional<capture::InputShape> shape = shape_of(input, left);
    if (!shape) return std::nullopt;
    kind.push_back(*shape);
  }
  return kind;
}

}  // namespace

KnownCall known_call(const std::string& policy, const Kind& kind) {
  KnownCall call{policy, {}};
  for (const capture::InputShape& shape : kind) call.inputs.push_back(text_of(shape));
  return call;
}

std::function<void(const Kind&)> noting_calls_of(const std::string& hash, CompilerMode compiler) {
  return [hash, compiler](const Kind& kind) { fused::note_call(known_call(hash, kind), compiler); };
}

std::vector<Kind> known_kinds(const PolicyVersion& version) {
  std::vector<KnownCall> calls = fused::known_calls(version.hash);
  if (version.compiled.options().compiler != CompilerMode::off)
    fused::merge_calls(calls, fused::calls_from_bundles(version.hash));
  std::vector<Kind> kinds;
  for (const KnownCall& call : calls)
    if (const auto kind = kind_of(call, version.signature.inputs.size())) kinds.push_back(*kind);
  return kinds;
}

}  // namespace triage::policy
