#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <triage/graph.h>

#include <optional>
#include <string_view>

#include "runtime/operators/semantics.h"

/// Numbers of a graph that are known only when it runs. They are values like all others, 0-dim tensors on the CPU of
/// int64 or float64; where an operator wants a number the interpreter reads them.
///
///     triage::item(Tensor self) -> Tensor                          the only element of `self`
///     triage::size(Tensor self, int dim) -> Tensor                 the size of one dimension
///     triage::assert_scalar(Tensor condition, str message) -> ()   raises `message` where `condition` is false
///     triage::math(...)                                            number_math.h
namespace triage::graph {

inline constexpr std::string_view kItem = "triage::item", kSize = "triage::size", kAssert = "triage::assert_scalar";

bool is_number_op(const c10::OperatorHandle& op);
c10::OperatorHandle number_op(std::string_view name);

/// `triage::decompose`, which puts plain ATen in the place of these operators too, or leaves them to who has better
/// words for them.
enum class Numbers : uint8_t { in_aten, as_they_are };
/// What the calls are for which `is_choice` holds. In ATen the result may have another order of dims than the tensor
/// that is chosen.
enum class Choices : uint8_t { in_aten, as_they_are };
Graph decompose(const Graph& graph, Numbers numbers, Choices choices = Choices::in_aten);

/// Whether it gives all of one tensor or all of another (`triage::select` by one truth value).
bool is_choice(const Node& node);

/// What a node is, in these operators or in the ATen that `decompose` puts in their place.
const Value* item_of(const Node& node);  // the tensor whose only element it gives as a number; null elsewhere
struct SizeRead {
  const Value* of;
  int64_t dim;
};
std::optional<SizeRead> size_read(const Node& node);
/// Arithmetic of two numbers, or of one; `none` also where the call scales one of them (`alpha`).
operators::Arithmetic arithmetic_of(const Node& node);
bool is_assertion(const Node& node);  // `aten::_assert_async` too, which has no message in one of its forms

/// Appends to `graph` the same as `node` in plain ATen, `operands` taking the place of the node's own. Returns the
/// result; null for an assertion, which has none.
Value* append_in_aten(Graph& graph, const Node& node, const std::vector<Operand>& operands);

}  // namespace triage::graph
