#pragma once
#include <ATen/core/Tensor.h>

#include <c10/core/Scalar.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backends/fused/opcodes.h"
#include "runtime/graph/visits.h"

/// What a fused group computes for one row of the batch, values in the order in which they are
/// computed. A value is a number (the same for all rows), belongs to the row, or has one element for each position of a
/// row.
namespace triage::fused {

/// `cpu` and `cpu:0` are one.
inline bool is_on(c10::Device device, c10::Device wanted) {
  return wanted.is_cpu() ? device.is_cpu() : device == wanted;
}

enum class Place : uint8_t { number, row, element };

using Ref = int32_t;  // index into Loops::values

/// The operands of a value, which come before it in Loops::values. To read them is a visit (runtime/graph/visits.h).
class Refs {
 public:
  Refs() = default;
  Refs(std::vector<Ref> refs) : refs_(std::move(refs)) {}  // NOLINT(google-explicit-constructor)
  Refs(std::initializer_list<Ref> refs) : refs_(refs) {}
  size_t size() const { return refs_.size(); }
  bool empty() const { return refs_.empty(); }
  Ref operator[](size_t i) const {
    graph::count_visits();
    return refs_[i];
  }
  auto begin() const {
    graph::count_visits();
    return refs_.begin();
  }
  auto end() const { return refs_.end(); }
  auto begin() {
    graph::count_visits();
    return refs_.begin();
  }
  auto end() { return refs_.end(); }
  Ref back() const { return (*this)[size() - 1]; }

 private:
  std::vector<Ref> refs_;
};

/// The positions that some values have in a row: dims of the data without the batch, but for those of size 1, along
/// which values are the same. Where a reduction runs over some of them, or a value is the same along some, the row is
/// looked at as segments, each of which has positions: those of the last dims, or (`inner`) of dims that others follow.
struct RowExtent {
  std::vector<int64_t> sizes;  // as captured; at run time they come from the inputs of that extent
  bool fixed = false;          // the sizes stand in the graph (`expand`): such they are, or the loops do not fit
  int32_t segments = -1;       // where there are segments: the extent of how many there are,
  int32_t positions = -1;      // and of those of one segment; together their sizes are these
  int32_t inner = -1;          // where dims of the segments follow those of the positions: the extent of these
  int32_t same = -1;           // the extent that values have instead: the same positions, counted in other sizes
  int32_t again = -1;          // the extent that is looked at here in another way
};

/// Extent `to` has the positions of `from`, counted in these sizes.
struct Reshape {
  struct ReshapeSize {
    enum class From : uint8_t {
      constant,  // `value`
      dim,       // dim `value` of `from`
      size,      // what Loops::inputs[value] is, a HostNumber that is a size
      input,     // the number that Loops::inputs[value] is
      rest,      // what the others leave
      batch      // how many rows there are: for those who ask, not in `sizes`
    };
    From from;
    int64_t value;
  };
  int32_t from, to;
  std::vector<ReshapeSize> sizes;
};

struct LoopValue {
  enum class Kind : uint8_t {
    input,     // read from memory
    map,       // `opcode` of the operands, at each place alone
    reduce,    // operand 0 over its positions, joined by `join`; belongs to the row, or to a segment of it
    classify,  // of element operand 0, whose largest magnitude is operand 1: are there NaNs, are there Infs (two flags
               // in one)
  };
  Kind kind = Kind::map;
  Place place = Place::row;
  Opcode opcode = Opcode::literal;
  Join join = Join::sum;
  Type type = Type::f32;              // as computed
  at::ScalarType dtype = at::kFloat;  // as a tensor holds it
  int32_t slots = 0;                  // records: of how many slots
  int32_t extent = -1;                // elements: index into Loops::extents
  int32_t slot = -1;                  // inputs: index into Loops::inputs
  Refs operands;
  std::vector<int64_t> numbers;  // that `opcode` takes beside the operands
  bool expensive = false;        // worth keeping rather than computing again
  bool inner = false;            // a step on the way to the result of an operator: never kept
  bool cut = false;              // a whole number that comes of a real one
  bool on_host = false;          // a number that the host can find without the loops
  int32_t depth = 0;             // of reductions that it waits for, one after the other
  int32_t line = -1;             // of the script: index into Loops::lines
  bool is(Opcode one) const { return kind == Kind::map && opcode == one; }
};

/// How a tensor of the group lies beside the batch of N rows.
struct TensorForm {
  enum class Kind : uint8_t {
    number,   // one value
    row,      // (N) or (N, 1, ...): one value a row
    element,  // (N, ...): a row has values at the positions of its extent
    column,   // the same values for all rows, at the positions of an extent
    record,   // (N, words): flags
  };
  Kind kind = Kind::number;
  at::ScalarType dtype = at::kFloat;
  int64_t rank = 0;
  int32_t extent = -1;  // element, column
  std::vector<int64_t>
      trailing;       // element, column: all sizes but the batch's, as captured; what is 1 must be 1 in every call
  int64_t words = 0;  // record
};

/// A number that the host finds before the loops run: a size, or what a function gives for numbers, which are the
/// operands of the value that reads it. Loops read it as they read a number that is an argument.
struct HostNumber {
  /// Nothing where ATen would raise: the call is then ATen's.
  using Function = std::function<std::optional<c10::Scalar>(at::ArrayRef<c10::Scalar>)>;
  Function function;    // null: the size of
  int32_t extent = -1;  // this extent, -1: of the batch,
  int32_t dim = 0;      // in this one of its dims
  std::string text;     // for people
};

struct LoopInput {
  size_t argument;  // of the group
  TensorForm form;
  bool viewed = false;  // ATen raises where its memory cannot be looked at in other sizes
  std::shared_ptr<const HostNumber> computed = nullptr;  // in the place of an argument
};

/// A number for which ATen raises where it is beyond the range of the dtype that is computed in: such a call is ATen's.
struct NumberBound {
  Ref value;
  at::ScalarType dtype;
};

/// A call asks for this size by a number. Where that is another one, the loops do not fit.
struct SizeCheck {
  Ref number;
  int32_t extent;  // -1: of the batch
  int32_t dim;
};

struct LoopOutput {
  Ref value;
  TensorForm form;
};

struct Loops {
  std::vector<LoopValue> values;
  std::vector<LoopInput> inputs;
  std::vector<LoopOutput> outputs;
  std::vector<NumberBound> bounds;
  std::vector<SizeCheck> size_checks;
  Ref last_asked = -1;  // of the numbers that the host must know before the loops run
  std::vector<RowExtent> extents;
  std::vector<Reshape> reshapes;
  std::optional<int64_t> fixed_batch;  // where it stands in the graph how many rows there are
  std::vector<size_t> batch_inputs;    // inputs that are that number
  bool infers_size = false;            // a call asks for size -1: ATen raises for it where there are no rows
  std::vector<std::string> lines;      // "repair.lua:3": where operators come from, for listings
};

}  // namespace triage::fused
