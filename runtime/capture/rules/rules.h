#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <runtime/capture/graph_break.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/graph/functional.h"

/// What capture knows of single operators: which cannot stand in a graph, and why.
namespace triage::capture {

struct Refusal {
  Break kind;
  std::string what;  // a clause: what the operator does that one graph cannot hold
  std::string hint;  // a sentence: what to do instead
};

/// The operator's name without its namespace, for messages: "add_" of "aten::add_".
std::string base_name(const c10::OperatorHandle& op);

bool is_aten(const c10::OperatorHandle& op);

/// The values of its arguments decide the shape of what this call of `op` gives.
bool gives_dynamic_shape(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// Whether `op` may raise because of the values it is given, where others of their shapes and dtypes are fine: an index
/// out of range, an integer divided by zero. (Linear algebra tells by LinAlgError.)
bool judges_values(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// A condition of the whole batch chooses between the values of two branches.
bool selects_for_batch(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// The call changes this argument in place.
inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

/// Why a call of `op` cannot be captured; nothing where it can. `dynamic_shapes`: such results are fine.
std::optional<Refusal> refusal(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                               bool dynamic_shapes);

using graph::functional_twin;

}  // namespace triage::capture
