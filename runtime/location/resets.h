#pragma once
#include <cstdint>

namespace triage {

/// How often ErrorLocation::reset was called: ids of before then mean other places, or none.
uint64_t location_resets() noexcept;

}  // namespace triage
