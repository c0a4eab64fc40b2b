#include "runtime/graph/argument_type.h"

#include <ATen/core/jit_type.h>

namespace triage::graph {
namespace {

Kind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Kind::tensor;
    case c10::TypeKind::NumberType:
      return Kind::number;
    case c10::TypeKind::ComplexType:
      return Kind::number;
    case c10::TypeKind::IntType:
      return Kind::integer;
    case c10::TypeKind::SymIntType:
      return Kind::integer;
    case c10::TypeKind::FloatType:
      return Kind::real;
    case c10::TypeKind::SymFloatType:
      return Kind::real;
    case c10::TypeKind::BoolType:
      return Kind::boolean;
    case c10::TypeKind::ScalarTypeType:
      return Kind::dtype;
    case c10::TypeKind::LayoutType:
      return Kind::layout;
    case c10::TypeKind::MemoryFormatType:
      return Kind::memory_format;
    case c10::TypeKind::DeviceObjType:
      return Kind::device;
    case c10::TypeKind::StringType:
      return Kind::string;
    case c10::TypeKind::GeneratorType:
      return Kind::generator;
    default:
      break;
  }
  return type.str() == "SymBool" ? Kind::boolean : Kind::other;
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::tensor:
      return "Tensor";
    case Kind::number:
      return "number";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::boolean:
      return "bool";
    case Kind::dtype:
      return "dtype";
    case Kind::layout:
      return "layout";
    case Kind::memory_format:
      return "memory format";
    case Kind::device:
      return "device";
    case Kind::string:
      return "string";
    case Kind::generator:
      return "Generator";
    case Kind::other:
      break;
  }
  return "constant";
}

}  // namespace

std::string ArgumentType::text() const {
  std::string text = name_of(kind);
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
