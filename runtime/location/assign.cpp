#include "runtime/location/assign.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <set>

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
  int64_t room = std::min(ErrorLocation::MAX_LOCATION_ID + 1 - ErrorLocation::count(), most_new) + 1;
  for (const std::string& path : paths) room += ErrorLocation::is_registered(full_path(path, prefix)) ? 1 : 0;
  return room;
}

}  // namespace

std::vector<TrackedModule> assign_locations(const std::vector<ListedModule>& modules, const TrackOptions& options,
                                            int64_t most_new) {
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
    entry.id = ErrorLocation::register_path(entry.location);
  }
  return result;
}

void warn_of_untracked_module() {
  TORCH_WARN_ONCE("a module without a path was given as a location, its errors are recorded as `Unknown`; ",
                  "call tracked(model) on the module that holds it (modules without parameters have no path).");
}

}  // namespace triage
