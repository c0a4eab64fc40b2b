#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// What a fused region computes for one row of the batch, as the emitter takes it: values in the order in which they are
/// computed. A value is a number (the same for all rows), belongs to the row, or has one element for each position of a row.
namespace triage::fused {

enum class Place : uint8_t { number, row, element };

using Ref = int32_t;  // index into Loops::values

/// The code of a selection by a condition that holds for whole rows: condition, value, else.
inline constexpr const char* row_selection = "pick({0}, {1}, {2})";

struct LoopValue {
  enum class Kind : uint8_t {
    input,   // read from memory
    map,     // `code`, with {0}, {1}, ... for the operands
    reduce,  // `code` joined over the positions of operand 0 by `join`; belongs to the row
    classify,  // of element operand 0, whose largest magnitude is operand 1: are there NaNs, are there Infs (two flags in one)
  };
  Kind kind = Kind::map;
  Place place = Place::row;
  std::string type;                   // of C++, as computed: "float", "bool", "Record<16>"
  at::ScalarType dtype = at::kFloat;  // as a tensor holds it
  int32_t extent = -1;                // elements: index into Loops::extents, how many positions
  std::string code;
  std::string join;   // "+", "max", "min", and "|" of what is true or false
  std::string start;  // what a reduction begins with
  std::vector<Ref> operands;
  int32_t slot = -1;       // inputs: index into Loops::inputs
  bool expensive = false;  // worth keeping rather than computing again
};

/// How a tensor of the region lies beside the batch of N rows.
struct TensorForm {
  enum class Kind : uint8_t {
    number,   // 0-dim
    row,      // (N) or (N, 1, ...): one value a row
    element,  // (N, ...): a row has as many values as its extent
    column,   // the sizes of one row: the same for all rows
    record,   // (N, words): flags
  };
  Kind kind = Kind::number;
  at::ScalarType dtype = at::kFloat;
  int64_t rank = 0;
  int32_t extent = -1;            // element, column
  std::vector<int64_t> trailing;  // element, column: sizes of a row, as captured
  int64_t words = 0;              // record
};

struct LoopInput {
  size_t argument;  // of the region
  TensorForm form;
};

struct LoopOutput {
  Ref value;
  TensorForm form;
};

struct Loops {
  std::vector<LoopValue> values;
  std::vector<LoopInput> inputs;
  std::vector<LoopOutput> outputs;
  /// The sizes of a row, as captured; at run time they come from the inputs of that extent.
  std::vector<std::vector<int64_t>> extents;
  /// Extents whose sizes stand in the graph (`expand`): such they are, or the loops do not fit.
  std::vector<bool> fixed;
  std::optional<int64_t> fixed_batch;  // likewise how many rows there are
};

}  // namespace triage::fused
