#pragma once
#include <string>
#include <vector>

#include "tests/cli/program.h"

/// A folder with a policy in `repair.lua`, for one call of the program after another.
struct PolicyFolder {
  TemporaryFolder folder;
  explicit PolicyFolder(const std::string& policy) { write_bytes(folder / "repair.lua", policy); }
  Ran operator()(const std::vector<std::string>& arguments) const { return triage_program(folder, arguments); }
};
