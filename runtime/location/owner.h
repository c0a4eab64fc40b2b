#pragma once
#include <triage/location.h>

#include <atomic>
#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace triage {

/// Names of locations that come and go with their owner, an interpreter of a policy. A name that several owners hold is
/// given back with the last of them. Names that the host registered (ErrorLocation) last for the life of the process.
///
/// An id goes to another name without a trace only if nothing can hold a flag with it: no flags with it have left
/// (`note_left`), and none of its owners was told that theirs may have left unseen (`keep`). Other ids of owners that
/// are gone keep their names until no id is free; then ErrorLocation::name says both. Used by one thread at a time;
/// `keep` and the destructor may be called by any.
class LocationOwner {
 public:
  /// `name`: what people know it by.
  explicit LocationOwner(std::string name);
  ~LocationOwner();
  LocationOwner(const LocationOwner&) = delete;
  LocationOwner& operator=(const LocationOwner&) = delete;

  /// As ErrorLocation::register_path, of a name that lasts as long as this owner.
  int64_t register_path(std::string_view path);
  /// As ErrorLocation::get_all_paths: all of them are held from here on, for they may be used by their ids.
  std::map<std::string, int64_t> hold_all();
  /// How many ids it took: names that it was the first to register.
  int64_t taken() const noexcept { return taken_; }
  /// Flags with its locations, also those that it registers later, may be anywhere: its ids are never another's.
  void keep() noexcept {
    if (!keep_.load(std::memory_order_relaxed)) keep_.store(true, std::memory_order_relaxed);
  }

 private:
  friend class LocationRegistry;
  const std::string name_;
  std::atomic<bool> keep_{false};
  std::atomic<int64_t> taken_{0};
  std::bitset<ErrorLocation::MAX_LOCATION_ID + 1> held_;  // guarded by the registry
};

/// A flag with this location reaches somebody who may store it. Lock-free.
void note_left(int64_t location) noexcept;

/// The id of a path that stood under `id` where flags came from. That very id, unless it is another path's here, or
/// was. The path lasts, as the host's do. Throws InputError for an empty path.
int64_t adopt_location(std::string_view path, int64_t id);
/// Flags whose locations nobody can name may have this id: no other path gets it, as long as there are others. False
/// where a path has it already.
bool reserve_location(int64_t id);

/// How many new names find an id that is not another's.
int64_t free_locations();

}  // namespace triage
