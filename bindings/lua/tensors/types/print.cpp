// The layout is PyTorch's (four digits, 80 columns, three edge items), so that output can be compared with Python's.
#include "bindings/lua/tensors/types/print.h"

#include "bindings/lua/values/constants.h"
#include "runtime/compat/readable_values.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cmath>

namespace triage::lua {
namespace {

constexpr int64_t summarise_above = 1000;
constexpr int64_t edge = 3;
constexpr size_t line_width = 80;

/// How the numbers of one tensor are written: one form and one width for all of them.
class NumberFormat {
 public:
  explicit NumberFormat(const at::Tensor& shown) : dtype_(shown.scalar_type()) {
    if (at::isFloatingType(dtype_)) {
      measure_floats(shown);
      return;
    }
    at::Tensor flat = shown.reshape(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) width_ = std::max(width_, plain(flat[i]).size());
  }

  size_t width() const { return width_; }

  std::string operator()(const at::Tensor& element) const {
    std::string text = at::isFloatingType(dtype_) ? number(element.item().toDouble()) : plain(element);
    return text.size() < width_ ? std::string(width_ - text.size(), ' ') + text : text;
  }

 private:
  std::string plain(const at::Tensor& element) const {
    at::Scalar value = element.item();
    if (value.isBoolean()) return value.toBool() ? "True" : "False";
    if (value.isComplex()) {
      auto complex = value.toComplexDouble();
      return fmt::format("{:.4f}{}{:.4f}j", complex.real(), std::signbit(complex.imag()) ? "-" : "+",
                         std::fabs(complex.imag()));
    }
    return std::to_string(value.toLong());
  }

  std::string number(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    if (scientific_) return fmt::format("{:.4e}", value);
    return whole_ ? fmt::format("{:.0f}.", value) : fmt::format("{:.4f}", value);
  }

  void measure_floats(const at::Tensor& shown) {
    at::Tensor values = compat::readable_values(shown.resolve_neg().to(at::kDouble));
    const double* data = values.data_ptr<double>();
    std::vector<double> finite;
    for (int64_t i = 0; i < values.numel(); ++i)
      if (std::isfinite(data[i]) && data[i] != 0) finite.push_back(data[i]);
    if (finite.empty()) return;
    double smallest = INFINITY, largest = 0;
    for (double value : finite) {
      smallest = std::min(smallest, std::fabs(value));
      largest = std::max(largest, std::fabs(value));
      whole_ = whole_ && value == std::ceil(value);
    }
    scientific_ = largest / smallest > 1000.0 || largest > 1.0e8 || smallest < 1.0e-4;
    for (double value : finite) width_ = std::max(width_, number(value).size());
  }

  at::ScalarType dtype_;
  bool whole_ = true;
  bool scientific_ = false;
  size_t width_ = 1;
};

/// With many dimensions the edges that a summary shows are most of a tensor.
bool is_too_large(const at::Tensor& tensor) {
  constexpr double most_elements = 10'000;  // with more, only the sizes are shown
  constexpr int64_t most_dims = 64;
  double count = 1;
  for (const int64_t size : tensor.sizes()) count *= static_cast<double>(std::min(size, 2 * edge));
  return tensor.dim() > most_dims || count > most_elements;
}

/// The elements that a summary shows, on the CPU. Nothing else is copied: an expanded tensor has any number of
/// elements.
at::Tensor edges(const at::Tensor& tensor, int64_t dim = 0) {
  if (dim == tensor.dim()) return tensor.cpu().resolve_conj().resolve_neg();
  const int64_t size = tensor.size(dim);
  if (size <= 2 * edge) return edges(tensor, dim + 1);
  return at::cat({edges(tensor.narrow(dim, 0, edge), dim + 1), edges(tensor.narrow(dim, size - edge, edge), dim + 1)},
                 dim);
}

/// `sizes`, here and below: of the whole tensor, which `row` may be the edges of.
std::string row_text(const at::Tensor& row, size_t indent, at::IntArrayRef sizes, const NumberFormat& format) {
  std::vector<std::string> items;
  for (int64_t i = 0; i < row.size(0); ++i) {
    if (row.size(0) < sizes[0] && i == edge) items.emplace_back(" ...");
    items.push_back(format(row[i]));
  }
  size_t room = line_width > indent ? line_width - indent : 0;
  size_t per_line = std::max<size_t>(1, room / (format.width() + 2));
  std::string text = "[";
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i % per_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
    text += items[i];
  }
  return text + "]";
}

std::string nested_text(const at::Tensor& tensor, size_t indent, at::IntArrayRef sizes, const NumberFormat& format) {
  if (tensor.dim() == 0) return format(tensor);
  if (tensor.dim() == 1) return row_text(tensor, indent, sizes, format);
  std::string separator = "," + std::string(static_cast<size_t>(tensor.dim() - 1), '\n') + std::string(indent + 1, ' ');
  std::string text = "[";
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    if (i > 0) text += separator;
    if (tensor.size(0) < sizes[0] && i == edge) text += "..." + separator;
    text += nested_text(tensor[i], indent + 1, sizes.slice(1), format);
  }
  return text + "]";
}

std::vector<std::string> suffixes(const at::Tensor& tensor) {
  std::vector<std::string> parts;
  at::ScalarType dtype = tensor.scalar_type();
  if (!tensor.device().is_cpu()) parts.push_back("device='" + tensor.device().str() + "'");
  if (tensor.is_meta() || (tensor.numel() == 0 && tensor.dim() != 1) || is_too_large(tensor)) {
    std::string sizes;
    for (int64_t size : tensor.sizes()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    parts.push_back("size=(" + sizes + (tensor.dim() == 1 ? ",)" : ")"));
  }
  bool unmarked = dtype == at::kBool || dtype == at::kComplexFloat ||
                  dtype == c10::typeMetaToScalarType(at::get_default_dtype()) ||
                  (dtype == at::kLong && tensor.numel() > 0);
  if (!unmarked) parts.push_back("dtype=" + dtype_name(dtype));
  if (tensor.requires_grad())
    parts.emplace_back(tensor.grad_fn() ? "grad_fn=<" + tensor.grad_fn()->name() + ">" : "requires_grad=True");
  return parts;
}

std::string contents(const at::Tensor& tensor, size_t indent) {
  if (tensor.is_meta() || tensor.layout() != at::Layout::Strided) return "...";
  if (tensor.numel() == 0) return "[]";
  if (is_too_large(tensor)) return "...";
  at::Tensor values = tensor.detach();
  values = values.numel() > summarise_above ? edges(values) : values.cpu().resolve_conj().resolve_neg();
  return nested_text(values, indent, tensor.sizes(), NumberFormat(values));
}

}  // namespace

std::string to_text(const at::Tensor& tensor) {
  std::string text = "tensor(";
  const size_t indent = text.size();
  text += contents(tensor, indent);
  size_t last_line = text.size() - (text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  for (const std::string& part : suffixes(tensor)) {
    if (last_line + part.size() + 2 > line_width) {
      text += ",\n" + std::string(indent, ' ') + part;
      last_line = indent + part.size();
    } else {
      text += ", " + part;
      last_line += part.size() + 2;
    }
  }
  return text + ")";
}

}  // namespace triage::lua
