#pragma once
#include <string>
#include <string_view>

/// What earlier versions had for machine code of fused loops on the CPU: options, commands and variables of the
/// environment.
namespace triage::messages {

/// What to say to whoever still uses an option or command: "`compiler` is gone, ..."; empty for a name that is none of
/// these.
std::string text_if_gone(std::string_view name);

/// The same of the variables that are set; empty where none is.
std::string text_of_gone_variables();

}  // namespace triage::messages
