#pragma once
#include <triage/api.h>

#define TRIAGE_VERSION "0.1.0"

namespace triage {

/// The version of the loaded library; compare it with TRIAGE_VERSION, the version of the headers.
TRIAGE_API const char* version() noexcept;

}  // namespace triage
