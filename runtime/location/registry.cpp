// The registry of locations. One table, guarded by a shared mutex: readers (names at the boundary, ids of known paths)
// do not block each other, and nothing is ever removed but by `reset`.
#include "runtime/location/resets.h"
#include "runtime/messages/logs/log.h"

#include <triage/error.h>
#include <triage/location.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace triage {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::map<std::string, int64_t, std::less<>> ids;
  std::vector<std::string> paths{"Unknown"};  // by id
  bool warned_full = false;
};

std::atomic<uint64_t> resets{0};  // not in the registry, which may have no memory when it is first asked for

Registry& registry() {
  static auto* instance = new Registry;  // outlives every static that may still record an error at exit
  return *instance;
}

int64_t find(const Registry& r, std::string_view path) {
  if (path == r.paths[0]) return ErrorLocation::UNKNOWN;
  auto it = r.ids.find(path);
  return it == r.ids.end() ? -1 : it->second;
}

/// The id of the longest prefix that has one, else UNKNOWN.
int64_t find_prefix(const Registry& r, std::string_view path) {
  for (size_t dot = path.rfind('.'); dot != std::string_view::npos; dot = path.rfind('.')) {
    path = path.substr(0, dot);
    if (auto it = r.ids.find(path); it != r.ids.end()) return it->second;
  }
  return ErrorLocation::UNKNOWN;
}

}  // namespace

int64_t ErrorLocation::register_path(std::string_view path) {
  if (path.empty()) {
    throw InputError(
        "A location's path must not be empty; leave the location out (id 0, `Unknown`) or name the place.");
  }
  auto& r = registry();
  {
    std::shared_lock lock(r.mutex);
    if (int64_t id = find(r, path); id >= 0) return id;
  }
  bool warn = false;
  int64_t nearest = UNKNOWN;
  {
    std::unique_lock lock(r.mutex);
    if (int64_t id = find(r, path); id >= 0) return id;
    const auto id = static_cast<int64_t>(r.paths.size());
    if (id <= MAX_LOCATION_ID) {
      std::string text(path);
      r.paths.reserve(MAX_LOCATION_ID + 1);
      r.ids.emplace(path, id);
      r.paths.push_back(std::move(text));  // has its place
      return id;
    }
    nearest = find_prefix(r, path);
    warn = !r.warned_full;
    r.warned_full = true;
  }
  if (warn) {
    messages::warn("All " + std::to_string(MAX_LOCATION_ID) + " locations are taken: `" + std::string(path) +
                   "` and every further new path are recorded under their longest prefix that has an id, or as "
                   "`Unknown` (id 0). Use fewer, coarser paths.");
  }
  return nearest;
}

int64_t ErrorLocation::get(std::string_view path) {
  auto& r = registry();
  std::shared_lock lock(r.mutex);
  const int64_t id = find(r, path);
  return id < 0 ? UNKNOWN : id;
}

std::string ErrorLocation::path(int64_t id) {
  auto& r = registry();
  std::shared_lock lock(r.mutex);
  return id >= 0 && id < static_cast<int64_t>(r.paths.size()) ? r.paths[static_cast<size_t>(id)] : std::string();
}

std::string ErrorLocation::name(int64_t id) {
  auto found = path(id);
  return found.empty() ? "Location_" + std::to_string(id) : found;
}

bool ErrorLocation::is_registered(std::string_view path) {
  auto& r = registry();
  std::shared_lock lock(r.mutex);
  return r.ids.find(path) != r.ids.end();
}

int64_t ErrorLocation::count() {
  auto& r = registry();
  std::shared_lock lock(r.mutex);
  return static_cast<int64_t>(r.paths.size());
}

void ErrorLocation::reset() {
  auto& r = registry();
  std::unique_lock lock(r.mutex);
  r.ids.clear();
  r.paths.resize(1);
  r.warned_full = false;
  resets.fetch_add(1, std::memory_order_release);
}

uint64_t location_resets() noexcept { return resets.load(std::memory_order_acquire); }

std::map<std::string, int64_t> ErrorLocation::get_all_paths() {
  auto& r = registry();
  std::shared_lock lock(r.mutex);
  return {r.ids.begin(), r.ids.end()};
}

const torch::nn::Module& Location::checked(const torch::nn::Module* module) {
  if (!module) throw InputError("A location must be a module; got an empty pointer to one. Pass 0 for `Unknown`.");
  return *module;
}

std::string_view Location::checked(const char* path) {
  if (!path) throw InputError("A location's path must be text; got a null pointer. Pass 0 for `Unknown`.");
  return path;
}

Location::Location(int64_t number) : id(number) {
  if (number < 0 || number > ErrorLocation::MAX_LOCATION_ID) {
    throw InputError("A location id must be 0.." + std::to_string(ErrorLocation::MAX_LOCATION_ID) + "; got " +
                     std::to_string(number) + ". Pass a path to have an id chosen.");
  }
}

}  // namespace triage
