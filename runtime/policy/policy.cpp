#include "runtime/policy/core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/runtime.h>

#include <algorithm>

#include "runtime/messages/boundary.h"
#include "runtime/policy/loading.h"
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

std::vector<std::string> names_for(const Signature& signature, size_t count) {
  std::vector<std::string> names = signature.outputs;
  for (size_t i = names.size(); i < count; ++i) names.push_back(fmt::format("out{}", i));
  return names;
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
                               got == 1 ? "" : "s", fmt::join(names_for(signature(), got), ", "), wanted));
}

std::vector<at::Tensor> Policy::run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options) const {
  return errors_only([&] { return core().run(inputs, options); });
}

Outputs Policy::run_named(const NamedTensors& inputs, const RunOptions& options) const {
  return errors_only([&] {
    // Names cannot change while the policy lives: a reload that would change them is refused.
    const auto names = core().with_live([](const policy::PolicyVersion& live) { return live.signature.inputs; });
    std::vector<at::Tensor> outputs = core().run(ordered(name(), names, inputs), options);
    const size_t count = outputs.size();
    return Outputs(names_for(signature(), count), std::move(outputs));
  });
}

void Policy::prepare(at::ArrayRef<at::Tensor> inputs, const RunOptions& options) const {
  errors_only([&] { core().prepare(inputs, options); });
}

void Policy::set_param(const std::string& name, ParamValue value) const {
  errors_only([&] { core().set_param(name, std::move(value)); });
}

void Policy::manual_seed(uint64_t seed) const {
  errors_only([&] { core().manual_seed(seed); });
}

PolicyState Policy::state() const {
  return errors_only([&] { return core().state(); });
}

void Policy::set_state(const PolicyState& state) const {
  errors_only([&] { core().set_state(state); });
}

void Policy::reset_state() const {
  errors_only([&] { core().reset_state(std::nullopt); });
}

void Policy::reset_state(std::string_view key) const {
  errors_only([&] { core().reset_state(key); });
}

void Policy::save_state(const std::filesystem::path& file) const {
  errors_only([&] { core().save_state(file); });
}

void Policy::load_state(const std::filesystem::path& file) const {
  errors_only([&] { core().load_state(file); });
}

const std::string& Policy::name() const { return core().name(); }

Signature Policy::signature() const {
  return core().with_live([](const policy::PolicyVersion& live) { return live.known_signature(); });
}

PolicyStatistics Policy::statistics() const {
  return errors_only([&] { return core().statistics(); });
}

VersionInfo Policy::version() const {
  return errors_only([&] { return core().version(); });
}

std::vector<VersionInfo> Policy::versions() const {
  return errors_only([&] { return core().versions(); });
}

void Policy::rollback(int number) const {
  errors_only([&] {
    core().check_alone("rollback");
    core().rollback(number, /*pin=*/false);
  });
}

void Policy::pin(int number) const {
  errors_only([&] {
    core().check_alone("pin");
    core().rollback(number, /*pin=*/true);
  });
}

Reload Policy::unpin() const {
  return errors_only([&] {
    core().check_alone("unpin");
    core().unpin();
    return reload();
  });
}

Reload Policy::reload() const {
  return errors_only([&] {
    using Change = policy::PolicyCore::FileChange;
    core().check_alone("reload");
    const Change change = core().follow_file(/*retry=*/true);
    if (change == Change::swapped) return Reload::swapped;
    return change == Change::refused || change == Change::deleted ? Reload::refused : Reload::unchanged;
  });
}

Reload Policy::replace(std::string_view source) const {
  return errors_only([&] {
    core().check_alone("replace");
    return core().replace(std::string(source));
  });
}

std::vector<CapturedGraph> Policy::graphs() const {
  return core().with_live([](const policy::PolicyVersion& live) {
    live.keep_locations();  // who has a graph may run it
    std::vector<std::string> names = live.signature.inputs;
    for (const Param& param : live.signature.params) names.push_back(param.name);
    for (const StateSpec& state : live.signature.state) names.push_back(state.name);
    std::vector<CapturedGraph> graphs;
    for (const capture::Entry* entry : live.compiled.entries())
      graphs.push_back({entry->graph, live.compiled.guards_text(entry->guards, names)});
    return graphs;
  });
}

std::optional<UnmaskedRows> Policy::unmasked_rows(const std::vector<at::Tensor>& inputs, const Params& params) const {
  return core().with_live([&](const policy::PolicyVersion& live) {
    std::vector<at::Tensor> all = inputs;
    for (at::Tensor& value :
         policy::with_first_state(live.signature, inputs, policy::param_tensors(live.signature, params)))
      all.push_back(std::move(value));
    return live.compiled.unmasked_rows(all);
  });
}

std::vector<std::shared_ptr<const graph::Graph>> Policy::segments() const {
  return core().with_live([](const policy::PolicyVersion& live) {
    live.keep_locations();
    std::vector<std::shared_ptr<const graph::Graph>> graphs;
    for (const auto& segment : live.compiled.segments()) graphs.push_back(segment.graph);
    return graphs;
  });
}

CacheStatistics Policy::cache() const {
  return core().with_live([](const policy::PolicyVersion& live) {
    CacheStatistics statistics = live.compiled.statistics();
    capture::add_segments(statistics, live.compiled.segments());
    return statistics;
  });
}

CompileTimes Policy::compile_times() const {
  return core().with_live([](const policy::PolicyVersion& live) { return live.compiled.compile_times(); });
}

std::vector<BreakReport> Policy::breaks() const {
  return core().with_live([](const policy::PolicyVersion& live) {
    std::vector<BreakReport> reports;
    for (const capture::GraphBreak& met : live.compiled.breaks()) {
      const capture::BreakInfo& kind = capture::info(met.kind);
      reports.push_back({kind.id, met.what, kind.explanation, met.hint, met.where, met.user_code, met.text()});
    }
    return reports;
  });
}

std::vector<std::string> Policy::graph_breaks() const {
  return core().with_live([](const policy::PolicyVersion& live) { return live.compiled.graph_breaks(); });
}

std::vector<bool> Policy::flags_outputs() const {
  return core().with_live([](const policy::PolicyVersion& live) { return live.compiled.flags_outputs(); });
}

std::vector<std::pair<std::string, std::string>> Policy::run_tests() const {
  return errors_only([&] {
    // In an interpreter of its own: the live one may be answering a call.
    const auto [contents, path] =
        core().with_live([](const policy::PolicyVersion& live) { return std::pair(live.contents, live.path); });
    const messages::LogTo log_to(core().runtime().logger());
    const auto script = core().runtime().load_script(contents, path);
    const policy::Loading loading(policy::Loading::What::tests);
    return script->run_tests();
  });
}

}  // namespace triage
