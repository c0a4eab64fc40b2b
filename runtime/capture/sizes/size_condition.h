#pragma once
#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/operators/semantics.h"

/// A condition on the sizes of inputs by which a script went its way, such as `x:size(0) % 2 == 0`. The graph holds for
/// all sizes that take the same way: the condition is a guard, worked out again on every call.
namespace triage::capture {

class SizeCondition {
 public:
  /// One dimension of one input.
  struct InputDim {
    size_t input;
    int64_t dim;
    friend bool operator==(const InputDim&, const InputDim&) = default;
  };
  /// What stands behind a number of the graph: a size of an input, a size that is the same in every replay, or neither.
  struct SizeOrigin {
    std::optional<InputDim> size;
    std::optional<int64_t> constant;
  };
  using OriginOf = std::function<SizeOrigin(const graph::Value*)>;

  /// `condition`: a comparison of integers computed of sizes, which was `truth` in the capture. Nothing where it is
  /// computed of anything else, or by operators that are not known here.
  static std::optional<SizeCondition> of(const graph::Value* condition, bool truth, const OriginOf& origin);

  /// No allocation.
  bool holds(at::ArrayRef<at::Tensor> inputs) const noexcept;
  /// "size(x, 0) % 2 == 0".
  std::string text(const std::function<std::string(size_t)>& input_name) const;
  bool truth() const { return truth_; }
  /// One size equals another, or a constant.
  struct Equality {
    InputDim size;
    std::optional<InputDim> other;
  };
  /// Where the condition says just that.
  std::optional<Equality> equality() const;
  friend bool operator==(const SizeCondition&, const SizeCondition&) = default;

 private:
  using Op = operators::Arithmetic;
  struct ConditionStep {  // of a computation on a stack
    enum class Kind : uint8_t { size, constant, compute };
    Kind kind;
    Op op = Op::none;
    int64_t number = 0;  // a constant; the dimension of a size
    size_t input = 0;
    friend bool operator==(const ConditionStep&, const ConditionStep&) = default;
  };
  static constexpr size_t kDepth = 8;       // of the stack
  static constexpr size_t kMostSteps = 64;  // a number that is computed of itself twice doubles them each time

  /// `depth`: of the stack; `behind`: how many steps follow those of the value, at least.
  bool add(const graph::Value* value, const OriginOf& origin, size_t depth, size_t behind);
  bool add(const graph::Operand& operand, const OriginOf& origin, size_t depth, size_t behind);
  static int64_t apply(Op op, int64_t a, int64_t b) noexcept;
  static std::optional<Op> op_of(const graph::Node& node);
  static bool compares(Op op) { return op >= Op::less; }

  std::vector<ConditionStep> steps_;
  bool truth_ = true;
};

}  // namespace triage::capture
