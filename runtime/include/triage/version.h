#pragma once

#define TRIAGE_VERSION "0.1.0"

namespace triage {

/// The version of the library that is loaded; compare with TRIAGE_VERSION, that of the headers.
const char* version() noexcept;

}  // namespace triage
