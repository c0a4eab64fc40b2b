#include <fmt/format.h>
#include <triage/backend.h>
#include <triage/front_end.h>
#include <triage/runtime.h>
#include <triage/version.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <new>

#include "runtime/compat/readable_memory.h"
#include "runtime/messages/boundary.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/bundles/bundle.h"
#include "runtime/policy/calls/host_calls.h"
#include "runtime/policy/core.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/files/source_file.h"
#include "runtime/policy/front_end.h"
#include "runtime/policy/loading.h"
#include "runtime/policy/watch/watch.h"
#include "runtime/random/sequence.h"

namespace triage {
namespace policy {
namespace {

/// A script may compute with it while it is loaded.
void check_memory(const HostTensor& given) {
  if (compat::lacks_memory(given.tensor))
    throw InputError(
        fmt::format("Runtime::define_tensor: the tensor '{}' has no memory for its {} elements (it was freed, made "
                    "smaller, or made "
                    "of a null pointer); define another one",
                    given.name, given.tensor.numel()));
}

void check_options(const RuntimeOptions& options) {
  if (!(options.limits.seconds >= 0))
    throw ConfigError(fmt::format("RuntimeOptions::limits: `seconds` is {}; give 0 for no limit, or a number above 0",
                                  options.limits.seconds));
  if (options.state_keys == 0)
    throw ConfigError("RuntimeOptions::state_keys is 0; a policy keeps state for at least 1 key");
  if (options.state_age.count() < 0)
    throw ConfigError(fmt::format("RuntimeOptions::state_age is {} s; give 0 for no limit, or a time above 0",
                                  options.state_age.count()));
}

RuntimeOptions checked(RuntimeOptions options) {
  check_options(options);
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

/// The end of the last handle. The policy, or bundle, goes to the reclaimer; once its Runtime is gone, or where memory is short, it is
/// destroyed here. In a forked child it stays: a thread of the parent may have been at work with it.
template <class Core>
void release(Core* core) noexcept {
  if (core->runtime().reclaimer().is_of_another_process()) return;
  const std::shared_ptr<RuntimeCore> runtime = core->runtime().shared_from_this();  // outlives what follows
  std::unique_ptr<Core> owned(core);
  try {
    std::shared_ptr<void> garbage = std::move(owned);
    runtime->reclaimer().discard(garbage);
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace

RuntimeCore::RuntimeCore(RuntimeOptions options)
    : logger_(options.log),
      options_(checked(std::move(options))),
      last_good_(options_.cache_dir),
      choices_(options_.cache_dir) {}

RuntimeCore::~RuntimeCore() { logger_.close(); }

void RuntimeCore::define(HostFunction function) {
  std::lock_guard lock(mutex_);
  undefine(function.name);
  host_functions_.push_back(std::move(function));
}

void RuntimeCore::define(HostTensor tensor) {
  std::lock_guard lock(mutex_);
  undefine(tensor.name);
  host_tensors_.push_back(std::move(tensor));
}

/// With mutex_ held.
void RuntimeCore::undefine(const std::string& name) {
  const auto has_name = [&](const auto& known) { return known.name == name; };
  std::erase_if(host_functions_, has_name);
  std::erase_if(host_tensors_, has_name);
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

void RuntimeCore::wake_watches() const {
  const auto watches = [&] {
    std::lock_guard lock(mutex_);
    return alive(watches_);
  }();
  for (const auto& watch : watches) watch->look_again();
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

std::shared_ptr<PolicyCore> RuntimeCore::adopt(std::unique_ptr<PolicyCore> core) {
  std::shared_ptr<PolicyCore> shared(core.release(), release<PolicyCore>);
  add_policies({shared});
  wake_watches();  // the file may have changed after it was read and before a Watch knew of the policy
  return shared;
}

std::shared_ptr<BundleCore> RuntimeCore::adopt(std::unique_ptr<BundleCore> core) {
  std::shared_ptr<BundleCore> shared(core.release(), release<BundleCore>);
  shared->add_to_runtime();
  {
    std::lock_guard lock(mutex_);
    drop_expired(bundles_);
    bundles_.push_back(shared);
  }
  wake_watches();
  return shared;
}

void RuntimeCore::add_policies(std::list<std::weak_ptr<PolicyCore>> cores) noexcept {
  std::lock_guard lock(mutex_);
  drop_expired(policies_);
  policies_.splice(policies_.end(), cores);
}

std::vector<std::shared_ptr<PolicyCore>> RuntimeCore::policies() const {
  std::lock_guard lock(mutex_);
  return alive(policies_);
}

std::vector<std::shared_ptr<BundleCore>> RuntimeCore::bundles() const {
  std::lock_guard lock(mutex_);
  return alive(bundles_);
}

void RuntimeCore::add_watch(const std::shared_ptr<WatchCore>& watch) {
  std::lock_guard lock(mutex_);
  drop_expired(watches_);
  watches_.push_back(watch);
}

}  // namespace policy

using messages::errors_only;
using policy::PolicyCore;
using policy::RuntimeCore;

Runtime::Runtime(RuntimeOptions options)
    : core_(messages::errors_only([&] { return std::make_shared<RuntimeCore>(std::move(options)); })) {}

Runtime::Runtime(Runtime&&) noexcept = default;

Runtime& Runtime::operator=(Runtime&& other) noexcept {
  if (this != &other) {
    Runtime old(std::move(*this));
    core_ = std::move(other.core_);
  }
  return *this;
}

Runtime::~Runtime() {
  if (!core_) return;
  if (core_->reclaimer().is_of_another_process()) {
    new (std::nothrow) std::shared_ptr<RuntimeCore>(std::move(core_));  // never destroyed: see Reclaimer
    return;
  }
  for (const auto& policy : core_->policies()) policy->forget_candidate();
  core_->candidate_thread().close();
  core_->reclaimer().close();
}

Policy Runtime::load(const std::filesystem::path& path) {
  return errors_only([&] {
    const std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
    auto loaded = std::make_unique<PolicyCore>(core_, path.string(), file);
    loaded->load_first(std::nullopt);
    return Policy(core_->adopt(std::move(loaded)));
  });
}

Policy Runtime::load_source(std::string_view source, const std::string& name) {
  return errors_only([&] {
    auto loaded = std::make_unique<PolicyCore>(core_, name, std::filesystem::path());
    loaded->load_first(std::string(source));
    return Policy(core_->adopt(std::move(loaded)));
  });
}

Bundle Runtime::load_bundle(const std::filesystem::path& dir) {
  return errors_only([&] {
    auto loaded = std::make_unique<policy::BundleCore>(core_, dir);
    loaded->load_first();
    return Bundle(core_->adopt(std::move(loaded)));
  });
}

/// A name that scripts can write, or two: of a table, and of its field.
static void check_name(const char* what, const std::string& name) {
  const auto fits = [](std::string_view part) {
    const auto allowed = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
    return !part.empty() && !std::isdigit(static_cast<unsigned char>(part[0])) &&
           std::all_of(part.begin(), part.end(), allowed);
  };
  const size_t dot = name.find('.');
  const std::string_view whole = name;
  if (name.size() > 255 || !fits(whole.substr(0, dot)) || (dot != std::string::npos && !fits(whole.substr(dot + 1))))
    throw InputError(fmt::format(
        "{}: expected a name that scripts can write (at most 255 letters, digits and _, no digit first; or two of them "
        "with a dot between, a table and its field), got '{}'",
        what, messages::one_line(name)));
}

void Runtime::define(const std::string& name, std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> fn,
                     FunctionOptions options) {
  errors_only([&] {
    if (name.empty() || !fn) throw InputError("Runtime::define needs a name and a function");
    check_name("Runtime::define", name);
    if (options.shapes && !options.pure)
      throw InputError(
          fmt::format("Runtime::define: the function '{}' has `shapes` and is not pure; only pure functions are nodes "
                      "of graphs. Set "
                      "`pure`, or leave `shapes` out",
                      name));
    core_->define(options.pure ? policy::pure_function(name, std::move(fn), std::move(options))
                               : HostFunction{name, std::move(fn)});
  });
}

void Runtime::define_tensor(const std::string& name, at::Tensor tensor) {
  errors_only([&] {
    if (name.empty() || !tensor.defined()) throw InputError("Runtime::define_tensor needs a name and a tensor");
    check_name("Runtime::define_tensor", name);
    const HostTensor given{name, std::move(tensor)};
    policy::check_memory(given);
    core_->define(given);
  });
}

void Runtime::define_module(const std::string& name, const torch::jit::Module& module) {
  errors_only([&] {
    if (name.empty()) throw InputError("Runtime::define_module needs a name");
    check_name("Runtime::define_module", name);
    core_->define(policy::module_function(name, module));
  });
}

/// Longer times than anybody waits are as good, and their multiples fit the clock.
static std::chrono::milliseconds checked(const char* name, std::chrono::milliseconds time) {
  if (time.count() < 0)
    throw ConfigError(fmt::format("WatchOptions::{} is {} ms; give 0 or a time above 0", name, time.count()));
  return std::min(time, std::chrono::milliseconds(std::chrono::hours(24 * 365)));
}

Watch Runtime::watch(const std::filesystem::path& dir, WatchOptions options) {
  return errors_only([&] {
    options.debounce = checked("debounce", options.debounce);
    options.poll_interval = checked("poll_interval", options.poll_interval);
    auto watch = std::make_shared<policy::WatchCore>(core_, dir, std::move(options));
    core_->add_watch(watch);
    watch->start();
    return Watch(std::move(watch));
  });
}

std::vector<Policy> Runtime::policies() const {
  std::vector<Policy> handles;
  for (auto& core : core_->policies()) handles.push_back(Policy(std::move(core)));
  return handles;
}

const char* version() noexcept { return TRIAGE_VERSION; }

}  // namespace triage
