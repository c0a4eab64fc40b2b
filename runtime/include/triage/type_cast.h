#pragma once
#include <triage/result.h>
#include <triage/typing.h>

namespace triage {

/// `x` in another dtype (itself where it has that dtype already), or why not: an undefined tensor, a complex one that would
/// lose its imaginary parts. Values are cast as `Tensor::to` casts them.
Result<at::Tensor, ValidationFailure> type_cast(c10::ScalarType dtype, const at::Tensor& x);

/// What keeps `x` from being cast; nothing where it can be.
std::optional<ValidationFailure> cast_failure(c10::ScalarType dtype, const at::Tensor& x);

}  // namespace triage
