#pragma once
#include <string>
#include <string_view>

namespace triage::cli {

/// What stands behind `key` in LibTorch's own description of its build, up to the end of the item; empty: nothing does.
std::string torch_setting(const std::string& config, std::string_view key);
/// "2.1.0" of the LibTorch that is loaded; the headers may be of another release.
std::string torch_release();
/// "5.4.4" of the Lua library that is loaded.
std::string lua_release();
/// The file of the shared library that holds `symbol`; empty where the loader knows none.
std::string library_of(const void* symbol);
std::string torch_library();
std::string lua_library();
/// "gcc 12.2.0": what built this program.
std::string built_by();

}  // namespace triage::cli
