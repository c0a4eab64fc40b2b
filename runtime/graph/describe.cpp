#include "runtime/graph/describe.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace triage::graph {
namespace {

struct DtypeNames {
  at::ScalarType dtype;
  const char* brief;
  const char* full;
};

constexpr std::array kDtypes = {
    DtypeNames{at::kFloat, "f32", "float32"},
    DtypeNames{at::kDouble, "f64", "float64"},
    DtypeNames{at::kHalf, "f16", "float16"},
    DtypeNames{at::kBFloat16, "bf16", "bfloat16"},
    DtypeNames{at::kLong, "i64", "int64"},
    DtypeNames{at::kInt, "i32", "int32"},
    DtypeNames{at::kShort, "i16", "int16"},
    DtypeNames{at::kChar, "i8", "int8"},
    DtypeNames{at::kByte, "u8", "uint8"},
    DtypeNames{at::kBool, "b8", "bool"},
    DtypeNames{at::kComplexHalf, "c32", "complex32"},
    DtypeNames{at::kComplexFloat, "c64", "complex64"},
    DtypeNames{at::kComplexDouble, "c128", "complex128"},
};

// In the order of the enumerations.
constexpr std::array kLayouts = {"strided",    "sparse_coo", "sparse_csr", "mkldnn",
                                 "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"};
constexpr std::array kMemoryFormats = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};

template <typename Names>
std::optional<int64_t> index_of(const Names& names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<int64_t>(i);
  return std::nullopt;
}

/// dtypes that only some LibTorch versions have go by LibTorch's own name.
std::optional<at::ScalarType> dtype_of_library_name(std::string_view name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i)
    if (auto dtype = static_cast<at::ScalarType>(i); name == c10::toString(dtype)) return dtype;
  return std::nullopt;
}

template <typename Float, typename Bits>
std::string exact_text(Float value) {
  if (std::isnan(value)) {
    Bits bits = std::bit_cast<Bits>(value);
    if (bits == std::bit_cast<Bits>(std::numeric_limits<Float>::quiet_NaN())) return "nan";
    return fmt::format("nan({:#x})", bits);
  }
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

std::string enumerated(const c10::IValue& value, Kind kind) {
  int64_t index = value.toInt();
  bool known = index >= 0;
  if (kind == Kind::dtype && known && index < static_cast<int64_t>(at::ScalarType::NumOptions))
    return dtype_name(static_cast<at::ScalarType>(index));
  if (kind == Kind::layout && known && index < static_cast<int64_t>(kLayouts.size()))
    return kLayouts[static_cast<size_t>(index)];
  if (kind == Kind::memory_format && known && index < static_cast<int64_t>(kMemoryFormats.size()))
    return kMemoryFormats[static_cast<size_t>(index)];
  return std::to_string(index);
}

}  // namespace

std::string describe(const Value& value) {
  if (value.name.empty()) return "%" + std::to_string(value.id);
  return "%" + (is_identifier(value.name) ? value.name : string_literal(value.name));
}

std::string describe(const Node& node) {
  std::string text;
  for (const Value* result : node.results) text += (text.empty() ? "" : ", ") + (result ? describe(*result) : "null");
  return text + (text.empty() ? "" : " = ") + op_name(node.op);
}

std::string op_name(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

std::string literal(const c10::IValue& value, const ArgumentType& type) {
  if (value.isNone()) return "None";
  if (value.isBool()) return value.toBool() ? "True" : "False";
  if (value.isInt()) return enumerated(value, type.kind);
  if (value.isDouble()) return float_text(value.toDouble());
  if (value.isComplexDouble()) {
    auto number = value.toComplexDouble();
    return fmt::format("complex({}, {})", float_text(number.real()), float_text(number.imag()));
  }
  if (value.isString()) return string_literal(value.toStringRef());
  if (value.isDevice()) return string_literal(value.toDevice().str());
  if (value.isList()) {
    std::string text;
    for (const c10::IValue& item : value.toListRef()) text += (text.empty() ? "" : ", ") + literal(item, type);
    return "[" + text + "]";
  }
  return "<" + value.tagKind() + ">";
}

std::string string_literal(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

bool is_identifier(std::string_view text) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (text.empty() || !letter(text[0])) return false;
  for (char c : text)
    if (!letter(c) && !(c >= '0' && c <= '9')) return false;
  return true;
}

std::string float_text(double value) { return exact_text<double, uint64_t>(value); }
std::string float_text(float value) { return exact_text<float, uint32_t>(value); }

std::string short_dtype(at::ScalarType dtype) {
  for (const auto& names : kDtypes)
    if (names.dtype == dtype) return names.brief;
  return c10::toString(dtype);
}

std::optional<at::ScalarType> dtype_of_short(std::string_view name) {
  for (const auto& names : kDtypes)
    if (name == names.brief) return names.dtype;
  return dtype_of_library_name(name);
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& names : kDtypes)
    if (names.dtype == dtype) return names.full;
  return c10::toString(dtype);
}

std::optional<at::ScalarType> dtype_of_name(std::string_view name) {
  for (const auto& names : kDtypes)
    if (name == names.full) return names.dtype;
  return dtype_of_library_name(name);
}

std::optional<int64_t> layout_of_name(std::string_view name) { return index_of(kLayouts, name); }
std::optional<int64_t> memory_format_of_name(std::string_view name) { return index_of(kMemoryFormats, name); }

std::string type_text(const TensorMeta& meta) {
  std::string text = fmt::format("{}[{}]", short_dtype(meta.dtype), fmt::join(meta.sizes, ", "));
  return meta.device.is_cpu() ? text : text + meta.device.str();
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isNone() || b.isNone()) return a.isNone() && b.isNone();
  if (a.isBool() || b.isBool()) return a.isBool() && b.isBool() && a.toBool() == b.toBool();
  if (a.isInt() || b.isInt()) return a.isInt() && b.isInt() && a.toInt() == b.toInt();
  if (a.isDouble() || b.isDouble()) return a.isDouble() && b.isDouble() && same_bits(a.toDouble(), b.toDouble());
  if (a.isComplexDouble() && b.isComplexDouble()) {
    auto x = a.toComplexDouble(), y = b.toComplexDouble();
    return same_bits(x.real(), y.real()) && same_bits(x.imag(), y.imag());
  }
  if (a.isString() && b.isString()) return a.toStringRef() == b.toStringRef();
  if (a.isDevice() && b.isDevice()) return a.toDevice() == b.toDevice();
  if (a.isList() && b.isList()) {
    auto x = a.toListRef(), y = b.toListRef();
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!same_constant(x[i], y[i])) return false;
    return true;
  }
  if (a.isTensor() && b.isTensor()) return a.toTensor().is_same(b.toTensor());
  return false;
}

}  // namespace triage::graph
