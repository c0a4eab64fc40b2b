#pragma once
#include <triage/verify.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

/// What `triage verify` prints.
namespace triage::cli {

/// `source`: the text of the policy, of which lines are shown. `path`: how messages name it.
void print(const Verification& found, const std::string& path, const std::string& source);
nlohmann::ordered_json to_json(const Verification& found);

}  // namespace triage::cli
