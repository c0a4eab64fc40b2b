#include "bindings/python/registry.h"

#include <c10/util/StringUtil.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace triage::python {
namespace {

struct Registered {
  Policy policy;
  pid_t process;
};

struct PolicyRegistry {
  std::mutex mutex;
  std::map<std::string, Registered> policies;
  std::map<int64_t, std::shared_ptr<const Params>> params;
  int64_t last_params = 0;
};

/// Never destroyed: Python may drop policies after this library's own objects are gone. Locked during a fork, so that a
/// child never inherits it half changed.
PolicyRegistry& registry() {
  static auto* const the = [] {
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] { registry().mutex.unlock(); });
    return new PolicyRegistry;
  }();
  return *the;
}

std::optional<Policy> found(const std::string& key, bool* is_of_parent = nullptr) {
  PolicyRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto known = all.policies.find(key);
  if (known == all.policies.end()) return std::nullopt;
  if (known->second.process == ::getpid()) return known->second.policy;
  if (is_of_parent) *is_of_parent = true;
  return std::nullopt;
}

std::atomic<void (*)(const char*)> reopener{nullptr};

}  // namespace

void register_policy(const std::string& key, const Policy& policy) {
  PolicyRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto known = all.policies.find(key);
  if (known == all.policies.end()) {
    all.policies.emplace(key, Registered{policy, ::getpid()});
    return;
  }
  if (known->second.process == ::getpid())
    throw InputError(c10::str("The key \"", key, "\" is taken by another policy of this process: choose another."));
  new Policy(known->second.policy);  // of the parent process: its threads are not here, and its end would wait for them
  known->second = {policy, ::getpid()};
}

void forget_policy(const std::string& key) noexcept {
  Policy last;  // destroyed after the lock is free: it may wait for a reload
  PolicyRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto known = all.policies.find(key);
  if (known == all.policies.end() || known->second.process != ::getpid()) return;
  last = std::move(known->second.policy);
  all.policies.erase(known);
}

int64_t bind_params(Params values) {
  auto bound = std::make_shared<const Params>(std::move(values));
  PolicyRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.params.emplace(++all.last_params, std::move(bound));
  return all.last_params;
}

std::shared_ptr<const Params> bound_params(int64_t number) {
  PolicyRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto known = all.params.find(number);
  if (known == all.params.end())
    throw InputError("There are no params under the number " + std::to_string(number) + ".");
  return known->second;
}

void drop_params(int64_t number) noexcept {
  PolicyRegistry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.params.erase(number);
}

void set_reopener(int64_t callback) {
  reopener = reinterpret_cast<void (*)(const char*)>(callback);  // NOLINT(performance-no-int-to-ptr)
}

Policy find_policy(const std::string& key) {
  bool is_of_parent = false;
  std::optional<Policy> policy = found(key, &is_of_parent);
  if (!policy && is_of_parent && reopener) {
    reopener.load()(key.c_str());
    policy = found(key);
  }
  if (policy) return *std::move(policy);
  throw InputError(c10::str("triage::run_policy: this process has no policy with the key \"", key,
                            "\". Load it before the program runs, and keep it: policy = triage.load(path, key=\"", key,
                            "\")."));
}

}  // namespace triage::python
