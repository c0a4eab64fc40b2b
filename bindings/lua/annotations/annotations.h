#pragma once
#include <string>

/// What editors and linters read to know the library: made of the tables that scripts see, and of the schemas of
/// operators.
namespace triage::lua {

/// A `---@meta` file for lua-language-server. Run as Lua, it makes tables with the library's names.
std::string editor_annotations();
/// A configuration for luacheck: the globals of policies and scripts, and the fields of those with a fixed set.
std::string luacheck_configuration();

}  // namespace triage::lua
