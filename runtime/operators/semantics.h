#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What an operator does, as far as its schema does not say it. The rows of the table (table/*.cpp) state it, with the
/// contracts; capture, the passes over graphs, and the backends read it. An operator without a row, such as one of
/// another library, has none of these properties: capture then assumes less, and is right with more guards.
namespace triage::operators {

/// How the sizes of the result follow from the arguments: capture computes which input's size a dimension has
/// (runtime/capture/sizes/size_rules.cpp has one function for each).
enum class ResultSizes : uint8_t {
  unknown,
  broadcast,   // what all tensors broadcast to; each element of the result comes of one element of each
  either,      // what arguments `a` and `b` broadcast to
  like_first,  // those of the first argument
  like_other,  // those of argument `other`
  like_z,      // those of argument `z`
  scalar,      // no dimensions
  row_each,    // (N) for the N rows of the first argument
  record,      // flags: those of argument `flags`, or new ones for the rows of the first argument
  repaired,    // of `triage::fix`: those of `z`, and of `flags`
  reduced,     // without the dimensions in `dim`, or with 1 for each of them (`keepdim`)
  linear,
  matmul,
  addmm,
  embedding,
  convolution,  // batch and channels only
  flatten,
  view,
  unsqueeze,
  swap_two,
  swap_last_two,
  transpose,
  permute,
  select,
  slice,
  concatenate,
  stack,
  parts,          // a list of parts along `dim`
  host,           // of `triage::call_host`: as the function of the host says
  rows_by_mask,   // `index` by one mask over the rows
  positions,      // (unknown, rank of the first argument)
  unknown_length  // one dimension of unknown size
};

/// What the backward half of a graph knows of a gradient whose rows were masked to 0, behind the operator
/// (runtime/backends/aot/masked_rows.cpp).
enum class MaskedRows : uint8_t {
  unknown,
  elementwise_backward,  // first argument: the gradient; the others have the same rows
  kept,                  // 0 gives 0, each element where it was
  moved,                 // dimensions are moved, and the mask's in the same way
  reshaped,
  expanded,
  taken,  // a part along a dimension
  selected,
  turned,
  parts,
  where,
  masked_fill,
  sum_of_two,
  factors,
  joined,
  stacked,
  scattered,
  scattered_rows,
  index_put,
  cumulated,
  padded,
  reduced,
  slice_backward,
  select_backward,
  glu_backward,
  softmax_backward,
  product,
  convolution_backward,
  layer_norm_backward
};

/// Arithmetic on the numbers that sizes and single values make.
enum class Arithmetic : uint8_t {
  none,
  negate,
  add,
  subtract,
  subtract_from,
  multiply,
  divide,
  floor_divide,
  remainder,
  bit_and,
  bit_or,
  bit_xor,
  largest,
  smallest,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal
};

struct Semantics {
  enum Property : uint32_t {
    // Elements.
    moves = 1u << 0,           // results hold elements of the arguments, as they were
    moves_records = 1u << 1,   // and of flags whole records: the result is flags
    queries = 1u << 2,         // results are answers about the arguments, or tensors of their form
    form_of_first = 1u << 3,   // argument 0 gives only its form
    form_of_second = 1u << 4,  // argument 1 gives only its form
    gives_flags = 1u << 5,     // the last result is flags
    // Errors, for arguments of the dtypes and ranks of a call that did not raise. Neither: sizes that do not broadcast
    // raise
    // where the operator is elementwise, else any size or value may.
    never_raises = 1u << 6,
    raises_by_sizes = 1u << 7,  // whatever the values are
    judges_values = 1u << 8,    // some values raise
    judges_whole = 1u << 9,     // some whole numbers raise
    // Gradients.
    no_gradient = 1u << 10,  // no result has one
    // What is no function of the arguments.
    random = 1u << 11,         // draws, and neither a Generator argument nor a tag of every LibTorch says so
    effect = 1u << 12,         // must run although its result is unused
    uninitialized = 1u << 13,  // the result is memory that nobody wrote
    zeros = 1u << 14,          // all elements are 0
    // Sizes that values decide.
    dynamic = 1u << 15,
    dynamic_by_mask = 1u << 16,     // where one of `indices` is a mask
    dynamic_by_classes = 1u << 17,  // where `num_classes` is not given
    // Memory.
    view_or_copy = 1u << 18,  // the result may have the memory of an argument, and may not, whatever the schema says
    repeats = 1u << 19,       // several elements of the result have one place in memory
    // Numbers.
    quotient = 1u << 20,        // whole: the processor stops a program that divides the lowest number by -1
    modulus = 1u << 21,         // what such a division leaves
    checks_numbers = 1u << 22,  // raises for a number that the dtype does not hold; the others wrap it around
    // Kernels.
    rounds_by_position = 1u << 23,  // ATen's bits depend on where an element lies, and on how many threads there are
    same_out = 1u << 24,            // the overload `out` gives the same bits
    reads_metadata = 1u << 25,      // answers that are no tensors, and depend on no values
    fixed_count = 1u << 26,         // the list that it returns has as many tensors in every call
    // Samples.
    keeps_rows = 1u << 27  // row i of a result is of row i of argument 0, where no argument names dimension 0
  };

  uint32_t properties = 0;
  ResultSizes sizes = ResultSizes::unknown;
  MaskedRows masked_rows = MaskedRows::unknown;
  Arithmetic arithmetic = Arithmetic::none;
  /// What it computes for one element, and for which dtypes: "real: a * (1 - b * b); whole: a". Empty: loops do not
  /// have it, or it depends on more (runtime/backends/fused/lowering).
  std::string_view formula;

  constexpr bool has(uint32_t any_of) const { return (properties & any_of) != 0; }
};

/// "+", "//", "<=", "max": as Lua and messages write it.
const char* sign(Arithmetic op);

/// Those of the row that has the operator, for in-place forms of the form without the underscore. Takes no lock once
/// the table is read.
const Semantics& semantics_of(const c10::OperatorHandle& op);

/// The operators that are formulas: "aten::mul.Tensor", and Semantics::formula.
const std::vector<std::pair<std::string, std::string_view>>& formulas();

}  // namespace triage::operators
