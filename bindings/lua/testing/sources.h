#pragma once
#include "bindings/lua/flags/prelude.h"

#include <vector>

namespace triage::lua {

/// scripts/coverage.lua, compiled in. (The build generates this.)
const std::vector<PreludeFile>& coverage_sources();

}  // namespace triage::lua
