// TorchScript modules. A torch::jit::Module is a handle; the object behind it is remembered by address. A weak reference keeps
// the memory of a dead object taken, so that no other comes to lie there while it is remembered.
#include <torch/csrc/jit/api/module.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "runtime/location/assign.h"

namespace triage {
namespace {

using c10::ivalue::Object;

struct Known {
  c10::weak_intrusive_ptr<Object> object;
  std::string location;
};

struct KnownObjects {
  std::mutex mutex;
  std::unordered_map<const Object*, Known> by_address;
  size_t forget_at = 1024;
};

KnownObjects& known_objects() {
  static auto* instance = new KnownObjects;
  return *instance;
}

void forget_dead(KnownObjects& known) {
  if (known.by_address.size() < known.forget_at) return;
  std::erase_if(known.by_address, [](const auto& entry) { return entry.second.object.expired(); });
  known.forget_at = 2 * known.by_address.size() + 1024;
}

bool holds_parameters(const torch::jit::Module& module) {
  const auto parameters = module.parameters(/*recurse=*/false);
  return parameters.begin() != parameters.end();
}

}  // namespace

std::vector<TrackedModule> tracked(const torch::jit::Module& module, const TrackOptions& options) {
  std::vector<ListedModule> listed;
  std::vector<c10::intrusive_ptr<Object>> objects;
  std::unordered_set<const Object*> seen;  // a module in several places has its first path
  for (const auto& submodule : module.named_modules()) {
    if (!seen.insert(submodule.value._ivalue().get()).second) continue;
    listed.push_back({submodule.name, holds_parameters(submodule.value)});
    objects.push_back(submodule.value._ivalue());
  }
  const std::vector<TrackedModule> assigned = assign_locations(listed, options);

  std::vector<TrackedModule> result;
  KnownObjects& known = known_objects();
  std::lock_guard lock(known.mutex);
  forget_dead(known);
  for (size_t i = 0; i < objects.size(); ++i) {
    if (assigned[i].path.empty()) continue;
    result.push_back(assigned[i]);
    known.by_address.insert_or_assign(objects[i].get(),
                                      Known{c10::weak_intrusive_ptr<Object>(objects[i]), assigned[i].location});
  }
  return result;
}

Location location_of(const torch::jit::Module& module) {
  {
    KnownObjects& known = known_objects();
    std::lock_guard lock(known.mutex);
    const auto found = known.by_address.find(module._ivalue().get());
    if (found != known.by_address.end()) return found->second.location;
  }
  warn_of_untracked_module();
  return {};
}

Location::Location(const torch::jit::Module& module) : Location(location_of(module)) {}

}  // namespace triage
