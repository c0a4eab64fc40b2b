#pragma once
#include <ATen/core/function_schema.h>

#include <string>

/// The types of operator arguments, reduced to what a graph's constants can be.
namespace triage::graph {

enum class Kind : uint8_t {
  tensor,
  number,
  integer,
  real,
  boolean,
  dtype,
  layout,
  memory_format,
  device,
  string,
  generator,
  other
};

struct ArgumentType {
  Kind kind = Kind::other;
  bool optional = false;        // None may stand here
  bool list = false;            // `kind` is that of the elements
  bool optional_items = false;  // None may stand for an element (Tensor?[])
  c10::TypePtr element;         // of a list: what a boxed list must say it holds; int where the schema says SymInt

  /// A tensor of the graph may stand here: as it is, or read as a number when the node runs.
  bool takes_value() const {
    return kind == Kind::tensor || kind == Kind::number || kind == Kind::integer || kind == Kind::real ||
           kind == Kind::boolean;
  }
  /// For messages: "int[]", "Tensor?", "dtype".
  std::string text() const;
};

ArgumentType type_of(const c10::Argument& argument);

}  // namespace triage::graph
