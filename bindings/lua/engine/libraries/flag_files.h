#pragma once
#include <ATen/core/ivalue.h>

#include <lua.hpp>

#include <string>

namespace triage::lua {

/// Puts `flags.save` and `flags.load` into the table `flags`, of scripts that are trusted:
///
///     flags.save(f, path, {config, codes})   as torch.save; a .pt file gets the names of locations and codes, too
///     f, codes = flags.load(path, {config})  flags of any process, with ids of this one (triage/flags.h)
void add_flag_files(lua_State* L);

/// What the file at `path` holds: flags, where it says that these are some, with ids of this process.
c10::IValue with_own_flags(const std::string& path, c10::IValue value);

}  // namespace triage::lua
