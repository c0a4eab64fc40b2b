#pragma once
#include <triage/api.h>
#include <triage/result.h>
#include <triage/typing.h>

namespace triage {

/// `x` in another dtype (`x` itself if it has that dtype already), or a failure: an undefined tensor, or a complex one
/// that would lose its imaginary parts. Values are cast as `Tensor::to` casts them.
TRIAGE_API Result<at::Tensor, ValidationFailure> type_cast(c10::ScalarType dtype, const at::Tensor& x);

/// Why `x` cannot be cast; nullopt if it can.
TRIAGE_API std::optional<ValidationFailure> cast_failure(c10::ScalarType dtype, const at::Tensor& x);

}  // namespace triage
