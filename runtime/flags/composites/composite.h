#pragma once
#include <ATen/core/stack.h>

#include <functional>
#include <string>

namespace triage::flags {

/// An operation as plain ATen calls: takes its arguments from the stack and leaves its results there, like callBoxed.
/// The calls it makes, their number, order and constants, depend on the ranks, dtypes and constant arguments, and on
/// what is known of the rows of its arguments (known_rows.h), never on the batch size or on values: recorded at one
/// batch size, they are right at every other, 0 included.
using Composite = std::function<void(torch::jit::Stack&)>;

/// The composite of an operator of ours by its qualified name with overload (`triage::push.where`); null for others.
const Composite* find_composite(const std::string& qualified_name_with_overload);

}  // namespace triage::flags
