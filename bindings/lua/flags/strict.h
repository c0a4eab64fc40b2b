#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Makes reading a field that the table at the top of the stack does not have an error that begins with `complaint`
/// ("err has no") and guesses what was meant. It keeps `rawget` and `pairs`, and has no other metamethod.
void refuse_unknown_fields(lua_State* L, const char* complaint);

}  // namespace triage::lua
