// Locations for the modules of a model. Modules are remembered by address, each with a weak pointer that tells it from
// another one that comes to lie at the same address later.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "runtime/location/assign.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/log.h"

namespace triage {
namespace {

std::set<std::string> paths_with_parameters(const std::vector<ListedModule>& modules) {
  std::set<std::string> paths;
  for (const ListedModule& module : modules) {
    if (!module.holds_parameters) continue;
    std::string path = module.path;
    while (paths.insert(path).second && !path.empty()) {
      const size_t dot = path.rfind('.');
      path.resize(dot == std::string::npos ? 0 : dot);
    }
  }
  return paths;
}

std::string full_path(const std::string& path, const std::string& prefix) {
  if (path.empty()) return prefix.empty() ? "root" : prefix;
  return prefix.empty() ? path : prefix + '.' + path;
}

/// Ids that these paths may use, `Unknown` included: those still free, and those that the paths have already.
int64_t room_for(const std::set<std::string>& paths, const std::string& prefix, int64_t most_new) {
  int64_t room = std::min(free_locations(), most_new) + 1;
  for (const std::string& path : paths) room += ErrorLocation::is_registered(full_path(path, prefix)) ? 1 : 0;
  return room;
}

}  // namespace

std::vector<TrackedModule> assign_locations(const std::vector<ListedModule>& modules, const TrackOptions& options,
                                            int64_t most_new, LocationOwner* owner) {
  const std::set<std::string> paths = paths_with_parameters(modules);
  LocationTree own_tree;
  LocationTree& tree = options.tree ? *options.tree : own_tree;
  for (const std::string& path : paths)
    if (!path.empty()) tree.add_path(path);
  // The model itself, which every path falls back to, takes one id.
  tree.build_ids(std::max<int64_t>(std::min(room_for(paths, options.prefix, most_new), tree.max_locations()) - 1, 1));

  std::vector<TrackedModule> result;
  for (const ListedModule& module : modules) {
    TrackedModule& entry = result.emplace_back();
    if (paths.count(module.path) == 0) continue;
    entry.path = full_path(module.path, options.prefix);
    entry.location = full_path(tree.get_path(module.path), options.prefix);
    entry.id = owner ? owner->register_path(entry.location) : ErrorLocation::register_path(entry.location);
  }
  return result;
}

void warn_of_untracked_module() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  messages::warn(
      "a module without a path was given as a location, so its errors are recorded as `Unknown`; call tracked(model) "
      "on "
      "the module that holds it (modules without parameters have no path).");
}

namespace {

/// A torch::jit::Module is a handle: the object behind it is remembered. A weak reference to that keeps the memory of a
/// dead object taken, so that no other comes to lie there while it is remembered.
using Object = c10::ivalue::Object;
using WeakObject = c10::weak_intrusive_ptr<Object>;
using torch::nn::Module;
using WeakModule = std::weak_ptr<const Module>;

template <typename Key, typename Weak>
class Locations {
 public:
  static Locations& of_process() {
    static auto* instance = new Locations;
    return *instance;
  }

  void remember(const Key* key, Weak self, const std::string& location) {
    const std::lock_guard lock(mutex_);
    if (known_.size() >= forget_at_) {  // then those of modules that are gone are dropped
      std::erase_if(known_, [](const auto& entry) { return entry.second.first.expired(); });
      forget_at_ = 2 * known_.size() + 1024;
    }
    known_.insert_or_assign(key, std::pair(std::move(self), location));
  }

  /// That of the module which `is_same` finds to be the one remembered; `Unknown`, with a warning, where there is none.
  template <typename IsSame>
  Location find(const Key* key, const IsSame& is_same) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = known_.find(key);
      if (found != known_.end() && is_same(found->second.first)) return Location(found->second.second);
    }
    warn_of_untracked_module();
    return {};
  }

 private:
  messages::ForkSafeMutex mutex_;
  std::unordered_map<const Key*, std::pair<Weak, std::string>> known_;
  size_t forget_at_ = 1024;
};

using Modules = Locations<Module, WeakModule>;
using Objects = Locations<Object, WeakObject>;

using FoundModule = std::pair<std::string, const Module*>;

/// Depth first, as `named_modules`, which however wants the module itself to be shared. A module in several places has
/// its first path.
void list_modules(const Module& module, const std::string& path, std::unordered_set<const Module*>& seen,
                  std::vector<FoundModule>& found) {
  if (!seen.insert(&module).second) return;
  found.emplace_back(path, &module);
  for (const auto& child : module.named_children())
    list_modules(*child.value(), path.empty() ? child.key() : path + '.' + child.key(), seen, found);
}

bool holds_parameters(const torch::jit::Module& module) {
  const auto parameters = module.parameters(/*recurse=*/false);
  return parameters.begin() != parameters.end();
}

/// Those that have a location; `remember` is called with the place of each in `listed`, and with its location.
template <typename Remember>
std::vector<TrackedModule> assigned(const std::vector<ListedModule>& listed, const TrackOptions& options,
                                    const Remember& remember) {
  std::vector<TrackedModule> result;
  const std::vector<TrackedModule> all = assign_locations(listed, options);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].path.empty()) continue;
    remember(i, all[i].location);
    result.push_back(all[i]);
  }
  return result;
}

}  // namespace

std::vector<TrackedModule> tracked(const Module& module, const TrackOptions& options) {
  std::unordered_set<const Module*> seen;
  std::vector<FoundModule> found;
  list_modules(module, "", seen, found);
  std::vector<ListedModule> listed;
  for (const auto& [path, submodule] : found)
    listed.push_back({path, !submodule->named_parameters(/*recurse=*/false).is_empty()});
  return assigned(listed, options, [&](size_t i, const std::string& location) {
    const Module* submodule = found[i].second;
    WeakModule self = submodule->weak_from_this();
    if (!self.expired()) Modules::of_process().remember(submodule, std::move(self), location);
  });
}

std::vector<TrackedModule> tracked(const torch::jit::Module& module, const TrackOptions& options) {
  std::vector<ListedModule> listed;
  std::vector<c10::intrusive_ptr<Object>> objects;
  std::unordered_set<const Object*> seen;  // a module in several places has its first path
  for (const auto& submodule : module.named_modules()) {
    if (!seen.insert(submodule.value._ivalue().get()).second) continue;
    listed.push_back({submodule.name, holds_parameters(submodule.value)});
    objects.push_back(submodule.value._ivalue());
  }
  return assigned(listed, options, [&](size_t i, const std::string& location) {
    Objects::of_process().remember(objects[i].get(), WeakObject(objects[i]), location);
  });
}

Location location_of(const Module& module) {
  return Modules::of_process().find(&module, [self = module.weak_from_this()](const WeakModule& known) {
    return !known.owner_before(self) && !self.owner_before(known);
  });
}

Location location_of(const torch::jit::Module& module) {
  return Objects::of_process().find(module._ivalue().get(), [](const WeakObject&) { return true; });
}

Location::Location(const Module& module) : Location(location_of(module)) {}
Location::Location(const torch::jit::Module& module) : Location(location_of(module)) {}

}  // namespace triage
