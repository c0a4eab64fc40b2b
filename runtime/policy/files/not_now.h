#pragma once
#include <triage/error.h>

#include <exception>

namespace triage::policy {

/// A file could not be read for a reason that says nothing of the file and passes: no descriptor or no memory is left,
/// a server does not answer. It is no verdict on the file: whoever follows the file reads it again soon.
class NotNow : public FileError {
  using FileError::FileError;
};

/// Whether an error of the system with this number is such a reason.
bool is_passing(int code);
/// NotNow, std::bad_alloc, and std::system_error of such a number.
bool is_passing(const std::exception& error);

}  // namespace triage::policy
