#pragma once
#include "bindings/lua/sandbox/sandbox.h"

#include <memory>
#include <string>
#include <string_view>

namespace triage::lua {

/// A ScriptState with what belongs to the compiler in it: `policy`, `triage`, and what the host gives. Throws
/// LoadError.
std::unique_ptr<ScriptState> make_script_state(StateOptions options,
                                               const std::vector<HostFunction>& host_functions = {},
                                               const std::vector<HostTensor>& host_tensors = {});

/// "; the file looks like JSON text, not like a script in Lua", behind the error of a source that is no Lua; empty
/// where it is a text.
std::string not_lua(std::string_view source);

/// Pushes the rewritten main function of `source`, its globals those of the state. Raises a Lua error.
void push_chunk(ScriptState& state, std::string_view source, const std::string& chunk_name);

}  // namespace triage::lua
