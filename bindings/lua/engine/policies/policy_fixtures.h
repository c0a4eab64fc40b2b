#pragma once
#include <ATen/core/Tensor.h>

#include <lua.hpp>

#include <optional>
#include <string>
#include <vector>

#include "bindings/lua/engine/policies/policy_modules.h"
#include "bindings/lua/engine/policies/policy_table.h"

/// Data in a policy's tests: `args` and `expect` may be tables that hold for each input or output
///
///     z = {{1.0, 0/0}, {2.0, 3.0}}        numbers
///     z = torch.ones({2, 2})              a tensor
///     z = "tests/rows.pt:z"               a file in the folder of the policy, as for torch.load
///     f = {{"NAN"}, {}}                   of flags, in `expect`: the names of the codes that each sample has
///
/// Files are read while the policy is loaded, and are part of the version, so that tests read nothing later.
namespace triage::lua {

/// Checks the field of a test, a table at the top of the stack, but for the names of its entries: inputs may not be
/// known yet. `where` names the field. Throws LoadError.
void check_fixtures(lua_State* L, const std::string& where);

/// Checks the names of the entries in the tests of `policy`, and reads the files. Throws LoadError, FileError.
FixtureFiles load_fixtures(lua_State* L, const PolicyDefinition& policy, const FilesOfLoad& files);

/// The inputs that the table `args` at the top holds, in their order: numbers have the declared dtype, else that which
/// torch.tensor gives them.
std::vector<at::Tensor> fixture_inputs(lua_State* L, const PolicyDefinition& policy);

/// How the outputs differ from what the table `expect` at the top holds; empty: nowhere. Floats may differ by rounding.
std::string unexpected(lua_State* L, const PolicyDefinition& policy, at::ArrayRef<at::Tensor> outputs,
                       const std::vector<bool>& is_flags);

}  // namespace triage::lua
