#pragma once
#include "bindings/lua/engine/policies/policy_codes.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/sandbox/sandbox.h"

#include <string>
#include <string_view>
#include <vector>

namespace triage::lua {

/// A name in a policy's source that stands for nothing.
struct UnknownName {
  int line = 0, column = 0;  // 1-based
  std::string message;
  bool error = false;  // the value is needed, or handed on; not where a script may test whether there is one
};

/// Everything that `triage check` says of names: globals that neither the policy nor its environment has, fields that
/// libraries do not have, params that the policy does not have; in the order of the source. `host_functions` are names
/// that the host defines; `codes` those of the policies that may require the source as a module. Throws
/// rewriter::SyntaxError, LoadError.
std::vector<UnknownName> unknown_names(std::string_view source, const std::string& path,
                                       const std::vector<std::string>& host_functions, const WrittenCodes& codes = {});

/// Throws LoadError for the first global, or field of one, that the source uses where nil makes no sense, and that
/// neither it nor the environment of `state` has. Quiet where the source may make globals in ways that its text does
/// not show. False where it is to be asked again once the source has run (`has_run`): its modules may define what it
/// uses.
bool refuse_unknown_globals(ScriptState& state, std::string_view source, const std::string& path, bool has_run = false);

/// What a trusted script says in Python's way and Lua takes: names that are nil in the table `environment`, and what
/// rewriter/findings/foreign.h finds. Throws rewriter::SyntaxError.
std::vector<rewriter::Warning> foreign_words(lua_State* L, int environment, std::string_view source,
                                             const std::string& chunk_name);

/// What a source says in another language's way and Lua takes, in the log: once for each place of a process, for a
/// policy is loaded several times.
void tell_once(const std::string& path, const rewriter::Warning& found);

}  // namespace triage::lua
