#pragma once
#include <triage/front_end.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace triage::cli {

/// The default, what else is allowed, and what the param is for: "0.5, 0 to 1: the share of bad rows".
std::string param_text(const Param& param);
/// The same as an object: default, min, max, values, finite, help.
nlohmann::ordered_json to_json(const Param& param);

}  // namespace triage::cli
