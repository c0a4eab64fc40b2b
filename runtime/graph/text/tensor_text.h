#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Tensor constants as text: bit for bit, for every dtype, with strides where they are not the usual ones.
namespace triage::graph {

/// The largest constant whose values are printed.
constexpr int64_t kPrintedElements = 1000;

/// Strided, small enough, and of a dtype whose elements stand alone (no quantized or packed ones).
bool is_printable(const at::Tensor& tensor);
/// "f32[2, 3]"; strides follow where the tensor is not contiguous: "f32[2, 3][1, 2]"; then the device unless it is the
/// CPU.
std::string layout_text(const at::Tensor& tensor);
/// "[[1.0, 2.0], [3.0, nan]]", "3.5" without dimensions, "[]" without elements.
std::string values_text(const at::Tensor& tensor);

/// What `layout_text` and the types of values say.
struct TensorLayout {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::optional<std::vector<int64_t>> strides;
  c10::Device device = c10::kCPU;
};
/// Throws GraphError that says what is wrong with `text`.
TensorLayout layout_of(std::string_view text);

/// One element of a real dtype (complex ones are two), from a number, a word (`nan`, `inf`, `True`) or the bits of a
/// NaN. `bits`: `text` is the hexadecimal inside `nan(...)`. False where the text is no such element.
bool read_element(std::string_view text, bool bits, at::ScalarType dtype, void* out);

}  // namespace triage::graph
