#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/diagnose/isolation/check.h"

/// What `triage isolate` prints.
namespace triage::cli {

/// What was found with one batch.
struct CheckedBatch {
  std::string from;  // "the inputs given", "test \"two bad samples\""
  std::vector<diagnose::IsolationInput> inputs;
  diagnose::Isolation found;
};

struct IsolationReport {
  std::string kind, name;          // "policy", "model"
  std::string backend;             // empty: a model
  std::string operators_are_from;  // empty: the captured graph; else why they are those of the script
  std::vector<CheckedBatch> batches;
  std::vector<std::string> left_out;  // batches that could not be checked, each with the reason
  bool ok() const;
};

void print(const IsolationReport& report);
nlohmann::ordered_json to_json(const IsolationReport& report);

}  // namespace triage::cli
