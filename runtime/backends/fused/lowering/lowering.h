#pragma once
#include <c10/util/FunctionRef.h>
#include <triage/graph.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/backends/fused/lowering/loop_builder.h"

/// From graph nodes to what they compute for one row. A node that cannot be written so is refused, and stays a call of
/// ATen.
namespace triage::fused {

/// A tensor of the group while it is being built: its form and the value that stands for it.
struct Lowered {
  TensorForm form;
  Ref value;
};

class Lowering : public LoopBuilder {
 public:
  /// `batch`: how many rows there were at capture. `device`: of all tensors but numbers, which may be the host's.
  /// `wrapped`: numbers that take part in promotion as those of a script do.
  using Values = std::unordered_set<const graph::Value*>;
  explicit Lowering(int64_t batch, c10::Device device = at::kCPU, const Values* wrapped = nullptr)
      : batch_(batch), device_(device), wrapped_(wrapped) {}

  /// Adds `node`, or returns false and leaves everything as it was.
  bool add(const graph::Node& node);
  /// Whether loops have the value, or can read it, as data of the batch that is no record.
  bool has_data(const graph::Value& value);
  /// Loops read such a value where none of them makes it.
  void read_data(const graph::Value& value);
  /// The loops with these results, or what `read_data` was called for. What they read from outside: `arguments()`.
  Loops finish(const std::vector<const graph::Value*>& outputs);
  const std::vector<const graph::Value*>& arguments() const { return arguments_; }

  /// --- for the functions that lower one operator: they return false where they cannot ---
  const graph::Node& node() const { return *node_; }
  const graph::Value* tensor(size_t argument) const;   // null where the argument is no tensor of the graph
  const c10::IValue* constant(size_t argument) const;  // null where it is no constant
  bool is_none(size_t argument) const;
  std::optional<int64_t> integer(size_t argument) const;
  std::optional<bool> flag(size_t argument) const;
  /// The value of tensor argument `argument`, in its own form.
  std::optional<Lowered> lowered(size_t argument);
  std::optional<Lowered> lowered(const graph::Value& value);
  /// The argument, a tensor or a number, as an operand of an elementwise operation computed in `dtype` on tensors of
  /// form `shape`. Nothing where ATen would have to promote or broadcast in a way that loops do not.
  std::optional<Ref> operand(size_t argument, at::ScalarType dtype, const TensorForm& shape);
  /// The form of an elementwise result of these arguments, at least one of which is data of the batch.
  std::optional<TensorForm> broadcast(const std::vector<size_t>& arguments);
  /// The dtype in which tensors and numbers among these arguments are computed: that of all tensors, or to which theirs
  /// are promoted.
  std::optional<at::ScalarType> common_dtype(const std::vector<size_t>& arguments);
  std::optional<Ref> number(const c10::IValue& value, at::ScalarType dtype);
  /// The value in another dtype, as `to` converts it; nothing where that is not known.
  std::optional<Ref> cast(Ref value, at::ScalarType from, at::ScalarType to);

  /// The values of `x` where its rows are split so beside the way in which they are split; nothing where that would
  /// take long.
  std::optional<Lowered> split_again(const Lowered& x, const std::vector<bool>& outside);
  /// The sizes that argument `argument`, a list, asks for; nothing where loops cannot find them.
  std::optional<std::vector<Reshape::ReshapeSize>> asked_sizes(size_t argument);
  /// The result has the values of `x`, rows of these sizes (the batch in front). `is_view`: ATen raises where it would
  /// have to copy.
  bool reshaped(const Lowered& x, const std::vector<Reshape::ReshapeSize>& sizes, bool is_view);
  /// ATen raises for numbers of this node that do not fit, though its row does not say so.
  void check_numbers() { refuses_numbers_ = true; }
  bool note_batch_size();
  std::optional<TensorForm> form_of_known_sizes(size_t argument, const std::vector<int64_t>& seen,
                                                at::ScalarType dtype);
  int64_t batch() const { return batch_; }
  /// Holds fast the sizes that argument `argument`, a list, asks of the result, which has form `form` and the sizes
  /// `seen` of it. False where they are not constants.
  bool fix_sizes(size_t argument, const std::vector<int64_t>& seen, const TensorForm& form);

  /// Result `index` of the node. A value that was computed in another dtype (float for halves) is rounded to that of
  /// `form`.
  bool result(size_t index, TensorForm form, Ref computed);
  /// The form, of rows or of elements, of captured sizes `sizes`; nothing where they are not of the batch.
  std::optional<TensorForm> batch_form(const std::vector<int64_t>& sizes, at::ScalarType dtype);

 private:
  bool is_there(const graph::TensorMeta& meta) const;
  std::optional<TensorForm> form_of(const graph::Value& value);
  Ref read(const graph::Value& value, const TensorForm& form);
  std::optional<Ref> as_column(const graph::Value& value, const TensorForm& shape);
  bool attempt(c10::function_ref<bool()> lower);
  bool host_call();
  std::optional<Ref> size_asked(size_t argument, size_t item);
  bool fits(size_t argument, const Lowered& number, at::ScalarType dtype);
  std::optional<Reshape::ReshapeSize> asked_size(const graph::Operand& item);
  bool fits_batch(const std::vector<Reshape::ReshapeSize>& sizes);
  std::optional<Ref> value_again(Ref ref, int32_t first, int32_t extent, std::map<Ref, Ref>& known);
  using LoweredValues = std::unordered_map<const graph::Value*, Lowered>;
  void remember(LoweredValues& known, const graph::Value* value, Lowered lowered);

  int64_t batch_;
  const c10::Device device_;
  const Values* const wrapped_;
  const graph::Node* node_ = nullptr;
  bool refuses_numbers_ = false;  // ATen raises for numbers of this node that do not fit
  std::vector<const graph::Value*> arguments_;
  LoweredValues tensors_;                                              // computed here
  std::set<const graph::Value*> batch_sizes_;                          // of tensors of the batch
  LoweredValues read_;                                                 // read in their own form
  std::map<std::pair<const graph::Value*, int32_t>, Ref> columns_;     // read as a column of that extent
  std::vector<std::pair<LoweredValues*, const graph::Value*>> added_;  // by the node that is being lowered
};

TensorForm row_form(at::ScalarType dtype, int64_t rank = 1);
TensorForm record_form(int64_t words, at::ScalarType carrier);

/// The dtypes that an operator is lowered for. Halves are computed in float and rounded once.
enum class Dtypes : uint8_t {
  any,
  number,            // all but bool
  real,              // all floating-point ones
  single_or_double,  // float32, float64
  single_or_half,    // float16, bfloat16, float32
  bfloat16,
  integer,
  whole,  // integers and bool
  int_or_long,
  boolean,
};
bool includes(Dtypes dtypes, at::ScalarType dtype);

/// A result of the form that the operands of the formula, arguments of the operator, broadcast to, in the dtype that
/// they are promoted to, or bool where it is a condition. False where it cannot be so, or the dtype is another one.
bool elementwise(Lowering& l, Dtypes dtypes, const char* formula);
bool clamp(Lowering& l);  // to the bounds in arguments 1 and 2

/// The rows that have a NaN, as detection finds them.
Ref nan_in_rows(Lowering& l, Ref z);

/// A number in the form of argument 0: argument `fill`, or `number`.
bool filled(Lowering& l, std::optional<size_t> fill, const c10::IValue& number = {});

/// A call that makes one number of numbers: the host can run it, whatever it computes.
bool is_host_call(const graph::Node& node);

/// An operator that is a formula of its arguments. Of several for one operator, the first that can be is taken.
struct FormulaRow {
  std::string op;  // "aten::add.Tensor"
  Dtypes dtypes;
  std::string formula;
};
const std::vector<FormulaRow>& formula_operators();

/// How an operator is lowered that is none: false where it is not.
using Lower = bool (*)(Lowering&);
using LowerTable = std::vector<std::pair<const char*, Lower>>;
const LowerTable& elementwise_operators();
const LowerTable& host_numbers();
const LowerTable& reshapes();
const LowerTable& activations();
const LowerTable& divisions();
const LowerTable& reductions();
const LowerTable& flags_operators();

bool can_lower(const std::string& op);  // "aten::add.Tensor"
bool is_reshape(const std::string& op);

}  // namespace triage::fused
