#include "runtime/graph/describe.h"

#include <fmt/format.h>
#include <triage/type_cast.h>

namespace triage {

std::optional<ValidationFailure> cast_failure(c10::ScalarType dtype, const at::Tensor& x) {
  const auto failure = [](ValidationKind kind, const std::string& expected, const std::string& got, const char* hint) {
    return ValidationFailure{
        kind,
        "type_cast",
        "x",
        "",
        expected,
        got,
        fmt::format("{}: type_cast: argument 'x': expected {}, got {}{}", to_string(kind), expected, got, hint)};
  };
  if (!x.defined()) return failure(ValidationKind::invalid_parameter, "a tensor", "an undefined tensor", "");
  if (x.is_complex() && !at::isComplexType(dtype))
    return failure(ValidationKind::dtype, "a real tensor to make " + graph::dtype_name(dtype) + " of",
                   graph::dtype_name(x.scalar_type()), "; a cast would drop the imaginary parts: take torch.real(x)");
  return std::nullopt;
}

Result<at::Tensor, ValidationFailure> type_cast(c10::ScalarType dtype, const at::Tensor& x) {
  if (auto failure = cast_failure(dtype, x)) return Err(std::move(*failure));
  return Ok(x.to(dtype));
}

}  // namespace triage
