#pragma once
#include <string>
#include <vector>

#include "bindings/cli/commands.h"

namespace triage::cli {

/// Something that was found in a file. Line and column are 0 where they are not known.
struct CheckFinding {
  int line = 0, column = 0;
  std::string message;
};

/// What a policy shows when it is called with the inputs of its own tests, or of its declared types.
struct Tried {
  std::vector<CheckFinding> warnings, notes;
};

/// Nothing is found where the policy has no such inputs, cannot be called with them, or needs a function of the host.
Tried try_policy(const std::string& file, const CheckCommand& options);

}  // namespace triage::cli
