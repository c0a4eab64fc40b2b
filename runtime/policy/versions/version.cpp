#include "runtime/policy/versions/version.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/graph/output_names.h"
#include "runtime/policy/loading.h"

namespace triage::policy {
namespace {

const Param* find_param(const Signature& signature, const std::string& name) {
  for (const Param& param : signature.params)
    if (param.name == name) return &param;
  return nullptr;
}

std::string list_of(const std::vector<std::string>& names) { return fmt::format("({})", fmt::join(names, ", ")); }

/// A type that is dropped hurts nobody; a new one would refuse calls that were fine.
void check_input_types(const PolicyVersion& live, const PolicyVersion& next) {
  const auto &before = live.signature.input_types, &after = next.signature.input_types;
  for (size_t i = 0; i < after.size(); ++i) {
    const bool typed = i < before.size() && before[i];
    if (after[i] && !(typed && *before[i] == *after[i]))
      throw_contract(next.defined_at, live,
                     fmt::format("the type of input '{}' from {} to {}", live.signature.inputs[i],
                                 typed ? before[i]->text() : "any", after[i]->text()));
  }
}

/// Nothing is declared any more, or something else: hosts may rely on it.
void check_output_types(const PolicyVersion& live, const PolicyVersion& next) {
  const auto &declared = live.signature.output_types, &now = next.signature.output_types;
  const std::vector<bool> alike = declared_alike(live.signature, next.signature);
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i] && !(i < alike.size() && alike[i]))
      throw_contract(next.defined_at, live,
                     fmt::format("the type of output '{}' from {} to {}", live.signature.outputs[i],
                                 declared[i]->text(), i < now.size() && now[i] ? now[i]->text() : "any"));
}

capture::Compiled::Options counted_by(const std::shared_ptr<Counters>& counters, capture::Compiled::Options options) {
  options.counts = {counters, &counters->compiled()};
  return options;
}

}  // namespace

PolicyVersion::PolicyVersion(std::shared_ptr<Script> script, capture::Compiled::Options options, Contents made_of,
                             std::string where)
    : contents(std::move(made_of)),
      hash(contents.hash()),
      path(std::move(where)),
      name(script->name()),
      signature(script->signature()),
      output_types(signature),
      defined_at(script->definition().where),
      on_error(script->on_error()),
      on_violation(script->on_violation()),
      counters(std::make_shared<Counters>(signature)),
      compiled(script, counted_by(counters, std::move(options))),
      script_(std::move(script)) {
  if (!signature.state.empty()) keep_locations();  // the next version takes over what may hold flags
}

Signature PolicyVersion::known_signature() const {
  Signature known = signature;
  if (known.outputs.empty()) known.outputs = graph::output_names({}, compiled.flags_outputs().size());
  return known;
}

std::vector<Kind> PolicyVersion::kinds_in_use() const {
  constexpr size_t most = 32;
  std::vector<Kind> all = compiled.shapes_in_use();
  for (const Kind& kind : kinds)
    if (all.size() < most && std::find(all.begin(), all.end(), kind) == all.end()) all.push_back(kind);
  return all;
}

VersionInfo PolicyVersion::info() const {
  VersionInfo info;
  info.on_trial = trial.on();
  info.taken_back = taken_back;
  info.failures = failures;
  info.number = number;
  info.hash = hash;
  info.since = since;
  info.path = path;
  return info;
}

std::vector<at::Tensor> param_tensors(const Signature& signature, const Params& values) {
  std::vector<at::Tensor> tensors;
  for (const Param& param : signature.params) {
    std::optional<at::Tensor> value;
    for (const auto& [name, given] : values)
      if (name == param.name)
        if (auto fits = fitting(param, given); fits && refusal(param, given, Reading::small).empty())
          value = std::move(fits);
    tensors.push_back(value ? *value : default_of(param));
  }
  return tensors;
}

[[noreturn]] static void throw_unknown(const std::string& policy, const Signature& signature, const std::string& name) {
  std::vector<std::string> names;
  for (const Param& known : signature.params) names.push_back(known.name);
  throw InputError(
      fmt::format("policy '{}' has no param '{}'; it has {}", policy, name, names.empty() ? "none" : list_of(names)));
}

void check_params(const std::string& policy, const Signature& signature, const Params& values) {
  for (const auto& [name, value] : values) {
    const Param* const param = find_param(signature, name);
    if (!param) throw_unknown(policy, signature, name);
    checked(policy, *param, value, Reading::all);
  }
}

std::vector<at::Tensor> override_params(const PolicyVersion& version, std::vector<at::Tensor> base,
                                        const Params& values, Reading reading) {
  const auto& params = version.signature.params;
  for (const auto& [name, value] : values) {
    const Param* param = find_param(version.signature, name);
    if (!param && version.former_params.count(name)) continue;
    if (!param) throw_unknown(version.name, version.signature, name);
    base[static_cast<size_t>(param - params.data())] = checked(version.name, *param, value, reading);
  }
  return base;
}

bool has_param(const PolicyVersion& version, const std::string& name) { return find_param(version.signature, name); }

std::vector<std::string> unfitting(const PolicyVersion& version, const Params& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values)
    if (const Param* param = find_param(version.signature, name))
      if (!fitting(*param, value) || !refusal(*param, value, Reading::small).empty()) names.push_back(name);
  return names;
}

Params those_of(const PolicyVersion& version, const Params& values) {
  Params known;
  for (const auto& value : values)
    if (const Param* param = find_param(version.signature, value.first); param && fitting(*param, value.second))
      known.push_back(value);
  return known;
}

Source source_of(const std::exception& error, const Source& otherwise, const std::string& path) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (known && !known->source().file.empty()) return known->source();
  return otherwise.file.empty() ? Source{path, 0} : otherwise;
}

/// "f.lua:2: "; nothing where it is not known.
static std::string place_of(const Source& where) {
  return where.file.empty() ? "" : fmt::format("{}:{}: ", where.file, where.line);
}

std::pair<std::string, Source> told_of(const PolicyVersion& version, const std::string& what) {
  const Source& where = version.defined_at;
  return {fmt::format("{}policy '{}' (version {}){}", place_of(where), version.name, version.number, what),
          where.file.empty() ? Source{version.path, 0} : where};
}

void throw_at(const PolicyVersion& version, const std::string& what) {
  const auto [message, where] = told_of(version, what);
  throw PolicyError(message, where);
}

void throw_contract(const Source& where, const PolicyVersion& live, const std::string& change) {
  throw LoadError(fmt::format("{}the new source changes {}; hosts call the policy by the contract of version {}. Keep "
                              "the contract, or load the source as another policy",
                              place_of(where), change, live.number),
                  where.file.empty() ? Source{live.path, 0} : where);
}

void check_contract(const PolicyVersion& live, const PolicyVersion& next, const std::set<std::string>& lasting) {
  const auto refuse = [&](const std::string& change) { throw_contract(next.defined_at, live, change); };
  const Signature before = live.known_signature(), after = next.known_signature();
  if (before.inputs != after.inputs)
    refuse(fmt::format("the inputs from {} to {}", list_of(before.inputs), list_of(after.inputs)));
  const bool both_known = !before.outputs.empty() && !after.outputs.empty();
  const bool named = !live.signature.outputs.empty() || !next.signature.outputs.empty();
  if (both_known && (before.outputs.size() != after.outputs.size() || (named && before.outputs != after.outputs)))
    refuse(fmt::format("the outputs from {} to {}", outputs_text(before), outputs_text(after)));
  if (!live.signature.outputs.empty() && next.signature.outputs.empty())
    refuse(fmt::format("the outputs from {} to unnamed ones", outputs_text(before)));
  for (const Param& param : live.signature.params) {  // a new param has a default and hurts nobody
    const Param* kept = find_param(next.signature, param.name);
    if (!kept && lasting.count(param.name)) refuse(fmt::format("the params: '{}' is gone", param.name));
    if (kept && kept->value.tagKind() != param.value.tagKind())
      refuse(fmt::format("param '{}' from {} to {}", param.name, kind_of(param.value), kind_of(kept->value)));
  }
  check_input_types(live, next);
  check_output_types(live, next);
}

void check_set_params(const PolicyVersion& next, const Params& set) {
  for (const auto& [name, value] : set) {
    const Param* param = find_param(next.signature, name);
    if (!param || !fitting(*param, value)) continue;
    const std::string why = refusal(*param, value, Reading::all);
    if (!why.empty())
      throw LoadError(fmt::format("{}the new source does not allow the value that the host has set: {}. Set a value "
                                  "that both versions allow, or declare a wider range",
                                  place_of(next.defined_at), refusal_text(*param, why)),
                      next.defined_at.file.empty() ? Source{next.path, 0} : next.defined_at);
  }
}

void check_tests(Script& script) {
  const Loading loading(Loading::What::tests);
  std::string failed;
  for (const auto& [name, failure] : script.run_tests())
    if (!failure.empty()) failed += fmt::format("{}'{}': {}", failed.empty() ? "" : "; ", name, failure);
  if (!failed.empty())
    throw LoadError(fmt::format("the policy '{}' fails its own tests: {}", script.name(), failed),
                    script.definition().where);
}

}  // namespace triage::policy
