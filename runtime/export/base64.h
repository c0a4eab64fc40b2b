#pragma once
#include <string>
#include <string_view>

namespace triage::exporting {

std::string base64(std::string_view bytes);
/// Throws GraphError where `text` is none.
std::string from_base64(std::string_view text);

}  // namespace triage::exporting
