#include "bindings/lua/testing/verify_policy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/diagnose/bits.h"
#include "runtime/files/disk.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/params/param_values.h"
#include "runtime/policy/versions/version.h"

namespace triage::lua {
namespace {

using diagnose::IsolationInput;

struct ExampleGroup {
  std::string from;
  std::vector<at::Tensor> params;
  std::vector<IsolationInput> inputs;
  bool is_form;
};

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return diagnose::same_kind(a, b) && diagnose::same_bits(a, b);
}

/// Whether samples of both can stand in one batch.
bool fit(const ExampleGroup& group, const ExampleGroup& other) {
  const auto same_form = [](const IsolationInput& a, const IsolationInput& b) {
    if (a.has_samples != b.has_samples) return false;
    if (!a.has_samples) return is_same(a.tensor, b.tensor);
    return a.tensor.scalar_type() == b.tensor.scalar_type() && a.tensor.sizes().slice(1) == b.tensor.sizes().slice(1);
  };
  return std::equal(group.inputs.begin(), group.inputs.end(), other.inputs.begin(), other.inputs.end(), same_form) &&
         std::equal(group.params.begin(), group.params.end(), other.params.begin(), other.params.end(), is_same);
}

void join(ExampleGroup& group, const ExampleGroup& other) {
  for (size_t i = 0; i < group.inputs.size(); ++i)
    if (group.inputs[i].has_samples)
      group.inputs[i].tensor = at::cat({group.inputs[i].tensor.detach(), other.inputs[i].tensor.detach()}, 0);
  group.from += ", " + other.from;
}

std::vector<ExampleGroup> groups_of(const Signature& signature, const std::vector<ExampleInputs>& batches,
                                    const std::vector<std::string>& shared) {
  std::vector<ExampleGroup> groups;
  for (const ExampleInputs& batch : batches) {
    ExampleGroup next{batch.from, batch.params, isolation_inputs(signature, batch.inputs, shared), batch.is_form};
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const ExampleGroup& group) { return fit(group, next); });
    if (known == groups.end())
      groups.push_back(std::move(next));
    else
      join(*known, next);
  }
  return groups;
}

/// A value at the end of a declared range, and its text.
struct Edge {
  at::Tensor value;
  std::string text;
};

/// Where a declared param ends, but for its default: a boolean at its other value, a list and a tensor with all
/// elements there.
std::vector<Edge> edges_of(const std::string& policy, const Param& param) {
  std::vector<c10::Scalar> ends = param.values;
  if (ends.empty() && param.min) ends.push_back(*param.min);
  if (param.values.empty() && param.max) ends.push_back(*param.max);
  if (param.value.isBool()) ends = {c10::Scalar(!param.value.toBool())};
  const at::Tensor by_default = policy::default_of(param);
  std::vector<Edge> edges;
  for (const c10::Scalar& end : ends) {
    const bool is_many = by_default.dim() > 0;
    const ParamValue value = is_many ? ParamValue(at::full_like(by_default, end)) : ParamValue(end);
    at::Tensor tensor = policy::checked(policy, param, value, policy::Reading::all);
    if (is_same(tensor, by_default)) continue;
    const std::string text = policy::number_text(end);
    edges.push_back({std::move(tensor), is_many ? fmt::format("{} everywhere", text) : text});
  }
  return edges;
}

/// Some params at ends of their ranges.
struct Corner {
  std::vector<std::pair<size_t, Edge>> params;
  std::string text;  // "lo = 4, hi = 4"
};

/// Each param at its ends, the others as they are; of two or three params with ranges, all their ends together, too.
std::vector<Corner> corners_of(const std::string& policy, const Signature& signature) {
  constexpr size_t most_together = 3;
  std::vector<Corner> single, together(1);
  size_t ranged = 0;
  for (size_t i = 0; i < signature.params.size(); ++i) {
    const std::vector<Edge> edges = edges_of(policy, signature.params[i]);
    if (edges.empty()) continue;
    ++ranged;
    std::vector<Corner> wider;
    for (const Edge& edge : edges) {
      const std::string text = fmt::format("{} = {}", signature.params[i].name, edge.text);
      single.push_back({{{i, edge}}, text});
      for (const Corner& corner : together) {
        wider.push_back({corner.params, corner.text + (corner.text.empty() ? "" : ", ") + text});
        wider.back().params.emplace_back(i, edge);
      }
    }
    if (ranged <= most_together) together = std::move(wider);
  }
  if (ranged > 1 && ranged <= most_together) single.insert(single.end(), together.begin(), together.end());
  return single;
}

/// Without a search. What is found says with what.
void try_with(Verification& all, PolicySubject& subject, const ExampleGroup& group, uint64_t seed,
              const std::string& with) {
  Verification found = check_laws(subject, group.inputs, {0, seed});
  for (LawResult& law : found.laws)
    for (Violation& violation : law.violations) violation.what += fmt::format(" (with {})", with);
  diagnose::merge(all, std::move(found));
}

/// A batch that cannot be tried there is told, and the next is.
void try_edges_of_params(Verification& all, const PolicyUnderCheck& policy, const ExampleGroup& group,
                         const Signature& signature, uint64_t seed) {
  for (const Corner& corner : corners_of(all.policy, signature)) {
    try {
      PolicyUnderCheck at_edge = policy;
      for (const auto& [param, edge] : corner.params) at_edge.params[param] = edge.value;
      PolicySubject subject(at_edge);
      try_with(all, subject, group, seed, corner.text);
    } catch (const std::exception& error) {
      all.left_out.push_back(fmt::format("{}, with {}: {}", group.from, corner.text, messages::message_of(error)));
    }
  }
}

/// Good samples of a form that is refused say nothing of bad ones: the policy may mean other sizes than it declares, or
/// this LibTorch lacks an operator for the dtype.
void try_form(Verification& all, PolicySubject& subject, const ExampleGroup& group, uint64_t seed) {
  diagnose::Tensors batch;
  for (const IsolationInput& input : group.inputs) batch.push_back(input.tensor);
  subject.call(batch);
  try_with(all, subject, group, seed, group.from);
}

/// Batches of other sizes are made of the samples, which such types forbid.
void check_free_batch(const std::string& policy, const Signature& signature) {
  for (size_t i = 0; i < signature.input_types.size(); ++i) {
    const auto& type = signature.input_types[i];
    if (!type || type->flags || type->dims.size() < 2 || type->dims[0].kind != Dim::Kind::name) continue;
    const std::string samples = type->dims[0].text();
    for (size_t dim = 1; dim < type->dims.size(); ++dim)
      if (type->dims[dim].text() == samples)
        throw InputError(fmt::format(
            "verify: policy '{}': the declared type of '{}' ties dimension {} to the number of samples ({}), so its "
            "samples make no other batches. Check it with tests of its own (docs/testing-policies.md)",
            policy, signature.inputs[i], dim, samples));
  }
}

}  // namespace

Verification verify(PolicyUnderCheck policy, const std::string& name, const Signature& signature,
                    const std::vector<ExampleInputs>& batches, const std::vector<std::string>& shared,
                    const diagnose::LawsOptions& options) {
  constexpr size_t most_search = 1000000;  // more takes hours
  if (options.search > most_search)
    throw InputError(fmt::format("verify: the search may draw at most {} samples, got {}; give a smaller number",
                                 most_search, options.search));
  check_free_batch(name, signature);
  Verification all;
  all.policy = name;
  bool tried_params = false;
  std::exception_ptr used_up;
  for (ExampleGroup& group : groups_of(signature, batches, shared)) {
    policy.params = group.params;
    PolicySubject subject(policy);
    try {
      if (group.is_form && !all.laws.empty()) {
        try_form(all, subject, group, options.seed);
        continue;
      }
      diagnose::merge(all, check_laws(subject, group.inputs, options));
      if (!tried_params) try_edges_of_params(all, policy, group, signature, options.seed);
      tried_params = true;
    } catch (const std::exception& error) {
      if (dynamic_cast<const LimitError*>(&error) != nullptr) used_up = std::current_exception();
      all.left_out.push_back(fmt::format("{}: {}", group.from, messages::message_of(error)));
    }
  }
  if (all.laws.empty() && used_up) std::rethrow_exception(used_up);  // as where the policy used it up at its load
  if (all.laws.empty())
    throw InputError(
        fmt::format("verify: policy '{}': no batch could be tried: {}", name,
                    all.left_out.empty() ? "there is none; give one with at least one sample" : all.left_out.front()));
  return all;
}

}  // namespace triage::lua

namespace triage {

namespace {

lua::PolicyUnderCheck under_check(const std::filesystem::path& path, const VerifyOptions& options) {
  lua::PolicyUnderCheck policy{files::read_text(path), {}, options.runtime};
  policy.runtime.print = [](const std::string&) {};
  policy.runtime.log = [](const LogRecord&) {};
  policy.seed = options.seed;
  policy.script.path = path.string();
  policy.script.print = policy.runtime.print;
  policy.script.read_file = policy::files_beside(path);
  policy.script.limits = options.runtime.limits;
  policy.script.host_functions = options.host_functions;
  policy.script.host_tensors = options.host_tensors;
  policy.give = [&options](Runtime& runtime) {
    for (const HostFunction& function : options.host_functions) runtime.define(function.name, function.fn);
    for (const HostTensor& tensor : options.host_tensors) runtime.define_tensor(tensor.name, tensor.tensor);
  };
  return policy;
}

}  // namespace

Verification verify_policy(const std::filesystem::path& path, const VerifyOptions& options) {
  lua::PolicyUnderCheck policy = under_check(path, options);
  lua::LuaScript script(policy.source, policy.script);
  const Signature& signature = script.signature();
  policy::check_params(script.name(), signature, options.params);
  std::vector<lua::ExampleInputs> batches;
  for (size_t i = 0; i < options.batches.size(); ++i) {
    if (options.batches[i].size() != signature.inputs.size())
      throw InputError(fmt::format("verify_policy: batch {} has {} tensors; policy '{}' has {} inputs", i,
                                   options.batches[i].size(), script.name(), signature.inputs.size()));
    batches.push_back(
        {fmt::format("batch {}", i), options.batches[i], policy::param_tensors(signature, options.params)});
  }
  if (options.batches.empty()) batches = lua::examples_to_verify(script);
  policy.promises = script.promises().value_or(std::vector<Promise>());
  policy.accumulation = script.accumulation();
  return lua::verify(std::move(policy), script.name(), signature, batches, {},
                     {options.search, options.seed, options.progress});
}

}  // namespace triage
