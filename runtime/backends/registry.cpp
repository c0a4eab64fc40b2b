#include <fmt/format.h>
#include <triage/backend.h>
#include <triage/error.h>
#include <triage/masked_rows.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#include "runtime/backends/aot/aot_eager.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/faulty.h"
#include "runtime/backends/fused/fused.h"
#include "runtime/backends/shipped.h"
#include "runtime/messages/fork_safe_mutex.h"

namespace triage {
namespace {

std::map<std::string, Backend> shipped_backends() {
  return {{"aot_eager", compile_aot_eager}, {"eager", compile_eager}, {"fused", compile_fused}};
}

struct BackendRegistry {
  messages::ForkSafeSharedMutex mutex;
  std::map<std::string, Backend> backends = shipped_backends();
};

BackendRegistry& registry() {
  static auto& instance = *new BackendRegistry;  // a Watch that reloads asks until the process ends
  return instance;
}

}  // namespace

MaskedRows masked_rows_from(const std::string& name) {
  if (name == "warn") return MaskedRows::warn;
  if (name == "require") return MaskedRows::require;
  throw ConfigError(fmt::format("masked_rows is '{}'; expected warn or require", name));
}

const char* masked_rows_name(MaskedRows mode) noexcept { return mode == MaskedRows::require ? "require" : "warn"; }

void register_backend(const std::string& name, Backend backend) {
  if (name.empty()) throw InputError("register_backend: a backend needs a name, got an empty string");
  if (!backend)
    throw InputError(fmt::format("register_backend: backend `{}` is an empty function; pass a callable", name));
  auto& all = registry();
  std::unique_lock lock(all.mutex);
  all.backends[name] = std::move(backend);
}

Backend find_backend(const std::string& name) {
  {
    auto& all = registry();
    std::shared_lock lock(all.mutex);
    if (auto found = all.backends.find(name); found != all.backends.end()) return found->second;
  }
  if (auto faulty = faulty_backend(name)) return *faulty;
  throw InputError(
      fmt::format("there is no backend `{}`; the backends are: {}", name, fmt::join(list_backends(), ", ")));
}

bool is_shipped_backend(const std::string& name) {
  return shipped_backends().contains(name) || faulty_backend(name).has_value();
}

bool folds_constants(const std::string& name) {
  return shipped_backends().contains(name) || name == "compare";  // triage.compare runs these
}

bool makes_joint_graph(const std::string& name) {
  return name == "aot_eager" || name == "fused" || name.starts_with(kFaultyHalves);
}

std::vector<std::string> list_backends() {
  auto& all = registry();
  std::shared_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, backend] : all.backends) names.push_back(name);
  return names;
}

}  // namespace triage
