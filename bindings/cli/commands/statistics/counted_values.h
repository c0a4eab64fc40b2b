#pragma once
#include <triage/value_statistics.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/cli/commands.h"

/// Where `triage statistics` has its statistics from.
namespace triage::cli {

struct CountedValues {
  std::string kind;  // "policy", "model" or "file"
  std::string name;
  size_t calls = 0;
  std::vector<ValueStatistics> statistics;
  std::string failure;             // what the policy raised; empty: nothing
  std::vector<std::string> notes;  // what is not counted
};

/// A policy's inputs ("input z"), and the results of the operators that its script calls ("repair.lua:3 aten::log").
CountedValues values_of_policy(const CallOptions& options, bool json);
/// What the modules of a TorchScript model return.
CountedValues values_of_model(const CallOptions& options);
/// What `value_statistics_json` wrote. Throws FileError.
CountedValues values_of_file(const std::string& path);

}  // namespace triage::cli
