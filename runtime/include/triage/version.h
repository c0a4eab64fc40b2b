#pragma once
#include <triage/api.h>

#include <string>
#include <string_view>

#define TRIAGE_VERSION "0.1.0"

namespace triage {

/// The version of the loaded library; compare it with TRIAGE_VERSION, the version of the headers.
TRIAGE_API const char* version() noexcept;

/// The message for whoever still uses an option or command of earlier versions: "`compiler` is gone, and nothing
/// replaces it: ..."; empty for a name that is none of these.
TRIAGE_API std::string text_if_gone(std::string_view name);

}  // namespace triage
