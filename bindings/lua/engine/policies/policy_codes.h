#pragma once
#include <triage/config.h>

#include <lua.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

/// codes = { MISSING = 4 }: what a policy calls the free codes. Its script reads them as err.MISSING and
/// ErrorCode.MISSING, and `flags` says them.
namespace triage::lua {

/// Of the policy's table at `table`; empty where it has no such field. Throws LoadError.
CodeNames read_codes(lua_State* L, int table);

/// The script's own names from here on. Those that it has already stay. Throws LoadError where the script has another
/// name for one of the codes, or another code of one of the names.
void name_codes(lua_State* L, const CodeNames& codes);

using WrittenCodes = std::vector<std::pair<std::string, int64_t>>;  // rewriter::declared_codes
/// For a script that is about to run: it may read its names above its call of `policy`, which says what is wrong with
/// others.
void expect_codes(lua_State* L, const WrittenCodes& codes);
/// For who looks at sources alone: what they may read.
void add_code_fields(lua_State* L, const WrittenCodes& codes);

}  // namespace triage::lua
