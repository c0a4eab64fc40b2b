#pragma once
#include <string>
#include <vector>

namespace triage::operators {

/// What is wrong with the table itself, such as an integer of which no row says what it may be. For the test that wants
/// none; such an overload has no contract.
const std::vector<std::string>& table_faults();

}  // namespace triage::operators
