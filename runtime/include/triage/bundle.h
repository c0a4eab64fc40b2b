#pragma once
#include <triage/api.h>
#include <triage/runtime.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Several policies that change together: a folder with a file `bundle.json`, which lists its policies, the modules and
/// the tables that they read, each with the SHA-256 of its bytes (docs/bundles.md).
///
///     triage::Bundle fraud = runtime.load_bundle("bundles/fraud");
///     triage::Policy detect = fraud.policy("detect"), repair = fraud.policy("repair");
///     auto watch = runtime.watch("bundles/fraud");          // reloads when bundle.json changes
namespace triage {

namespace policy {
class Releases;
}  // namespace policy

/// One version of a bundle.
struct BundleVersion {
  int number = 0;                               // 1, 2, ... in the order of going live
  std::string version;                          // as its bundle.json says
  std::string sha256;                           // of its bundle.json, 64 hexadecimal digits
  std::chrono::system_clock::time_point since;  // when it went live (last)
  bool live = false;
  bool pinned = false;
  bool on_trial = false;    // one of its policies is (RuntimeOptions::trial_calls)
  bool taken_back = false;  // it went live, one of its policies failed, and an earlier version replaced it
  /// Its policies in the order of their names, and VersionInfo::number of each. Versions of a bundle share the versions
  /// of policies that did not change.
  std::vector<std::pair<std::string, int>> policies;
  /// Set in Bundle::version(): why the newest bundle.json is not this version. Empty otherwise.
  std::optional<LoadFailure> last_error;
};

/// A bundle of a Runtime: a cheap handle; copies share the bundle, which keeps working after the Runtime is gone, and
/// lives as long as a handle of it or of one of its policies. Thread-safe.
///
/// A new version goes live as a whole: every policy is loaded, tried against its live version, and compiled; then all
/// of them are exchanged. A call that began before that keeps its version. After `reload` has returned (or the Watch
/// has told `reloaded`), every call meets the new version. While the policies are exchanged, which takes some
/// microseconds, a call may meet the new version of one policy, and a later call the old version of another.
///
/// If a call of one of the policies takes its version back, as it does for a single policy, all policies of the bundle
/// go back to the versions of the last earlier bundle version that has not failed.
///
/// Its policies change only with it: their `reload`, `replace`, `rollback`, `pin`, `unpin`, `canary` and `promote`
/// throw InputError.
class TRIAGE_API Bundle {
 public:
  Bundle() = default;  // no bundle: every call but `operator bool` throws InputError
  explicit operator bool() const noexcept { return core_ != nullptr; }

  /// As bundle.json says; it never changes.
  const std::string& name() const;
  /// The policy of file `name`, without the extension: "repair", "fraud/detect". Throws InputError that lists the
  /// names.
  Policy policy(std::string_view name) const;
  /// The names of all policies, sorted. A new version may add some, and drops none.
  std::vector<std::string> policies() const;

  BundleVersion version() const;                // the live one, with the last error
  std::vector<BundleVersion> versions() const;  // those kept (RuntimeOptions::keep_versions), oldest first
  /// Makes version `number` live again; policies that it did not have stay as they are. The bundle follows its folder
  /// again from the next change of bundle.json on. Throws InputError if that version is no longer kept. With
  /// RuntimeOptions::cache_dir this holds over a restart, unless bundle.json has changed since.
  void rollback(int number) const;
  /// Makes version `number` live and keeps it live, whatever happens to the folder; with RuntimeOptions::cache_dir also
  /// in a later Runtime that loads it.
  void pin(int number) const;
  /// Ends `pin`, and loads the folder as it is now.
  Reload unpin() const;
  /// Reads the whole folder now. It tries a refused version again.
  Reload reload() const;

 private:
  friend class Runtime;
  explicit Bundle(std::shared_ptr<policy::Releases> core) : core_(std::move(core)) {}
  policy::Releases& core() const;
  std::shared_ptr<policy::Releases> core_;
};

}  // namespace triage
