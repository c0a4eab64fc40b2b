#pragma once
#include <triage/distributed.h>

#include <string>
#include <vector>

namespace triage::lua {

/// Runs a trusted script with the full Lua library and the table `arg` as the `lua` program sets it. Prints an error
/// with its traceback to stderr. Returns the exit status: 0, or 1 when the script failed.
int exec_script(const std::string& path, const std::vector<std::string>& arguments);
/// The same for a text; `chunk_name` names it in messages, as Lua's `load` takes it: "=stdin". `dist` asks `group`.
int exec_source(const std::string& source, const std::string& chunk_name, const std::vector<std::string>& arguments,
                const Group& group = Group());

}  // namespace triage::lua
