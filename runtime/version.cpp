#include <triage/version.h>

namespace triage {

const char* version() noexcept { return TRIAGE_VERSION; }

}  // namespace triage
