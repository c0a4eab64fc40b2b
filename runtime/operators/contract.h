#pragma once
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What policies, loaded programs and graphs that come as text may call, and with which arguments. LibTorch's kernels
/// trust much of what they are given: numbers far out of range, enumerations, tensors that overlap end the process,
/// read stray memory or never return. So an operator is there for what is not trusted only where a row of the table
/// (table/*.cpp) says which arguments it takes, how many bytes it allocates, and how long it may run. A call within its
/// contract either gives its result or throws.
///
/// Contracts speak of single calls. One that was checked when a graph was captured is checked again when the graph runs
/// on other inputs, by whoever calls the operator (the interpreter): sizes, and numbers computed from values, may be
/// others then. What a backend computes itself, as loops over elements, calls no operator and needs no check.
namespace triage::operators {

struct Contract;

/// Null where nothing untrusted may call the operator. `qualified`: "aten::clamp"; `overload`: "Tensor". Lives for
/// ever.
const Contract* find_contract(std::string_view qualified, std::string_view overload);

/// What is wrong with the arguments, as the end of a sentence ("argument 'dim' is 5; expected -2 to 1"); nothing where
/// they are within the contract. One for each argument of the schema; a one-element tensor may stand where a number is
/// wanted. `mends_division`: the caller itself divides integers by -1, which stops the process (capture::call does).
std::optional<std::string> violation(const Contract& contract, const c10::FunctionSchema& schema,
                                     c10::ArrayRef<c10::IValue> arguments, bool mends_division = false);

/// The same where only constants are known yet, as in a graph that was read: `known` says which arguments these are.
std::optional<std::string> violation_of_constants(const Contract& contract, const c10::FunctionSchema& schema,
                                                  c10::ArrayRef<c10::IValue> arguments, const std::vector<bool>& known);

/// Upper bound of the bytes that a call within the contract allocates, results and workspace; saturates at INT64_MAX.
int64_t allocation_bound(const Contract& contract, const c10::FunctionSchema& schema,
                         c10::ArrayRef<c10::IValue> arguments);

/// About how long a call within the contract takes at most on one slow core, in nanoseconds; saturates at INT64_MAX.
int64_t time_bound(const Contract& contract, const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments);

/// When a call that was within its contract once is to be asked again where it runs on other tensors of the same dtypes
/// and ranks.
enum class AskedAgain : uint8_t {
  never,        // it allocates nothing
  where_large,  // its cost is in proportion to the elements that its arguments have, or broadcast to
  always        // it may be out of its contract, or cost more than that
};
AskedAgain asked_again(const Contract& contract, const c10::FunctionSchema& schema);

/// Whether a call to be asked again `where_large` must be: its arguments may have, or broadcast to, more elements than
/// can be had without asking. Views may be far larger than their memory.
bool may_be_large(c10::ArrayRef<c10::IValue> arguments, int64_t bytes_a_call) noexcept;

/// The overloads that have a contract and that this LibTorch has, sorted by name: ("aten::clamp", "Tensor").
const std::vector<std::pair<std::string, std::string>>& all_contracts();

}  // namespace triage::operators
