#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bindings/lua/testing/line_values.h"

/// What `triage run --sample` and `triage replay --sample` say.
namespace triage::cli {

/// Throws UsageError unless the batch has each of `samples`.
void check_samples(const std::vector<int64_t>& samples, const lua::CallByLine& call, const std::string& policy);

void print_sample(const std::string& policy, const lua::SampleByLine& sample);
/// What is true of all samples of the call: that something is missing, and how it failed.
void print_end(const lua::CallByLine& call);

/// A list with an object for each of `samples`.
nlohmann::ordered_json samples_by_line_json(const lua::CallByLine& call, const std::vector<int64_t>& samples);

}  // namespace triage::cli
