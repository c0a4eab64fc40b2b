#pragma once
#include <triage/verify.h>

#include <string>
#include <vector>

#include "bindings/lua/testing/examples.h"
#include "bindings/lua/testing/isolation.h"

namespace triage::lua {

/// Tries the laws with each batch; those with samples of one form become one. `shared` as in isolation_inputs. Throws
/// InputError where no batch could be tried.
Verification verify(PolicyUnderCheck policy, const std::string& name, const Signature& signature,
                    const std::vector<ExampleInputs>& batches, const std::vector<std::string>& shared,
                    const diagnose::LawsOptions& options);

}  // namespace triage::lua
