#include "runtime/graph/text/tensor_text.h"
#include "runtime/compat/readable_values.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/graph/text/describe.h"

namespace triage::graph {
namespace {

template <typename T>
T load(const void* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// The ordinary NaN of each type; any other is written with its bits.
constexpr uint16_t kHalfNan = 0x7e00, kBFloat16Nan = 0x7fc0;

template <typename Small>
std::string small_float_text(const void* data, uint16_t ordinary_nan) {
  auto bits = load<uint16_t>(data);
  auto value = static_cast<float>(Small(bits, Small::from_bits()));
  if (!std::isnan(value)) return float_text(value);
  return bits == ordinary_nan ? "nan" : fmt::format("nan({:#x})", bits);
}

std::string bits_text(const void* data, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, data, size);  // little-endian, as every machine LibTorch runs on
  return fmt::format("{:#x}", bits);
}

std::string element_text(const char* data, at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return *data ? "True" : "False";
    case at::kByte:
      return std::to_string(load<uint8_t>(data));
    case at::kChar:
      return std::to_string(load<int8_t>(data));
    case at::kShort:
      return std::to_string(load<int16_t>(data));
    case at::kInt:
      return std::to_string(load<int32_t>(data));
    case at::kLong:
      return std::to_string(load<int64_t>(data));
    case at::kFloat:
      return float_text(load<float>(data));
    case at::kDouble:
      return float_text(load<double>(data));
    case at::kHalf:
      return small_float_text<at::Half>(data, kHalfNan);
    case at::kBFloat16:
      return small_float_text<at::BFloat16>(data, kBFloat16Nan);
    default:
      break;
  }
  size_t size = c10::elementSize(dtype);
  if (!c10::isComplexType(dtype)) return bits_text(data, size);
  at::ScalarType part = c10::toRealValueType(dtype);
  return fmt::format("complex({}, {})", element_text(data, part), element_text(data + size / 2, part));
}

std::string nested_text(const char*& data, at::ScalarType dtype, at::IntArrayRef sizes) {
  if (sizes.empty()) {
    std::string text = element_text(data, dtype);
    data += c10::elementSize(dtype);
    return text;
  }
  std::string text = "[";
  for (int64_t i = 0; i < sizes[0]; ++i) text += (i ? ", " : "") + nested_text(data, dtype, sizes.slice(1));
  return text + "]";
}

bool has_usual_strides(const at::Tensor& tensor) {
  int64_t stride = 1;
  for (int64_t dim = tensor.dim() - 1; dim >= 0; --dim) {
    if (tensor.stride(dim) != stride) return false;
    stride *= std::max<int64_t>(tensor.size(dim), 1);
  }
  return true;
}

template <typename T>
bool read_number(std::string_view text, T& value, int base = 10) {
  if constexpr (std::is_floating_point_v<T>) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  } else {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return error == std::errc() && end == text.data() + text.size();
  }
}

template <typename T>
bool store_integer(std::string_view text, void* out) {
  T value;
  if (!read_number(text, value)) return false;
  std::memcpy(out, &value, sizeof(T));
  return true;
}

bool store_bits(std::string_view text, size_t size, void* out) {
  uint64_t bits = 0;
  if (text.substr(0, 2) != "0x" || !read_number(text.substr(2), bits, 16)) return false;
  if (size < sizeof(bits) && bits >> (8 * size)) return false;
  std::memcpy(out, &bits, size);
  return true;
}

template <typename Float>
bool store_float(std::string_view text, void* out) {
  Float value = 0;
  if (text == "nan")
    value = std::numeric_limits<Float>::quiet_NaN();  // from_chars may set the sign
  else if (!read_number(text, value))
    return false;
  std::memcpy(out, &value, sizeof(Float));
  return true;
}

template <typename Small>
bool store_small_float(std::string_view text, uint16_t ordinary_nan, void* out) {
  float value = 0;
  if (text != "nan" && !read_number(text, value)) return false;
  uint16_t bits = text == "nan" ? ordinary_nan : Small(value).x;
  std::memcpy(out, &bits, sizeof(bits));
  return true;
}

std::vector<int64_t> read_sizes(std::string_view text, std::string_view whole) {
  std::vector<int64_t> sizes;
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    int64_t size = 0;
    if (!read_number(item, size) || size < 0)
      throw GraphError(fmt::format("type \"{}\": expected sizes such as [32, 512], got `{}`", whole, item));
    sizes.push_back(size);
  }
  return sizes;
}

/// LibTorch multiplies sizes without a look, so they must not overflow even where another one of them is 0.
void check_size(const TensorLayout& layout, std::string_view text) {
  constexpr size_t most_dimensions = 64;
  constexpr int64_t largest = int64_t{1} << 56;  // elements
  int64_t count = 1;
  for (const int64_t size : layout.sizes) {
    const int64_t factor = std::max<int64_t>(size, 1);
    if (count > largest / factor) throw GraphError(fmt::format("type \"{}\": it is too large for any memory", text));
    count *= factor;
  }
  if (layout.sizes.size() > most_dimensions)
    throw GraphError(
        fmt::format("type \"{}\": {} dimensions; the limit is {}", text, layout.sizes.size(), most_dimensions));
}

c10::Device device_of(std::string_view text, std::string_view whole) {
  try {
    return c10::Device(std::string(text));
  } catch (const std::exception&) {
    throw GraphError(fmt::format("type \"{}\": `{}` is not a device; write one such as cuda:0, or nothing for the CPU",
                                 whole, text));
  }
}

}  // namespace

bool is_printable(const at::Tensor& tensor) {
  at::ScalarType dtype = tensor.scalar_type();
  return tensor.layout() == at::kStrided && tensor.numel() <= kPrintedElements && !c10::isQIntType(dtype) &&
         c10::elementSize(dtype) * (c10::isComplexType(dtype) ? 1 : 2) <= 16;
}

std::string layout_text(const at::Tensor& tensor) {
  std::string text = fmt::format("{}[{}]", short_dtype(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  if (tensor.layout() == at::kStrided && !has_usual_strides(tensor))
    text += fmt::format("[{}]", fmt::join(tensor.strides(), ", "));
  return tensor.is_cpu() ? text : text + tensor.device().str();
}

std::string values_text(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return "[]";
  at::Tensor values = compat::readable_values(tensor);
  const char* data = static_cast<const char*>(values.data_ptr());
  return nested_text(data, values.scalar_type(), values.sizes());
}

TensorLayout layout_of(std::string_view text) {
  TensorLayout layout;
  size_t open = text.find('['), close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    throw GraphError(fmt::format("type \"{}\": expected a dtype and sizes, such as f32[32, 512]", text));
  auto dtype = dtype_of_short(text.substr(0, open));
  if (!dtype || *dtype == at::ScalarType::Undefined)
    throw GraphError(
        fmt::format("type \"{}\": LibTorch has no dtype `{}`; expected f32, f64, f16, bf16, i64, i32, i16, i8, "
                    "u8, b8, c64 or c128",
                    text, text.substr(0, open)));
  layout.dtype = *dtype;
  layout.sizes = read_sizes(text.substr(open + 1, close - open - 1), text);
  check_size(layout, text);
  std::string_view rest = text.substr(close + 1);
  if (!rest.empty() && rest[0] == '[') {
    size_t end = rest.find(']');
    if (end == std::string_view::npos)
      throw GraphError(fmt::format("type \"{}\": the strides are not closed by `]`", text));
    layout.strides = read_sizes(rest.substr(1, end - 1), text);
    if (layout.strides->size() != layout.sizes.size())
      throw GraphError(
          fmt::format("type \"{}\": {} strides for {} sizes", text, layout.strides->size(), layout.sizes.size()));
    rest.remove_prefix(end + 1);
  }
  if (!rest.empty()) layout.device = device_of(rest, text);
  return layout;
}

bool read_element(std::string_view text, bool bits, at::ScalarType dtype, void* out) {
  if (bits) return c10::isFloatingType(dtype) && store_bits(text, c10::elementSize(dtype), out);
  switch (dtype) {
    case at::kBool: {
      bool value = text == "True";
      std::memcpy(out, &value, sizeof(value));
      return value || text == "False";
    }
    case at::kByte:
      return store_integer<uint8_t>(text, out);
    case at::kChar:
      return store_integer<int8_t>(text, out);
    case at::kShort:
      return store_integer<int16_t>(text, out);
    case at::kInt:
      return store_integer<int32_t>(text, out);
    case at::kLong:
      return store_integer<int64_t>(text, out);
    case at::kFloat:
      return store_float<float>(text, out);
    case at::kDouble:
      return store_float<double>(text, out);
    case at::kHalf:
      return store_small_float<at::Half>(text, kHalfNan, out);
    case at::kBFloat16:
      return store_small_float<at::BFloat16>(text, kBFloat16Nan, out);
    default:
      return store_bits(text, c10::elementSize(dtype), out);
  }
}

}  // namespace triage::graph
