#include <fmt/format.h>
#include <triage/bundle.h>
#include <triage/front_end.h>
#include <triage/runtime.h>
#include <triage/version.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <new>

#include "runtime/messages/boundary.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/host/host_calls.h"
#include "runtime/policy/host/runtime_core.h"
#include "runtime/policy/releases/file_origin.h"
#include "runtime/policy/releases/folder_origin.h"
#include "runtime/policy/releases/releases.h"
#include "runtime/policy/watch/watch.h"

namespace triage {

using messages::errors_only;
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
  for (const auto& releases : core_->releases())
    for (const auto& [name, policy] : releases->policies()) policy->candidates().forget();
  core_->candidate_thread().close();
  core_->reclaimer().close();
}

Policy Runtime::load(const std::filesystem::path& path) {
  return errors_only([&] { return Policy(policy::open_file(core_, path)->policies().begin()->second); });
}

Policy Runtime::load_source(std::string_view source, const std::string& name) {
  return errors_only(
      [&] { return Policy(policy::open_text(core_, std::string(source), name)->policies().begin()->second); });
}

Bundle Runtime::load_bundle(const std::filesystem::path& dir) {
  return errors_only([&] { return Bundle(policy::open_bundle(core_, dir)); });
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
    core_->add(watch);
    watch->start();
    return Watch(std::move(watch));
  });
}

std::vector<Policy> Runtime::policies() const {
  std::vector<Policy> handles;
  for (const auto& releases : core_->releases())
    for (const auto& [name, core] : releases->policies()) handles.push_back(Policy(core));
  return handles;
}

const char* version() noexcept { return TRIAGE_VERSION; }

}  // namespace triage
