#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace triage {

/// The process-wide registry of places: a dotted path (`encoder.2`) and its id, 1..1023, given in order of first
/// registration. Id 0 is `Unknown`. Every function is thread-safe.
///
/// When all ids are taken, further paths get id 0, with one warning (until `reset`): errors are still recorded, only their
/// place is lost. No path ever shares an id with another, so what a record says is true.
class ErrorLocation {
 public:
  static constexpr int64_t UNKNOWN = 0;
  static constexpr int64_t MAX_LOCATION_ID = 1023;

  /// The id of `path`, registered now if it is new. `Unknown` is id 0. Throws InputError for an empty path.
  static int64_t register_path(std::string_view path);
  /// The id of `path`, or UNKNOWN; registers nothing.
  static int64_t get(std::string_view path);
  /// The path of `id`, `Unknown` for 0, `Location_<id>` for an id that nobody registered (a manual one).
  static std::string name(int64_t id);
  /// The path of `id`, `Unknown` for 0, empty for an id that nobody registered.
  static std::string path(int64_t id);
  static bool is_registered(std::string_view path);
  /// Ids in use, `Unknown` included: the next new path gets this id.
  static int64_t count();
  /// Forgets all paths. Records made before then decode to other names: for tests.
  static void reset();
  static std::map<std::string, int64_t> get_all_paths();
};

/// A location as operations take it: an id, or a path that is looked up, and registered on first use, when the argument is
/// made. In a hot loop, look it up once. Throws InputError for an id outside 0..1023.
struct Location {
  int64_t id = ErrorLocation::UNKNOWN;
  Location() = default;
  Location(int64_t number);                                                    // NOLINT(google-explicit-constructor)
  Location(int number) : Location(static_cast<int64_t>(number)) {}             // NOLINT(google-explicit-constructor)
  Location(std::string_view path) : id(ErrorLocation::register_path(path)) {}  // NOLINT(google-explicit-constructor)
  Location(const std::string& path) : Location(std::string_view(path)) {}      // NOLINT(google-explicit-constructor)
  Location(const char* path) : Location(std::string_view(path)) {}             // NOLINT(google-explicit-constructor)
};

}  // namespace triage
