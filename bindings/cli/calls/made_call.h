#pragma once
#include <ATen/core/Tensor.h>
#include <triage/compile_profiler.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"

/// Several calls of one policy in turn, as `triage run` makes them where an input is given several times.
namespace triage::cli {

/// What is said of one of them.
struct MadeCall {
  std::vector<std::pair<std::string, at::Tensor>> inputs;
  std::optional<int64_t> flagged, samples;  // nothing: it returned no flags
  bool captured = false;                    // a new graph
  std::string recompiled;                   // why no graph there was fitted; empty: one did, or there was none
};

/// Begins before a call: what that captures is its own.
class CallWatch {
 public:
  explicit CallWatch(const PreparedCall& call);
  /// After the call, which returned `outputs`.
  MadeCall finish(const std::vector<at::Tensor>& outputs) const;

 private:
  const PreparedCall& call_;
  size_t graphs_;
  std::vector<CompileProfiler::Recompile> recompiles_;
};

void print_calls(const std::vector<MadeCall>& calls);
nlohmann::ordered_json calls_json(const std::vector<MadeCall>& calls);

}  // namespace triage::cli
