// The kinds of validation error.
#include <triage/typing.h>

namespace triage {

const char* to_string(ValidationKind kind) noexcept {
  switch (kind) {
    case ValidationKind::validation:
      break;
    case ValidationKind::dimension:
      return "DimensionMismatchError";
    case ValidationKind::dtype:
      return "DTypeMismatchError";
    case ValidationKind::device:
      return "DeviceMismatchError";
    case ValidationKind::invalid_parameter:
      return "InvalidParameterError";
    case ValidationKind::type:
      return "TypeMismatchError";
    case ValidationKind::invalid_return:
      return "InvalidReturnTypeError";
  }
  return "ValidationError";
}

void throw_validation(ValidationFailure failure) {
  switch (failure.kind) {
    case ValidationKind::validation:
      break;
    case ValidationKind::dimension:
      throw DimensionMismatchError(std::move(failure));
    case ValidationKind::dtype:
      throw DTypeMismatchError(std::move(failure));
    case ValidationKind::device:
      throw DeviceMismatchError(std::move(failure));
    case ValidationKind::invalid_parameter:
      throw InvalidParameterError(std::move(failure));
    case ValidationKind::type:
      throw TypeMismatchError(std::move(failure));
    case ValidationKind::invalid_return:
      throw InvalidReturnTypeError(std::move(failure));
  }
  throw ValidationError(std::move(failure));
}

std::string Subject::text() const {
  switch (role) {
    case Role::argument:
      return "argument '" + name + "'";
    case Role::input:
      return "input '" + name + "'";
    case Role::result:
      break;
  }
  return "result " + name;
}

}  // namespace triage
