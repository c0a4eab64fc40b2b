#include <fmt/format.h>
#include <triage/graph.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/tensor_text.h"

namespace triage::graph {
namespace {

struct PrintedDtype {
  at::ScalarType dtype;
  const char* brief;
  const char* full;
};

constexpr std::array kDtypes = std::to_array<PrintedDtype>({
    {at::kFloat, "f32", "float32"},
    {at::kDouble, "f64", "float64"},
    {at::kHalf, "f16", "float16"},
    {at::kBFloat16, "bf16", "bfloat16"},
    {at::kLong, "i64", "int64"},
    {at::kInt, "i32", "int32"},
    {at::kShort, "i16", "int16"},
    {at::kChar, "i8", "int8"},
    {at::kByte, "u8", "uint8"},
    {at::kBool, "b8", "bool"},
    {at::kComplexHalf, "c32", "complex32"},
    {at::kComplexFloat, "c64", "complex64"},
    {at::kComplexDouble, "c128", "complex128"},
});

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

// dtypes that only some LibTorch versions have go by LibTorch's own name.
std::string name_of(at::ScalarType dtype, const char* PrintedDtype::*kind) {
  for (const auto& names : kDtypes)
    if (names.dtype == dtype) return names.*kind;
  return c10::toString(dtype);
}

std::optional<at::ScalarType> dtype_of(std::string_view name, const char* PrintedDtype::*kind) {
  for (const auto& names : kDtypes)
    if (name == names.*kind) return names.dtype;
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

std::string short_dtype(at::ScalarType dtype) { return name_of(dtype, &PrintedDtype::brief); }
std::optional<at::ScalarType> dtype_of_short(std::string_view name) { return dtype_of(name, &PrintedDtype::brief); }
std::string dtype_name(at::ScalarType dtype) { return name_of(dtype, &PrintedDtype::full); }
std::optional<at::ScalarType> dtype_of_name(std::string_view name) { return dtype_of(name, &PrintedDtype::full); }

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

namespace {

// Lines longer than this do not push the comments of the others to the right.
constexpr size_t kCommentColumn = 96;

struct PrintedLine {
  std::string text;
  std::string comment;
};

std::string declaration(const Value& value) {
  std::string text = describe(value);
  if (value.meta) text += ": " + string_literal(type_text(*value.meta));
  return value.is_flags ? text + " flags" : text;
}

std::string operand_text(const Operand& operand, const ArgumentType& type, const Namer& name) {
  if (const Value* value = operand.value()) return name(*value);
  if (const auto* items = operand.list()) {
    std::string text;
    for (const auto& item : *items) text += (text.empty() ? "" : ", ") + operand_text(item, type, name);
    return "[" + text + "]";
  }
  return literal(*operand.constant(), type);
}

bool is_default(const c10::Argument& argument, const Operand& operand) {
  return argument.default_value() && operand.constant() &&
         same_constant(*argument.default_value(), *operand.constant());
}

std::string arguments_text(const Node& node, const Namer& name) {
  std::string text;
  bool positional = true;
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    ArgumentType type = type_of(argument);
    positional =
        positional && !argument.kwarg_only() && !argument.default_value() && (i < 2 || type.kind == Kind::tensor);
    if (is_default(argument, node.operands[i])) continue;
    if (!text.empty()) text += ", ";
    if (!positional) text += argument.name() + "=";
    text += operand_text(node.operands[i], type, name);
  }
  return text;
}

/// The script line as a comment. A file name may hold anything but must stay on its line.
std::string source_text(const Source& source) {
  if (source.file.empty() && source.line == 0) return "";
  std::string text = string_literal(source.file);  // escapes line ends and backslashes
  const std::string region = source.region.empty() ? "" : " in " + source.region;
  return fmt::format("# {}:{}{}", text.substr(1, text.size() - 2), source.line, region);
}

PrintedLine node_line(const Node& node) { return {"  " + print(node), source_text(node.source)}; }

std::string attributes_text(const Constant& constant) {
  std::vector<std::string> attributes;
  if (constant.variable) attributes.emplace_back("variable=True");
  if (constant.tensor.requires_grad()) attributes.emplace_back("requires_grad=True");
  if (constant.tensor.unsafeGetTensorImpl()->is_wrapped_number()) attributes.emplace_back("wrapped_number=True");
  return attributes.empty() ? "" : fmt::format("({})", fmt::join(attributes, ", "));
}

PrintedLine constant_line(const Constant& constant) {
  const at::Tensor& tensor = constant.tensor;
  return {fmt::format("  {}: {}{} = constant{} {}", describe(*constant.value), string_literal(layout_text(tensor)),
                      constant.value->is_flags ? " flags" : "", attributes_text(constant),
                      is_printable(tensor) ? values_text(tensor) : "..."),
          ""};
}

std::string header(const Graph& graph) {
  std::vector<std::string> inputs;
  for (const auto& input : graph.inputs())
    inputs.push_back(declaration(*input.value) + (input.kind == InputKind::param ? " param" : ""));
  std::string name = is_identifier(graph.name()) ? graph.name() : string_literal(graph.name());
  std::string one_line = fmt::format("graph {}({}):\n", name, fmt::join(inputs, ", "));
  if (one_line.size() <= 100) return one_line;
  return fmt::format("graph {}(\n    {}):\n", name, fmt::join(inputs, ",\n    "));
}

PrintedLine outputs_line(const Graph& graph) {
  std::string text = "  return";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    text += i ? ", " : " ";
    if (!graph.output_names().empty()) {
      const std::string& name = graph.output_names()[i];
      text += (is_identifier(name) ? name : string_literal(name)) + "=";
    }
    text += describe(*graph.outputs()[i]);
  }
  return {text, ""};
}

}  // namespace

std::string call_text(const Node& node, const Namer& name) {
  return fmt::format("{}({})", op_name(node.op), arguments_text(node, name));
}

std::string print(const Node& node) {
  std::string results;
  for (const Value* result : node.results) results += (results.empty() ? "" : ", ") + declaration(*result);
  const std::string call = call_text(node, [](const Value& value) { return describe(value); });
  return fmt::format("{}{}{}", results, results.empty() ? "" : " = ", call);
}

std::string print(const Graph& graph) {
  std::vector<PrintedLine> lines;
  for (const auto& constant : graph.constants()) lines.push_back(constant_line(constant));
  for (const auto& node : graph.nodes()) lines.push_back(node_line(*node));
  lines.push_back(outputs_line(graph));

  size_t column = 0;
  for (const auto& line : lines)
    if (!line.comment.empty() && line.text.size() <= kCommentColumn) column = std::max(column, line.text.size());
  std::string text = header(graph);
  for (const auto& line : lines) {
    text += line.text;
    if (!line.comment.empty())
      text += std::string(column > line.text.size() ? column - line.text.size() : 0, ' ') + "  " + line.comment;
    text += '\n';
  }
  return text;
}

}  // namespace triage::graph
