#pragma once
#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/cli/call.h"

namespace triage::cli {

/// One output of a run.
struct Result {
  std::string name;
  at::Tensor tensor;
  bool is_flags = false;
  std::string file;  // where it was written; empty: nowhere
};

/// What a run was, for a person and for programs.
struct Report {
  std::string policy;
  std::string backend;
  std::vector<Result> outputs;
  size_t graphs = 0, operations = 0, repeat = 0;
  std::vector<BreakReport> graph_breaks;
  double first_us = 0, call_us = 0;
};

void print_report(const Report& report, const Call& call);
nlohmann::ordered_json to_json(const Report& report, const Call& call);

/// "float32 32x512"
std::string describe(const at::Tensor& tensor);

}  // namespace triage::cli
