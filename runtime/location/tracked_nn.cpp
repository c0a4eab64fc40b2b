// Modules of LibTorch's C++ frontend. They are remembered by address, with a weak pointer that tells a module from another
// one that came to lie at the same address later.
#include <torch/nn/module.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "runtime/location/assign.h"

namespace triage {
namespace {

struct Known {
  std::weak_ptr<const torch::nn::Module> module;
  std::string location;
};

struct KnownModules {
  std::mutex mutex;
  std::unordered_map<const torch::nn::Module*, Known> by_address;
  size_t forget_at = 1024;  // entries: then those of modules that are gone are dropped
};

KnownModules& known_modules() {
  static auto* instance = new KnownModules;
  return *instance;
}

void forget_dead(KnownModules& known) {
  if (known.by_address.size() < known.forget_at) return;
  std::erase_if(known.by_address, [](const auto& entry) { return entry.second.module.expired(); });
  known.forget_at = 2 * known.by_address.size() + 1024;
}

bool is_same(const std::weak_ptr<const torch::nn::Module>& a, const std::weak_ptr<const torch::nn::Module>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

using Found = std::pair<std::string, const torch::nn::Module*>;

/// Depth first, as `named_modules`, which however wants the module itself to be shared. A module in several places has its
/// first path.
void list_modules(const torch::nn::Module& module, const std::string& path,
                  std::unordered_set<const torch::nn::Module*>& seen, std::vector<Found>& found) {
  if (!seen.insert(&module).second) return;
  found.emplace_back(path, &module);
  for (const auto& child : module.named_children())
    list_modules(*child.value(), path.empty() ? child.key() : path + '.' + child.key(), seen, found);
}

}  // namespace

std::vector<TrackedModule> tracked(const torch::nn::Module& module, const TrackOptions& options) {
  std::unordered_set<const torch::nn::Module*> seen;
  std::vector<Found> found;
  list_modules(module, "", seen, found);
  std::vector<ListedModule> listed;
  for (const auto& [path, submodule] : found)
    listed.push_back({path, !submodule->named_parameters(/*recurse=*/false).is_empty()});
  const std::vector<TrackedModule> assigned = assign_locations(listed, options);

  std::vector<TrackedModule> result;
  KnownModules& known = known_modules();
  std::lock_guard lock(known.mutex);
  forget_dead(known);
  for (size_t i = 0; i < found.size(); ++i) {
    const torch::nn::Module* submodule = found[i].second;
    if (assigned[i].path.empty()) continue;
    result.push_back(assigned[i]);
    const std::weak_ptr<const torch::nn::Module> self = submodule->weak_from_this();
    if (!self.expired()) known.by_address.insert_or_assign(submodule, Known{self, assigned[i].location});
  }
  return result;
}

Location location_of(const torch::nn::Module& module) {
  {
    KnownModules& known = known_modules();
    std::lock_guard lock(known.mutex);
    const auto found = known.by_address.find(&module);
    if (found != known.by_address.end() && is_same(found->second.module, module.weak_from_this()))
      return found->second.location;
  }
  warn_of_untracked_module();
  return {};
}

Location::Location(const torch::nn::Module& module) : Location(location_of(module)) {}

}  // namespace triage
