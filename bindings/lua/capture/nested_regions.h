#pragma once
#include <lua.hpp>

namespace triage::lua {

/// Adds `call_region(name, fn, ...)`, which `triage.nested_compile_region` is made of, to the table on top of the
/// stack: while `fn` runs, Source::region names this call, so that backends can tell which operators it ran and compile
/// equal calls once.
void add_nested_regions(lua_State* L);

}  // namespace triage::lua
