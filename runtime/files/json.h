#pragma once
#include <nlohmann/json.hpp>

#include <cstddef>
#include <string_view>

namespace triage::files {

/// What a JSON text from outside may ask for.
struct JsonBounds {
  size_t depth = 16;          // of objects and arrays in one another
  size_t values = 4'000'000;  // of all kinds; each takes some 100 bytes
};

/// Throws Malformed as `parse_json` does; makes nothing of the text, for those who parse it into another type.
void check_json(std::string_view text, std::string_view what, const JsonBounds& bounds = {});

/// Throws Malformed with a clause that begins with `what` ("its header"): for text that is no JSON, for what is beyond
/// the bounds, and for a name that stands twice in one object, since readers differ in which of the two they take.
/// Takes time in proportion to the text.
nlohmann::json parse_json(std::string_view text, std::string_view what, const JsonBounds& bounds = {});

}  // namespace triage::files
