// `triage bundle diff`: what changes between two bundles.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "bindings/cli/calls/param_text.h"
#include "bindings/cli/commands/bundle/actions.h"
#include "bindings/cli/terminal.h"
#include "runtime/policy/params/param_values.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using policy::Manifest;
using policy::Snapshot;
/// By name.
using Texts = std::map<std::string, std::string>;

struct BundleChange {
  std::string what, from, to;  // empty: it is not there
};

std::vector<BundleChange> changes_between(const Texts& from, const Texts& to) {
  std::set<std::string> names;
  for (const auto& [name, text] : from) names.insert(name);
  for (const auto& [name, text] : to) names.insert(name);
  std::vector<BundleChange> changes;
  for (const std::string& name : names) {
    const auto before = from.find(name), after = to.find(name);
    BundleChange change{name, before == from.end() ? "" : before->second, after == to.end() ? "" : after->second};
    if (change.from != change.to) changes.push_back(std::move(change));
  }
  return changes;
}

Texts header_of(const Manifest& manifest) {
  return {{"name", manifest.name},
          {"version", manifest.version},
          {"triage", manifest.triage.empty() ? "any" : manifest.triage}};
}

std::string typed_text(const std::vector<std::string>& names, const std::vector<std::optional<TensorSpec>>& types) {
  std::vector<std::string> all;
  for (size_t i = 0; i < names.size(); ++i)
    all.push_back(names[i] + (i < types.size() && types[i] ? " = " + types[i]->text() : ""));
  return fmt::format("({})", fmt::join(all, ", "));
}

/// What hosts see of a policy. It is loaded for that, and not run.
Texts interface_of(const std::string& folder, const Snapshot& snapshot, const std::string& file) {
  ScriptOptions options = script_options_of(folder, snapshot, file);
  options.print = [](const std::string&) {};
  const auto script = find_front_end(options.path)(*snapshot.contents.files.at(file).bytes, options);
  const Signature& signature = script->signature();
  Texts texts = {
      {"inputs", typed_text(signature.inputs, signature.input_types)},
      {"outputs", signature.outputs.empty() ? "without names" : typed_text(signature.outputs, signature.output_types)},
      {"on_error", script->on_error() ? to_string(*script->on_error()) : "as the host says"}};
  for (const Param& param : signature.params) texts["param " + param.name] = param_text(param);
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (signature.output_ranges[i]) texts["range of " + signature.outputs[i]] = signature.output_ranges[i]->text();
  if (signature.num_ranges() > 0) texts["on_violation"] = to_string(script->on_violation());
  for (const CodeName& one : signature.codes) texts["code " + one.name] = std::to_string(to_int(one.code));
  for (const StateSpec& state : signature.state)
    texts["state " + state.name] = fmt::format("{}, at first {}", state.type.text(), policy::number_text(state.init));
  return texts;
}

struct PolicyChange {
  std::string file;
  std::vector<BundleChange> changes;
};

std::vector<PolicyChange> interface_changes(const BundleCommand& options, const Snapshot& from, const Snapshot& to) {
  std::vector<PolicyChange> policies;
  for (const auto& [file, hash] : from.manifest.policies) {
    if (!to.manifest.policies.count(file)) continue;
    PolicyChange policy{
        file, changes_between(interface_of(options.folder, from, file), interface_of(options.other, to, file))};
    if (!policy.changes.empty()) policies.push_back(std::move(policy));
  }
  return policies;
}

const char* verb(const BundleChange& change) {
  return change.from.empty() ? "added" : change.to.empty() ? "removed" : "changed";
}

void print(const std::vector<BundleChange>& changes, const char* indent) {
  for (const BundleChange& change : changes)
    say("{}{}: {} -> {}\n", indent, change.what, change.from.empty() ? "none" : change.from,
        change.to.empty() ? "none" : change.to);
}

void print_files(const std::vector<BundleChange>& files) {
  for (const BundleChange& file : files)
    say("  {}  {}\n", paint(Paint::warning, fmt::format("{:<7}", verb(file))), file.what);
}

Json to_json(const std::vector<BundleChange>& changes) {
  const auto value = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json list = Json::array();
  for (const BundleChange& change : changes)
    list.push_back({{"what", change.what}, {"from", value(change.from)}, {"to", value(change.to)}});
  return list;
}

Json files_json(const std::vector<BundleChange>& files) {
  Json list = Json::array();
  for (const BundleChange& file : files) list.push_back({{"file", file.what}, {"change", verb(file)}});
  return list;
}

}  // namespace

int diff_bundles(const BundleCommand& options) {
  for (const std::string& folder : {options.folder, options.other}) check_bundle_folder(folder);
  const Snapshot from = policy::read_bundle(options.folder, nullptr), to = policy::read_bundle(options.other, nullptr);
  const auto header = changes_between(header_of(from.manifest), header_of(to.manifest));
  const auto files = changes_between(from.manifest.files(), to.manifest.files());
  const auto policies = interface_changes(options, from, to);
  if (options.json) {
    Json list = Json::array();
    for (const PolicyChange& policy : policies)
      list.push_back({{"policy", policy.file}, {"changes", to_json(policy.changes)}});
    print_json({{"same", header.empty() && files.empty()},
                {"bundle", to_json(header)},
                {"files", files_json(files)},
                {"policies", list}});
    return 0;
  }
  if (header.empty() && files.empty()) say("{}\n", paint(Paint::good, "the bundles are the same"));
  print(header, "");
  if (!files.empty()) say("{}\n", paint(Paint::heading, "files"));
  print_files(files);
  for (const PolicyChange& policy : policies) {
    say("{}\n", paint(Paint::heading, policy.file));
    print(policy.changes, "  ");
  }
  return 0;
}

}  // namespace triage::cli
