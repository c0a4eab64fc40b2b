#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>
#include <triage/params.h>

#include <optional>
#include <string>

/// What a param takes, and what it makes of that. Every door of a host comes here: calls, `set_param`, the command
/// line, tests of policies, reloads.
namespace triage::policy {

/// Whose elements are read to check them. `small`: those of lists, and of tensors on the CPU with at most
/// `most_read_in_calls` elements. No call waits for a GPU, or reads a large tensor again each time; nor does what a
/// call brings about, as the end of a trial and a way back.
enum class Reading : uint8_t { small, all };
constexpr int64_t most_read_in_calls = 1024;

/// A param as its script gets it, as a host sets it.
ParamValue as_set(const at::Tensor& param);
/// The default as the script gets it: numbers and booleans as 0-dim tensors that count as wrapped numbers.
at::Tensor default_of(const Param& param);
/// `value` as the script gets it. Nothing where it is of another type than the param.
std::optional<at::Tensor> fitting(const Param& param, const ParamValue& value);
/// "param 'k' is an integer, and the given value is not: got 2.5; it takes 0 to 9 (what k is for)".
std::string misfit_text(const Param& param, const ParamValue& value);
/// Why the param does not allow a value of its type: "must lie between 0 and 100, got 250"; empty where it does.
std::string refusal(const Param& param, const ParamValue& value, Reading reading);
/// "param 'limit' must lie between 0 and 100, got 250 (what the limit is for)"; the same for an element.
std::string refusal_text(const Param& param, const std::string& refusal);
/// `value` as the script gets it. Throws InputError, which names the policy, where the param does not take it.
at::Tensor checked(const std::string& policy, const Param& param, const ParamValue& value, Reading reading);
/// Of a tensor, or as torch.tensor makes one of a list.
at::ScalarType dtype_of_elements(const c10::IValue& value);
/// For people: "a number", "a list of integers".
const char* kind_of(const c10::IValue& value);
/// "0 to 100", "at least 0", "one of 1, 2, 4", "0 to 1, or NaN"; empty where everything usual is allowed.
std::string range_text(const Param& param);
std::string number_text(const c10::Scalar& number);

}  // namespace triage::policy
