#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/operators/call.h"

/// What a contract says of single arguments, read from the text of a row. "name: word word; name: word": `*` names all
/// tensors.
///
///   tensors   any real number float single integer bool mask index int64   its dtype (real: the default)
///             rank:1..3  filled (has elements)  contiguous  like:self (of its dtype)
///             mixed:self (of its dtype, or float32 where that is narrower)
///             apart (what is written to shares no memory with another argument)  unexpanded (nor do two elements)
///   integers  0..2  any  offset (of a position)  dim (of `self`)  newdim (where a dimension is put in)  absent (None)
///   lists     the same of each element; dims  sizes  inferred (sizes, of which one may be -1)  len:1..2
///   numbers   finite  0..1
///   strings   one:none|tanh
///   booleans  false
///
/// What stands in no row follows from the type and the name of the argument; an integer, list or string of which
/// nothing is said is a fault of the table.
namespace triage::operators {

struct ArgumentRule {
  enum class Kind : uint8_t {
    free,  // booleans
    tensor,
    integer,
    dimension,
    number,
    text,
    dtype,
    layout,
    memory_format,
    device,
    absent  // must be None
  };
  Kind kind = Kind::free;
  bool list = false;
  bool optional = false;
  bool sizes = false;  // the product of the list is a number of elements
  bool said = false;   // type and name say enough
  bool filled = false, contiguous = false, written = false, apart = false, unexpanded = false;
  bool only_false = false;
  uint32_t dtypes = 0;  // a bit each
  int64_t low = 0, high = 0;
  double low_number = 0, high_number = 0;  // NaN fits where `finite` does not forbid it
  bool finite = false;
  int64_t least_length = 0, most_length = 0;
  int64_t beyond = 0;  // dimensions more than `self` has
  int reference = -1;  // the argument that `dimension` is of, or `like`
  bool like = false, or_float = false;
  std::vector<std::string> words;
};

/// The rules of a schema's arguments. Appends to `faults` what the text does not say, or says of no argument.
std::vector<ArgumentRule> read_rules(const c10::FunctionSchema& schema, std::string_view text,
                                     std::vector<std::string>& faults);

/// "argument 'dim' is 5; expected -2 to 1". `known`: null, or which arguments are.
std::optional<std::string> broken_rule(const std::vector<ArgumentRule>& rules, const OperatorCall& call,
                                       const std::vector<bool>* known);

}  // namespace triage::operators
