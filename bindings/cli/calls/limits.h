#pragma once
#include <triage/runtime.h>

#include <string>
#include <vector>

namespace triage::cli {

/// `--limits NAME=NUMBER,...`: the budgets of a script, those that are not named as in `others`. Throws UsageError.
Limits parse_limits(const std::vector<std::string>& texts, const Limits& others = {});

}  // namespace triage::cli
