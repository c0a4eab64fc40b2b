#pragma once
#include "tests/fuzz/operators/call.h"

namespace triage::fuzz {

/// Every operator that has a contract.
std::vector<Target> contract_targets();

}  // namespace triage::fuzz
