#include "runtime/graph/argument_type.h"

#include <ATen/core/jit_type.h>

#include <utility>

namespace triage::graph {
namespace {

Kind kind_of(const c10::Type& type) {
  using From = c10::TypeKind;
  static constexpr std::pair<From, Kind> kinds[] = {{From::TensorType, Kind::tensor},
                                                    {From::NumberType, Kind::number},
                                                    {From::ComplexType, Kind::number},
                                                    {From::IntType, Kind::integer},
                                                    {From::SymIntType, Kind::integer},
                                                    {From::FloatType, Kind::real},
                                                    {From::SymFloatType, Kind::real},
                                                    {From::BoolType, Kind::boolean},
                                                    {From::ScalarTypeType, Kind::dtype},
                                                    {From::LayoutType, Kind::layout},
                                                    {From::MemoryFormatType, Kind::memory_format},
                                                    {From::DeviceObjType, Kind::device},
                                                    {From::StringType, Kind::string},
                                                    {From::GeneratorType, Kind::generator}};
  for (const auto& [from, kind] : kinds)
    if (type.kind() == from) return kind;
  return type.str() == "SymBool" ? Kind::boolean : Kind::other;
}

}  // namespace

std::string ArgumentType::text() const {
  static constexpr const char* names[] = {"Tensor", "number",        "int",    "float",  "bool",      "dtype",
                                          "layout", "memory format", "device", "string", "Generator", "constant"};
  std::string text = names[static_cast<size_t>(kind)];
  if (list) text += optional_items ? "?[]" : "[]";
  if (optional) text += "?";
  return text;
}

ArgumentType type_of(const c10::Argument& argument) {
  ArgumentType result;
  c10::TypePtr type = argument.real_type();  // type() shows dtypes and the like as int
  if (auto optional = type->cast<c10::OptionalType>()) {
    result.optional = true;
    type = optional->getElementType();
  }
  if (auto list = type->cast<c10::ListType>()) {
    result.list = true;
    type = result.element = list->getElementType();
    if (auto item = type->cast<c10::OptionalType>()) {
      result.optional_items = true;
      type = item->getElementType();
    }
    // Kernels take sizes boxed as plain integers.
    if (type->kind() == c10::TypeKind::SymIntType) result.element = c10::IntType::get();
  }
  result.kind = kind_of(*type);
  return result;
}

}  // namespace triage::graph
