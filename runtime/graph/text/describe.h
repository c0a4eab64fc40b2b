#pragma once
#include <triage/graph.h>

#include <string>
#include <string_view>

#include "runtime/graph/argument_type.h"

/// The pieces of a graph's text: what the printer writes, the parser reads and messages quote.
namespace triage::graph {

/// "%z", "%3", "%\"odd name\"".
std::string describe(const Value& value);
/// "%3 = aten::mm", for messages.
std::string describe(const Node& node);
/// "aten::add.Tensor".
std::string op_name(const c10::OperatorHandle& op);
/// "aten::add.Tensor(%z, %3, alpha=2)", each value by what `name` calls it: tensors first by position, then all else by
/// name; what equals the schema's default is left out.
using Namer = std::function<std::string(const Value&)>;
std::string call_text(const Node& node, const Namer& name);

/// A node as `print` writes it: results with types, operator, arguments.
std::string print(const Node& node);

/// A constant operand as text; dtypes, layouts and memory formats by name. Exact: reading it back gives the same bits.
std::string literal(const c10::IValue& value, const ArgumentType& type);
std::string string_literal(std::string_view text);
bool is_identifier(std::string_view text);

/// Shortest text that reads back to the same bits, and cannot be taken for an integer. `nan(0x...)` gives the bits of a
/// NaN that is not the ordinary one.
std::string float_text(double value);
std::string float_text(float value);

/// "f32", "b8", ... as torch.fx prints them; other dtypes by their LibTorch name.
std::string short_dtype(at::ScalarType dtype);
std::optional<at::ScalarType> dtype_of_short(std::string_view name);
/// "float32", "bool", ... as torch names them.
std::string dtype_name(at::ScalarType dtype);
std::optional<at::ScalarType> dtype_of_name(std::string_view name);
std::optional<int64_t> layout_of_name(std::string_view name);
std::optional<int64_t> memory_format_of_name(std::string_view name);

/// "f32[32, 512]", followed by the device where it is not the CPU.
std::string type_text(const TensorMeta& meta);

/// Same type and same bits: NaN equals itself, -0.0 is not 0.0, 1 is neither 1.0 nor true.
bool same_constant(const c10::IValue& a, const c10::IValue& b);

}  // namespace triage::graph
