#include "runtime/policy/host/runtime_core.h"

#include <fmt/format.h>
#include <triage/backend.h>
#include <triage/front_end.h>

#include <algorithm>

#include "runtime/compat/readable_memory.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/policy/loading.h"

namespace triage::policy {
namespace {

void check_gate(const char* name, ReloadGate gate) {
  if (gate <= ReloadGate::shadow) return;
  throw ConfigError(
      fmt::format("RuntimeOptions::{} is {}; give ReloadGate::warn, refuse or shadow", name, static_cast<int>(gate)));
}

void check_options(const RuntimeOptions& options) {
  if (!(options.limits.seconds >= 0))
    throw ConfigError(fmt::format("RuntimeOptions::limits: `seconds` is {}; give 0 for no limit, or a number above 0",
                                  options.limits.seconds));
  if (!(options.trial_seconds >= 0))
    throw ConfigError(
        fmt::format("RuntimeOptions::trial_seconds is {}; give 0 where calls alone end a trial, or a number above 0",
                    options.trial_seconds));
  const double ratio = options.reload_latency_ratio;
  if (ratio != 0 && !(ratio >= 1))
    throw ConfigError(fmt::format(
        "RuntimeOptions::reload_latency_ratio is {}; give 0 where a reload times nothing, or how many times "
        "as long as the live version a new one may take for a call: a number of at least 1",
        ratio));
  check_gate("on_slow_reload", options.on_slow_reload);
  check_gate("on_new_graph_breaks", options.on_new_graph_breaks);
  if (options.state_keys == 0)
    throw ConfigError("RuntimeOptions::state_keys is 0; a policy keeps state for at least 1 key");
  if (options.state_age.count() < 0)
    throw ConfigError(fmt::format("RuntimeOptions::state_age is {} s; give 0 for no limit, or a time above 0",
                                  options.state_age.count()));
}

RuntimeOptions checked(RuntimeOptions options) {
  check_options(options);
  options.state_age =
      std::min<std::chrono::seconds>(options.state_age, std::chrono::hours(24 * 36525));  // in nanoseconds too
  find_backend(options.backend);  // a wrong name is told here, not at the first call
  return options;
}

std::unique_ptr<Script> run_source(const std::string& path, const Contents& contents, const ScriptOptions& options) {
  const Loading loading(Loading::What::source);
  return find_front_end(path)(contents.source, options);
}

template <class List>
void drop_expired(List& list) noexcept {
  std::erase_if(list, [](const auto& item) { return item.expired(); });
}

template <class List>
auto alive(const List& list) {
  std::vector<decltype(list.front().lock())> items;
  for (const auto& weak : list)
    if (auto item = weak.lock()) items.push_back(std::move(item));
  return items;
}

}  // namespace

void check_memory(const HostTensor& given) {
  if (compat::lacks_memory(given.tensor))
    throw InputError(
        fmt::format("Runtime::define_tensor: the tensor '{}' has no memory for its {} elements (it was freed, made "
                    "smaller, or made "
                    "of a null pointer); define another one",
                    given.name, given.tensor.numel()));
}

RuntimeCore::RuntimeCore(RuntimeOptions options)
    : logger_(options.log),
      options_(checked(std::move(options))),
      last_good_(last_good_in(options_.cache_dir)),
      choices_(options_.cache_dir),
      sources_(options_.cache_dir) {}

RuntimeCore::~RuntimeCore() { logger_.close(); }

/// What had the name is destroyed without the lock: it may call the host.
void RuntimeCore::define(HostFunction function) {
  Definitions gone;
  std::lock_guard lock(mutex_);
  gone = undefine(function.name);
  host_functions_.push_back(std::move(function));
}

void RuntimeCore::define(HostTensor tensor) {
  Definitions gone;
  std::lock_guard lock(mutex_);
  gone = undefine(tensor.name);
  host_tensors_.push_back(std::move(tensor));
}

/// With mutex_ held.
RuntimeCore::Definitions RuntimeCore::undefine(const std::string& name) {
  Definitions gone;
  const auto take = [&](auto& from, auto& into) {
    const auto first =
        std::stable_partition(from.begin(), from.end(), [&](const auto& known) { return known.name != name; });
    into.assign(std::make_move_iterator(first), std::make_move_iterator(from.end()));
    from.erase(first, from.end());
  };
  take(host_functions_, gone.first);
  take(host_tensors_, gone.second);
  return gone;
}

ScriptOptions RuntimeCore::script_options(const std::string& path) const {
  ScriptOptions script;
  script.path = path;
  script.limits = options_.limits;
  script.trusted = options_.trusted;
  script.print = options_.print;
  std::lock_guard lock(mutex_);
  for (const HostTensor& given : host_tensors_) check_memory(given);
  script.host_functions = host_functions_;
  script.host_tensors = host_tensors_;
  return script;
}

std::unique_ptr<Script> RuntimeCore::load_script(const Contents& contents, const std::string& path, bool silent) const {
  ScriptOptions script = script_options(path);
  script.read_file = reader_of(contents);
  if (silent) script.print = [](const std::string&) {};
  return run_source(path, contents, script);
}

void RuntimeCore::wake_watchers() const {
  const auto watchers = [&] {
    std::lock_guard lock(mutex_);
    return alive(watchers_);
  }();
  for (const auto& watcher : watchers) watcher->look_again();
}

std::shared_ptr<PolicyVersion> RuntimeCore::load_version(Contents contents, const std::string& path,
                                                         std::shared_ptr<random::Sequence> random,
                                                         PolicyFiles* files) const {
  const messages::LogTo log_to(logger_);
  random::Sequence of_this_load(options_.seed);  // so that each load of a source gives the same
  const random::DrawFrom draws(&of_this_load);
  ScriptOptions given = script_options(path);
  given.read_file = reader_of(contents);
  if (files) given.read_file = [files](const std::string& name) { return files->read(name); };
  std::shared_ptr<Script> script = run_source(path, contents, given);
  if (files) contents.files = files->all();
  capture::Compiled::Options compile;
  compile.backend = options_.backend;
  compile.compile_seconds = options_.limits.seconds;
  compile.fullgraph = options_.fullgraph || script->fullgraph();
  compile.masked_rows = std::max(options_.masked_rows, script->masked_rows());
  compile.logger = logger_;
  const std::vector<LogField> fields = {{"policy", script->name()}, {"path", path}};
  compile.warn = [logger = logger_, fields](const std::string& text) { logger.write(LogLevel::warn, text, fields); };
  compile.inform = [logger = logger_, fields](const std::string& text) {
    if (messages::logs(messages::Artefact::recompiles))
      messages::log_artefact(logger, messages::Artefact::recompiles, LogLevel::info, text, fields);
  };
  if (options_.profiler) compile.observer = options_.profiler->observer();
  compile.random = std::move(random);
  compile.host_tensors = given.host_tensors;
  auto version = std::make_shared<PolicyVersion>(std::move(script), std::move(compile), std::move(contents), path);
  if (!options_.trusted)
    version->terms = operators::Untrusted::Terms{.bytes = static_cast<int64_t>(options_.limits.tensor_bytes)};
  return version;
}

void RuntimeCore::add(const std::shared_ptr<Releases>& releases) {
  std::lock_guard lock(mutex_);
  drop_expired(releases_);
  releases_.push_back(releases);
}

std::vector<std::shared_ptr<Releases>> RuntimeCore::releases() const {
  std::lock_guard lock(mutex_);
  return alive(releases_);
}

void RuntimeCore::add(const std::shared_ptr<Watcher>& watcher) {
  std::lock_guard lock(mutex_);
  drop_expired(watchers_);
  watchers_.push_back(watcher);
}

}  // namespace triage::policy
