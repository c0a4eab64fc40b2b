#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/diagnose/isolation/recording.h"

/// Where elements of a result come from, as far as the operator says it.
namespace triage::diagnose {

/// Of an operator that chooses, element by element: `aten::where`, `triage::select` of branches, `triage::fix`,
/// `aten::masked_fill`.
struct ElementChoice {
  at::Tensor condition;                         // bool, in the sizes of the result
  std::optional<size_t> when_true, when_false;  // values; nothing where it is a number
};
std::optional<ElementChoice> choice_of(const Recording& recording, const RecordedStep& step, size_t result);

/// Elements of a value that a step read.
struct ValueElements {
  size_t value;
  at::Tensor mask;  // bool, in the sizes of the value
};
/// What elements `mask` of `result` may have come of, in the order of the operands; without flags and conditions. What
/// was not chosen is not among it. Operators of which nothing is known may have made each element of all.
std::vector<ValueElements> parts_behind(const Recording& recording, const RecordedStep& step, size_t result,
                                        const at::Tensor& mask);

}  // namespace triage::diagnose
