#pragma once
#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bindings/cli/commands/decisions/decision_reader.h"

namespace triage::cli {

using DecisionFiles = std::vector<std::unique_ptr<DecisionFile>>;

/// Rotated files in the order of time, whatever their names: the first line of each says when it begins. A file that is
/// no log is told, and is an error where there is no other. `command` is "triage decisions" in messages. Throws
/// UsageError, FileError.
DecisionFiles open_decision_files(const char* command, const std::vector<std::string>& paths);

/// What could not be read, once all was.
void print_damaged(const DecisionFiles& files, std::FILE* to);
nlohmann::ordered_json damaged_json(const DecisionFiles& files);

/// "1 line", "2 lines".
std::string counted(uint64_t count, const char* what);

}  // namespace triage::cli
