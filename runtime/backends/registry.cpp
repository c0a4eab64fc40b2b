#include <fmt/format.h>
#include <triage/backend.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#include "runtime/backends/aot/aot_eager.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/faulty.h"
#include "runtime/backends/fused/fused.h"

namespace triage {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::map<std::string, Backend> backends{
      {"aot_eager", compile_aot_eager}, {"eager", compile_eager}, {"fused", compile_fused}};
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

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

std::vector<std::string> list_backends() {
  auto& all = registry();
  std::shared_lock lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, backend] : all.backends) names.push_back(name);
  return names;
}

}  // namespace triage
