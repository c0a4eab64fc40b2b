#pragma once
#include <triage/api.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::jit {
struct Module;
}

namespace triage {

/// A pointer to a LibTorch module: a std::shared_ptr, or a torch::nn::ModuleHolder such as torch::nn::Linear.
template <typename T>
concept ModulePointer = requires(const T& pointer) {
  requires std::derived_from<std::remove_cvref_t<decltype(*pointer)>, torch::nn::Module>;
};

/// How the ids of locations, 1..1023, are used.
struct LocationUsage {
  struct Owner {
    std::string name;  ///< of a policy: the path of its source
    int64_t names;     ///< of one of its interpreters, the largest number
  };
  int64_t lasting = 0;             ///< named by the host
  int64_t held = 0;                ///< named by policies that are there
  int64_t kept = 0;                ///< named by policies that are gone: flags with them left, and may be stored
  int64_t free = 0;                ///< never taken, or given back
  uint64_t unnamed = 0;            ///< new paths that got the id of a prefix, or `Unknown`
  uint64_t reused = 0;             ///< new paths that got an id that was kept
  std::vector<Owner> owners = {};  ///< the policies, most names first; several may hold the same name
};

/// The process-wide registry of locations: a dotted path (`encoder.2`) and its id, 1..1023, in order of first
/// registration. Id 0 is `Unknown`. Every function is thread-safe.
///
/// What a host registers or asks the id of lasts for the life of the process. What a policy registers is given back
/// with its last version that names it, if no flags with it left the library; then a new path may get the id. When all
/// ids are taken, a further path gets an id that a policy which is gone left in flags, and the name then has both:
/// `new (earlier: old)`. If there is none, it gets the id of its longest prefix that has one, else id 0: errors are
/// still recorded, less exactly. Both are said in one warning (until `reset`) and counted. A record never names a wrong
/// location.
class TRIAGE_API ErrorLocation {
 public:
  static constexpr int64_t UNKNOWN = 0;
  static constexpr int64_t MAX_LOCATION_ID = 1023;

  /// The id of `path`; registers a new path. `Unknown` is id 0. Throws InputError for an empty path.
  static int64_t register_path(std::string_view path);
  /// The id of `path`, or UNKNOWN; registers nothing.
  static int64_t get(std::string_view path);
  /// The path of `id`, `Unknown` for 0, `Location_<id>` for an unregistered (manual) id; `new (earlier: old)` for one
  /// that flags of a policy which is gone may hold.
  static std::string name(int64_t id);
  /// The path of `id`, `Unknown` for 0, empty for an unregistered id.
  static std::string path(int64_t id);
  static bool is_registered(std::string_view path);
  /// Ids that were given out so far, `Unknown` included. Below 1024, the next new path gets this id.
  static int64_t count();
  /// How they are used.
  static LocationUsage usage();
  /// The host stores no flags of policies that are gone: their ids are free.
  static void forget_gone();
  /// Removes all paths, for tests. Earlier records then decode to other names.
  static void reset();
  static std::map<std::string, int64_t> get_all_paths();
};

/// A location argument: an id, a path, or a tracked module. Construction from a path is explicit,
/// `Location("encoder")`, because it registers a new path for the whole process (ErrorLocation::register_path) and
/// takes a lock: in a hot loop, construct it once. The other constructors register nothing. Throws InputError for an id
/// outside 0..1023, an empty path, and a null pointer to text or a module.
struct TRIAGE_API Location {
  int64_t id = ErrorLocation::UNKNOWN;
  Location() = default;
  Location(int64_t number);                                         // NOLINT(google-explicit-constructor)
  Location(int number) : Location(static_cast<int64_t>(number)) {}  // NOLINT(google-explicit-constructor)
  explicit Location(std::string_view path) : id(ErrorLocation::register_path(path)) {}
  explicit Location(const std::string& path) : Location(std::string_view(path)) {}
  explicit Location(const char* path) : Location(checked(path)) {}
  /// A module that `tracked` (tracked.h) has named; any other is `Unknown`, with one warning in the process.
  Location(const torch::nn::Module& module);   // NOLINT(google-explicit-constructor)
  Location(const torch::jit::Module& module);  // NOLINT(google-explicit-constructor)
  template <ModulePointer T>
  Location(const T& pointer) : Location(checked(address(pointer))) {}  // NOLINT(google-explicit-constructor)

 private:
  template <ModulePointer T>
  static const torch::nn::Module* address(const T& pointer) {
    if constexpr (requires { pointer.is_empty(); }) {
      if (pointer.is_empty()) return nullptr;  // a ModuleHolder
    } else if (!pointer) {
      return nullptr;
    }
    return &static_cast<const torch::nn::Module&>(*pointer);
  }
  static const torch::nn::Module& checked(const torch::nn::Module* module);
  static std::string_view checked(const char* path);
};

}  // namespace triage
