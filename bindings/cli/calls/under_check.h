#pragma once
#include <string>
#include <vector>

#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/commands.h"
#include "bindings/lua/testing/isolation.h"

/// What `triage isolate` and `triage verify` begin with.
namespace triage::cli {

/// The policy with what the command line gives it. It prints nothing: it is called hundreds of times. Throws
/// UsageError.
lua::PolicyUnderCheck under_check(const CallOptions& call, bool json);

/// Throws UsageError where a name of `--shared` is none of the `inputs`.
void check_shared(const std::vector<std::string>& shared, const std::vector<std::string>& inputs,
                  const std::string& policy);

/// The inputs given; else the batches of the tests and one of the declared types, on the device of the call. `left_out`
/// is told of a batch that would take too long.
std::vector<ExampleInputs> examples_to_check(lua::LuaScript& script, const CallOptions& call,
                                             std::vector<std::string>& left_out);

}  // namespace triage::cli
