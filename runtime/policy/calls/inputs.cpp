#include "runtime/policy/calls/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>

#include "runtime/policy/attribution/flagged.h"

namespace triage::policy {
namespace {

[[noreturn]] void throw_input_count(const PolicyVersion& version, size_t got) {
  const auto& names = version.signature.inputs;
  throw InputError(fmt::format("policy '{}' takes {} input{} ({}), got {}", version.name, names.size(),
                               names.size() == 1 ? "" : "s", fmt::join(names, ", "), got));
}

[[noreturn]] void throw_undefined(const PolicyVersion& version, size_t index) {
  throw InputError(fmt::format("policy '{}': input '{}' is an undefined tensor; every input must be given",
                               version.name, version.signature.inputs[index]));
}

void check_sample_ids(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<std::string> ids) {
  const int64_t rows = rows_of(inputs);
  if (rows != static_cast<int64_t>(ids.size()))
    throw InputError(fmt::format("policy '{}': RunOptions::sample_ids has {} names for a batch of {} samples",
                                 version.name, ids.size(), rows));
}

}  // namespace

void check_inputs(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, const RunOptions& options) {
  if (inputs.size() != version.signature.inputs.size()) throw_input_count(version, inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined()) throw_undefined(version, i);
  for (const size_t index : options.donate)
    if (index >= inputs.size())
      throw InputError(fmt::format("policy '{}': cannot donate input {}; there are {} inputs, counted from 0",
                                   version.name, index, inputs.size()));
  if (!options.sample_ids.empty()) check_sample_ids(version, inputs, options.sample_ids);
}

}  // namespace triage::policy
