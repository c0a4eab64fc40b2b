#pragma once
#include <string>

namespace triage::policy {

/// The ending that chooses the front end of `path`: ".lua" where the name has none.
std::string ending_of(const std::string& path);
bool has_front_end(const std::string& path);

}  // namespace triage::policy
