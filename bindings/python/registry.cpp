#include "bindings/python/registry.h"

#include <c10/util/StringUtil.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace triage::python {
namespace {

struct Registered {
  Policy policy;
  pid_t process;
  std::shared_ptr<const Promises> promises = {};
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Registered> policies;
};

/// Never destroyed: Python may drop policies after this library's own objects are gone. Locked during a fork, so that a
/// child never inherits it half changed.
Registry& registry() {
  static auto* const the = [] {
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] { registry().mutex.unlock(); });
    return new Registry;
  }();
  return *the;
}

/// With the mutex.
Registered& found(Registry& all, const std::string& key) {
  const auto known = all.policies.find(key);
  if (known == all.policies.end() || known->second.process != ::getpid())
    throw InputError(c10::str("triage::run_policy: this process has no policy with the key \"", key,
                              "\". Load it before the program runs, and keep it: policy = triage.load(path, key=\"",
                              key, "\")."));
  return known->second;
}

}  // namespace

void register_policy(const std::string& key, const Policy& policy) {
  Registry& all = registry();
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
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto known = all.policies.find(key);
  if (known == all.policies.end() || known->second.process != ::getpid()) return;
  last = std::move(known->second.policy);
  all.policies.erase(known);
}

Policy find_policy(const std::string& key) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return found(all, key).policy;
}

std::pair<Policy, std::shared_ptr<const Promises>> find_with_promises(const std::string& key) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const Registered& known = found(all, key);
  return {known.policy, known.promises};
}

void promise(const std::string& key, Promise promise) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  Registered& known = found(all, key);
  auto next = known.promises ? std::make_shared<Promises>(*known.promises) : std::make_shared<Promises>();
  std::erase_if(*next, [&](const Promise& one) { return one.inputs == promise.inputs; });
  next->push_back(std::move(promise));
  known.promises = std::move(next);
}

}  // namespace triage::python
