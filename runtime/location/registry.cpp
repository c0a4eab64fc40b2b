// The registry of locations. One table, guarded by a shared mutex: readers (names at the boundary, ids of known paths)
// do not block each other. An entry that nobody holds keeps its path and id until a new path needs the place.
#include "runtime/location/owner.h"
#include "runtime/location/resets.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"

#include <fmt/format.h>
#include <triage/error.h>
#include <triage/location.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace triage {
namespace {

constexpr int64_t most_ids = ErrorLocation::MAX_LOCATION_ID + 1;

std::atomic<uint64_t> resets{0};  // not in the registry, which may have no memory when it is first asked for

void check_path(std::string_view path) {
  if (path.empty()) {
    throw InputError(
        "A location's path must not be empty; leave the location out (id 0, `Unknown`) or name the place.");
  }
}

}  // namespace

class LocationRegistry {
 public:
  static LocationRegistry& of_process() {
    static auto* instance = new LocationRegistry;  // outlives every static that may still record an error at exit
    return *instance;
  }

  /// `owner`: null for the host, whose names last.
  int64_t take(std::string_view path, LocationOwner* owner) {
    check_path(path);
    {
      std::shared_lock lock(mutex_);
      const int64_t id = find(path);
      if (id == ErrorLocation::UNKNOWN || (id > 0 && is_held(id, owner))) return id;
    }
    std::string full;
    int64_t id = 0;
    {
      std::unique_lock lock(mutex_);
      id = find(path);
      if (id < 0) id = add(path, owner, full);
      if (id > 0) hold(id, owner);
    }
    if (!full.empty()) messages::warn(full);
    return id;
  }

  /// Of a host that may use the id from here on; UNKNOWN where the path is not registered.
  int64_t get(std::string_view path) { return knows(path) ? take(path, nullptr) : ErrorLocation::UNKNOWN; }

  int64_t adopt(std::string_view path, int64_t id) {
    check_path(path);
    {
      std::unique_lock lock(mutex_);
      if (find(path) < 0 && is_open(id)) place(path, id).lasting = true;
    }
    return take(path, nullptr);
  }

  bool reserve(int64_t id) {
    std::unique_lock lock(mutex_);
    const std::string name = manual_name(id);
    if (is_open(id) && find(name) < 0) place(name, id);
    note_left(id);
    return is_open(id) || at(id).path == name;
  }

  bool knows(std::string_view path) {
    std::shared_lock lock(mutex_);
    return ids_.find(path) != ids_.end();
  }

  std::string path(int64_t id) {
    std::shared_lock lock(mutex_);
    return id >= 0 && id < count() ? at(id).path : std::string();
  }

  std::string name(int64_t id) {
    std::shared_lock lock(mutex_);
    if (id < 0 || id >= count() || at(id).path.empty()) return manual_name(id);
    const LocationEntry& entry = at(id);
    return entry.earlier.empty() ? entry.path : fmt::format("{} (earlier: {})", entry.path, entry.earlier);
  }

  int64_t ids() {
    std::shared_lock lock(mutex_);
    return count();
  }

  int64_t free() {
    std::shared_lock lock(mutex_);
    return most_ids - count() + std::count_if(entries_.begin() + 1, entries_.end(), [this](const LocationEntry& entry) {
             return entry.is_gone() && !left_[static_cast<size_t>(id_of(entry))];
           });
  }

  std::map<std::string, int64_t> hold_all(LocationOwner* owner) {
    std::unique_lock lock(mutex_);
    for (const auto& [path, id] : ids_) hold(id, owner);
    return {ids_.begin(), ids_.end()};
  }

  LocationUsage usage() {
    std::shared_lock lock(mutex_);
    return usage_of_all();
  }

  void reset() {
    std::unique_lock lock(mutex_);
    ids_.clear();
    entries_.resize(1);
    for (LocationOwner* owner : owners_) owner->held_.reset();
    for (std::atomic<bool>& id : left_) id = false;
    unnamed_ = reused_ = 0;
    warned_ = false;
    resets.fetch_add(1, std::memory_order_release);
  }

  void note_left(int64_t id) noexcept {
    std::atomic<bool>& known = left_[static_cast<size_t>(id)];
    if (!known.load(std::memory_order_relaxed)) known.store(true, std::memory_order_relaxed);
  }

  void forget_gone() {
    std::unique_lock lock(mutex_);
    for (LocationEntry& entry : entries_) {
      entry.earlier.clear();
      if (entry.is_gone()) left_[static_cast<size_t>(id_of(entry))] = false;
    }
  }

  void enter(LocationOwner* owner) {
    std::unique_lock lock(mutex_);
    owners_.insert(owner);
  }

  void release(LocationOwner* owner) noexcept {
    std::unique_lock lock(mutex_);
    owners_.erase(owner);
    ++releases_;
    for (int64_t id = 1; id < count(); ++id) {
      if (!owner->held_[static_cast<size_t>(id)]) continue;
      LocationEntry& entry = at(id);
      if (owner->keep_) left_[static_cast<size_t>(id)] = true;
      if (--entry.holders == 0) entry.released = releases_;
    }
  }

 private:
  struct LocationEntry {
    std::string path;     // empty: an id that was passed over, as none has asked for it
    std::string earlier;  // of flags that may still be somewhere: the name that its id had before
    int holders = 0;
    bool lasting = false;
    uint64_t released = 0;  // by its last holder: later ones are larger
    bool is_gone() const { return holders == 0 && !lasting; }
  };

  static LocationEntry unknown() {
    LocationEntry entry;
    entry.path = "Unknown";
    return entry;
  }

  static std::string manual_name(int64_t id) { return fmt::format("Location_{}", id); }

  /// No path has the id, or ever had it.
  bool is_open(int64_t id) { return id > 0 && id < most_ids && (id >= count() || at(id).path.empty()); }

  /// At an open id. The ids before it that nobody has are open, too.
  LocationEntry& place(std::string_view path, int64_t id) {
    std::string text(path);
    entries_.reserve(static_cast<size_t>(most_ids));
    ids_.emplace(path, id);
    while (count() <= id) entries_.emplace_back();  // has its place
    at(id).path = std::move(text);
    return at(id);
  }

  int64_t count() const { return static_cast<int64_t>(entries_.size()); }
  LocationEntry& at(int64_t id) { return entries_[static_cast<size_t>(id)]; }
  int64_t id_of(const LocationEntry& entry) const { return &entry - entries_.data(); }
  bool is_held(int64_t id, const LocationOwner* owner) {
    return owner ? owner->held_[static_cast<size_t>(id)] : at(id).lasting;
  }

  int64_t find(std::string_view path) const {
    if (path == entries_[0].path) return ErrorLocation::UNKNOWN;
    auto it = ids_.find(path);
    return it == ids_.end() ? -1 : it->second;
  }

  /// The id of the longest prefix that has one, else UNKNOWN.
  int64_t find_prefix(std::string_view path) const {
    for (size_t dot = path.rfind('.'); dot != std::string_view::npos; dot = path.rfind('.')) {
      path = path.substr(0, dot);
      if (auto it = ids_.find(path); it != ids_.end()) return it->second;
    }
    return ErrorLocation::UNKNOWN;
  }

  void hold(int64_t id, LocationOwner* owner) {
    LocationEntry& entry = at(id);
    if (is_held(id, owner)) return;
    if (!owner) {
      entry.lasting = true;
      return;
    }
    owner->held_.set(static_cast<size_t>(id));
    ++entry.holders;
  }

  /// The id of a new path, else that of its longest prefix. `full` is what to tell people when no id is free for the
  /// first time.
  int64_t add(std::string_view path, LocationOwner* owner, std::string& full) {
    std::string text(path);
    int64_t id = count();
    if (id < most_ids) {
      entries_.reserve(static_cast<size_t>(most_ids));
      ids_.emplace(path, id);
      entries_.emplace_back().path = std::move(text);  // has its place
    } else {
      id = oldest_gone();
      const bool is_free = id > 0 && !left_[static_cast<size_t>(id)];
      if (!is_free && !std::exchange(warned_, true)) full = full_text(path, id > 0);
      if (id <= 0) {
        ++unnamed_;
        return find_prefix(path);
      }
      rename(id, std::move(text));
    }
    if (owner) ++owner->taken_;
    return id;
  }

  void rename(int64_t id, std::string path) {
    LocationEntry& entry = at(id);
    if (entry.path.empty()) {
      ids_.emplace(path, id);
      entry.path = manual_name(id);
    } else {
      auto node = ids_.extract(entry.path);
      node.key() = path;
      ids_.insert(std::move(node));
    }
    if (left_[static_cast<size_t>(id)]) {
      entry.earlier = entry.path + (entry.earlier.empty() ? "" : ", ...");
      ++reused_;
    }
    entry.path = std::move(path);
  }

  /// Of the ids that nobody holds: first one of which no flags have left, then the one that was released first.
  int64_t oldest_gone() {
    const auto key = [this](const LocationEntry& entry) {
      return std::tuple(!entry.is_gone(), left_[static_cast<size_t>(id_of(entry))].load(), entry.released);
    };
    const auto best = std::min_element(entries_.begin() + 1, entries_.end(),
                                       [&](const LocationEntry& a, const LocationEntry& b) { return key(a) < key(b); });
    return best != entries_.end() && best->is_gone() ? id_of(*best) : -1;
  }

  LocationUsage usage_of_all() {
    LocationUsage usage;
    usage.free = most_ids - count();
    usage.unnamed = unnamed_;
    usage.reused = reused_;
    for (size_t id = 1; id < entries_.size(); ++id) {
      const LocationEntry& entry = entries_[id];
      int64_t& unheld = left_[id] ? usage.kept : usage.free;
      ++(entry.lasting ? usage.lasting : entry.is_gone() ? unheld : usage.held);
    }
    std::map<std::string, int64_t> names;
    for (const LocationOwner* owner : owners_)
      names[owner->name_] = std::max(names[owner->name_], static_cast<int64_t>(owner->held_.count()));
    for (const auto& [name, held] : names)
      if (held > 0) usage.owners.push_back({name, held});
    std::stable_sort(usage.owners.begin(), usage.owners.end(),
                     [](const auto& a, const auto& b) { return a.names > b.names; });
    return usage;
  }

  std::string full_text(std::string_view path, bool reuses) {
    const LocationUsage usage = usage_of_all();
    std::string holders = fmt::format("the host {}", usage.lasting);
    for (size_t i = 0; i < usage.owners.size() && i < 5; ++i)
      holders += fmt::format(", {} {}", messages::one_line(usage.owners[i].name), usage.owners[i].names);
    if (usage.owners.size() > 5) holders += fmt::format(", {} more", usage.owners.size() - 5);
    const char* const then =
        reuses ? "take ids of policies that are gone, though flags of these may be stored: such an id reads as "
                 "`new (earlier: old)`, until the host says with ErrorLocation::forget_gone() that it stores none"
               : "are recorded under their longest prefix that has an id, or as `Unknown` (id 0)";
    return fmt::format(
        "All {} locations are taken: `{}` and every further new path {}. Names are held by {}; {} by flags of policies "
        "that are gone. Use fewer, coarser paths.",
        ErrorLocation::MAX_LOCATION_ID, messages::one_line(path), then, holders, usage.kept);
  }

  messages::ForkSafeSharedMutex mutex_;
  std::map<std::string, int64_t, std::less<>> ids_;
  std::vector<LocationEntry> entries_{unknown()};   // by id
  std::array<std::atomic<bool>, most_ids> left_{};  // ids that flags of somebody may hold; no lock guards it
  std::set<LocationOwner*> owners_;
  uint64_t releases_ = 0, unnamed_ = 0, reused_ = 0;
  bool warned_ = false;
};

LocationOwner::LocationOwner(std::string name) : name_(std::move(name)) { LocationRegistry::of_process().enter(this); }
LocationOwner::~LocationOwner() { LocationRegistry::of_process().release(this); }
int64_t LocationOwner::register_path(std::string_view path) { return LocationRegistry::of_process().take(path, this); }
std::map<std::string, int64_t> LocationOwner::hold_all() { return LocationRegistry::of_process().hold_all(this); }

void note_left(int64_t location) noexcept { LocationRegistry::of_process().note_left(location); }
int64_t adopt_location(std::string_view path, int64_t id) { return LocationRegistry::of_process().adopt(path, id); }
bool reserve_location(int64_t id) { return LocationRegistry::of_process().reserve(id); }
int64_t free_locations() { return LocationRegistry::of_process().free(); }

int64_t ErrorLocation::register_path(std::string_view path) {
  return LocationRegistry::of_process().take(path, nullptr);
}
int64_t ErrorLocation::get(std::string_view path) { return LocationRegistry::of_process().get(path); }
std::string ErrorLocation::path(int64_t id) { return LocationRegistry::of_process().path(id); }
std::string ErrorLocation::name(int64_t id) { return LocationRegistry::of_process().name(id); }
bool ErrorLocation::is_registered(std::string_view path) { return LocationRegistry::of_process().knows(path); }
int64_t ErrorLocation::count() { return LocationRegistry::of_process().ids(); }
void ErrorLocation::reset() { LocationRegistry::of_process().reset(); }
LocationUsage ErrorLocation::usage() { return LocationRegistry::of_process().usage(); }
void ErrorLocation::forget_gone() { LocationRegistry::of_process().forget_gone(); }
std::map<std::string, int64_t> ErrorLocation::get_all_paths() {
  return LocationRegistry::of_process().hold_all(nullptr);
}

uint64_t location_resets() noexcept { return resets.load(std::memory_order_acquire); }

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
