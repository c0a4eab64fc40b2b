#pragma once
#include <string>

/// What earlier versions had for machine code of fused loops on the CPU: options and commands (triage::text_if_gone),
/// and variables of the environment; and a variable that another one replaces.
namespace triage::messages {

/// What to say of the variables that are set; empty where none is.
std::string text_of_gone_variables();

}  // namespace triage::messages
