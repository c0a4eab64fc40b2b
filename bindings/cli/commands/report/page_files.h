#pragma once
#include <vector>

#include "bindings/lua/flags/prelude.h"

namespace triage::lua {

/// page.html, page.css and page.js, compiled into the program.
const std::vector<PreludeFile>& report_page_files();

}  // namespace triage::lua
