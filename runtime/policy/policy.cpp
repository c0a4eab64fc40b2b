#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/runtime.h>

#include <algorithm>

#include "runtime/graph/output_names.h"
#include "runtime/messages/boundary.h"
#include "runtime/policy/calls/call.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/core/rehearsal.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/loading.h"
#include "runtime/policy/releases/releases.h"
#include "runtime/policy/state/state_of_call.h"

namespace triage {

using messages::errors_only;

namespace {

/// Inputs by name in the order of the signature.
std::vector<at::Tensor> ordered(const std::string& policy, const std::vector<std::string>& names,
                                const Policy::NamedTensors& given) {
  std::vector<at::Tensor> inputs(names.size());
  for (const auto& [name, tensor] : given) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end())
      throw InputError(
          fmt::format("policy '{}' has no input '{}'; it takes ({})", policy, name, fmt::join(names, ", ")));
    at::Tensor& input = inputs[static_cast<size_t>(place - names.begin())];
    if (input.defined()) throw InputError(fmt::format("policy '{}': input '{}' is given twice", policy, name));
    input = tensor;
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined())
      throw InputError(
          fmt::format("policy '{}': input '{}' is missing; it takes ({})", policy, names[i], fmt::join(names, ", ")));
  return inputs;
}

/// Of a policy that changes by itself. Throws InputError where it is in a bundle. `what`: "rollback".
policy::Releases& releases_of(const policy::PolicyCore& core, const char* what) {
  policy::Releases& releases = core.releases();
  if (!releases.is_bundle()) return releases;
  throw InputError(
      fmt::format("policy '{}': {} would change it alone, and it belongs to the bundle '{}', whose policies change "
                  "together; use triage::Bundle for that",
                  core.name(), what, releases.log().name()));
}

policy::NewSource source_of_file(const std::string& policy, const std::filesystem::path& path) {
  const std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
  auto source = policy::read_source(file);
  if (!source)
    throw FileError(
        fmt::format("policy '{}': cannot load the candidate '{}': there is no such file", policy, path.string()),
        {path.string(), 0});
  return {std::move(*source), path.string(), file, /*on_disk=*/true};
}

/// It may read what the policy's own source may.
policy::NewSource source_of_text(const policy::PolicyCore& core, std::string_view source) {
  return {std::string(source), core.path(), core.file()};
}

template <class Options>
VersionInfo start_candidate(const std::shared_ptr<policy::PolicyCore>& core, policy::NewSource source,
                            const Options& options) {
  policy::check_options(options);
  return core->candidates().start(std::move(source), [&](std::shared_ptr<policy::PolicyVersion> version) {
    return std::make_shared<policy::Candidate>(core, std::move(version), options, core->runtime().options());
  });
}

}  // namespace

Outputs::Outputs(std::vector<std::string> names, std::vector<at::Tensor> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) items_.emplace_back(std::move(names.at(i)), std::move(tensors[i]));
}

const at::Tensor& Outputs::operator[](std::string_view name) const {
  for (const auto& item : items_)
    if (item.first == name) return item.second;
  std::string names;
  for (const auto& item : items_) names += names.empty() ? item.first : ", " + item.first;
  throw InputError(fmt::format("there is no output '{}'; there are ({})", name, names));
}

const at::Tensor& Outputs::operator[](size_t index) const {
  if (index < items_.size()) return items_[index].second;
  throw InputError(fmt::format("there is no output {}; there are {}, counted from 0", index, items_.size()));
}

bool Outputs::contains(std::string_view name) const noexcept {
  return std::any_of(items_.begin(), items_.end(), [&](const auto& item) { return item.first == name; });
}

policy::PolicyCore& Policy::core() const {
  if (!core_) throw InputError("this triage::Policy holds no policy; get one from Runtime::load");
  return *core_;
}

void Policy::throw_output_count(size_t wanted, size_t got) const {
  throw InputError(fmt::format("policy '{}' has {} output{} ({}); run<{}> cannot take them", name(), got,
                               got == 1 ? "" : "s", fmt::join(graph::output_names(signature().outputs, got), ", "),
                               wanted));
}

std::vector<at::Tensor> Policy::run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options) const try {
  return policy::PolicyCall::run(core(), inputs, options);
} catch (...) {
  messages::throw_as_error();
}

Outputs Policy::run_named(const NamedTensors& inputs, const RunOptions& options) const {
  return errors_only([&] {
    // Names cannot change while the policy lives: a reload that would change them is refused.
    const auto names = core().line().with_live([](const policy::PolicyVersion& live) { return live.signature.inputs; });
    std::vector<at::Tensor> outputs = run(ordered(name(), names, inputs), options);
    const size_t count = outputs.size();
    return Outputs(graph::output_names(signature().outputs, count), std::move(outputs));
  });
}

void Policy::prepare(at::ArrayRef<at::Tensor> inputs, const RunOptions& options) const {
  errors_only([&] { policy::PolicyCall(core(), inputs, options).prepare(); });
}

std::vector<TensorMetadata> output_metadata(const Policy& policy, const std::vector<TensorMetadata>& inputs) {
  return errors_only([&] { return policy::outputs_for(policy.core(), inputs); });
}

void Policy::set_param(const std::string& name, ParamValue value) const {
  errors_only([&] { core().set_param(name, std::move(value)); });
}

void Policy::manual_seed(uint64_t seed) const {
  errors_only([&] { core().random()->reseed(seed); });
}

PolicyState Policy::state() const {
  return errors_only([&] { return core().state().state(); });
}

void Policy::set_state(const PolicyState& state) const {
  errors_only([&] { core().state().set_state(state); });
}

void Policy::reset_state() const {
  errors_only([&] { core().state().reset(std::nullopt); });
}

void Policy::reset_state(std::string_view key) const {
  errors_only([&] { core().state().reset(key); });
}

void Policy::save_state(const std::filesystem::path& file) const {
  errors_only([&] { core().state().save(file); });
}

void Policy::load_state(const std::filesystem::path& file) const {
  errors_only([&] { core().state().load(file); });
}

const std::string& Policy::name() const { return core().name(); }

Signature Policy::signature() const {
  return core().line().with_live([](const policy::PolicyVersion& live) { return live.known_signature(); });
}

PolicyStatistics Policy::statistics() const {
  return errors_only([&] { return core().statistics(); });
}

VersionInfo Policy::version() const {
  return errors_only([&] {
    policy::Releases& releases = core().releases();
    return releases.look_at([&](const policy::Releases::View& now) {
      VersionInfo info = core().line().now()->version->info();
      info.path = core().path();
      info.live = true;
      info.pinned = now.pinned;
      info.last_error = releases.is_bundle() ? core().last_error : releases.last_error_locked();
      return info;
    });
  });
}

std::vector<VersionInfo> Policy::versions() const {
  return errors_only([&] {
    return core().releases().look_at([&](const policy::Releases::View& now) {
      const policy::VersionLine& line = core().line();
      std::vector<VersionInfo> infos;
      for (const auto& version : line.kept()) {
        infos.push_back(version->info());
        infos.back().path = core().path();
        infos.back().live = version == line.now()->version;
        infos.back().pinned = infos.back().live && now.pinned;
      }
      if (!line.candidate()) return infos;
      VersionInfo info = line.candidate()->version->info();
      info.candidate = true;
      const auto by_number = [](const VersionInfo& a, const VersionInfo& b) { return a.number < b.number; };
      infos.insert(std::upper_bound(infos.begin(), infos.end(), info, by_number), info);
      return infos;
    });
  });
}

void Policy::rollback(int number) const {
  errors_only([&] { releases_of(core(), "rollback").rollback(number, /*pin=*/false); });
}

void Policy::pin(int number) const {
  errors_only([&] { releases_of(core(), "pin").rollback(number, /*pin=*/true); });
}

Reload Policy::unpin() const {
  return errors_only([&] { return policy::as_reload(releases_of(core(), "unpin").unpin()); });
}

Reload Policy::reload() const {
  return errors_only([&] { return policy::as_reload(releases_of(core(), "reload").reloads().follow(/*retry=*/true)); });
}

Reload Policy::replace(std::string_view source) const {
  return errors_only(
      [&] { return policy::as_reload(releases_of(core(), "replace").reloads().replace(std::string(source))); });
}

VersionInfo Policy::shadow(const std::filesystem::path& path, const ShadowOptions& options) const {
  return errors_only([&] { return start_candidate(core_, source_of_file(name(), path), options); });
}

VersionInfo Policy::shadow_source(std::string_view source, const ShadowOptions& options) const {
  return errors_only([&] { return start_candidate(core_, source_of_text(core(), source), options); });
}

VersionInfo Policy::canary(const std::filesystem::path& path, const CanaryOptions& options) const {
  return errors_only([&] {
    releases_of(core(), "canary");  // throws where it is in a bundle
    return start_candidate(core_, source_of_file(name(), path), options);
  });
}

VersionInfo Policy::canary_source(std::string_view source, const CanaryOptions& options) const {
  return errors_only([&] {
    releases_of(core(), "canary");  // throws where it is in a bundle
    return start_candidate(core_, source_of_text(core(), source), options);
  });
}

std::optional<CandidateReport> Policy::candidate() const {
  return errors_only([&] {
    const VersionInfo live = version();
    return core().candidates().report(live.pinned ? std::optional(live.number) : std::nullopt);
  });
}

void Policy::promote() const {
  errors_only([&] { releases_of(core(), "promote").promote(core()); });
}

CandidateReport Policy::end_candidate() const {
  return errors_only([&] { return core().candidates().end(); });
}

std::vector<CapturedGraph> Policy::graphs() const {
  return core().line().with_live([](const policy::PolicyVersion& live) {
    live.keep_locations();  // who has a graph may run it
    std::vector<std::string> names = live.signature.inputs;
    for (const Param& param : live.signature.params) names.push_back(param.name);
    for (const StateSpec& state : live.signature.state) names.push_back(state.name);
    std::vector<CapturedGraph> graphs;
    for (const capture::CacheEntry* entry : live.compiled.entries())
      graphs.push_back({entry->graph, live.compiled.guards_text(entry->guards, names)});
    return graphs;
  });
}

std::optional<UnmaskedRows> Policy::unmasked_rows(const std::vector<at::Tensor>& inputs, const Params& params) const {
  return core().line().with_live([&](const policy::PolicyVersion& live) {
    std::vector<at::Tensor> all = inputs;
    for (at::Tensor& value : policy::with_first_state(
             live.signature, inputs, policy::override_params(live, policy::param_tensors(live.signature, {}), params)))
      all.push_back(std::move(value));
    return live.compiled.unmasked_rows(all);
  });
}

std::vector<std::shared_ptr<const graph::Graph>> Policy::segments() const {
  return core().line().with_live([](const policy::PolicyVersion& live) {
    live.keep_locations();
    std::vector<std::shared_ptr<const graph::Graph>> graphs;
    for (const auto& segment : live.compiled.segments()) graphs.push_back(segment.graph);
    return graphs;
  });
}

CacheStatistics Policy::cache() const {
  return core().line().with_live([](const policy::PolicyVersion& live) {
    CacheStatistics statistics = live.compiled.statistics();
    capture::add_segments(statistics, live.compiled.segments());
    return statistics;
  });
}

CompileTimes Policy::compile_times() const {
  return core().line().with_live([](const policy::PolicyVersion& live) { return live.compiled.compile_times(); });
}

std::vector<BreakReport> Policy::breaks() const {
  return core().line().with_live([](const policy::PolicyVersion& live) {
    std::vector<BreakReport> reports;
    for (const capture::GraphBreak& met : live.compiled.breaks()) {
      const capture::BreakInfo& kind = capture::info(met.kind);
      reports.push_back({kind.id, met.what, kind.explanation, met.hint, met.where, met.user_code, met.text()});
    }
    return reports;
  });
}

std::vector<std::string> Policy::graph_breaks() const {
  return core().line().with_live([](const policy::PolicyVersion& live) { return live.compiled.graph_breaks(); });
}

std::vector<bool> Policy::flags_outputs() const {
  return core().line().with_live([](const policy::PolicyVersion& live) { return live.compiled.flags_outputs(); });
}

std::vector<std::pair<std::string, std::string>> Policy::run_tests() const {
  return errors_only([&] {
    // In an interpreter of its own: the live one may be answering a call.
    const auto [contents, path] =
        core().line().with_live([](const policy::PolicyVersion& live) { return std::pair(live.contents, live.path); });
    const messages::LogTo log_to(core().runtime().logger());
    const auto script = core().runtime().load_script(contents, path);
    const policy::Loading loading(policy::Loading::What::tests);
    return script->run_tests();
  });
}

}  // namespace triage
