// `triage watch` of a bundle.
#include <triage/bundle.h>

#include "bindings/cli/commands/bundle/actions.h"
#include "bindings/cli/commands/watch_events.h"

namespace triage::cli {
namespace {

/// A Watch follows a bundle that was loaded; one that never was is tried again here.
class BundleFollower {
 public:
  BundleFollower(Runtime& runtime, const WatchCommand& options) : runtime_(runtime), options_(options) {}

  static constexpr int retry_ms = 500;
  bool has_never_loaded() const { return !bundle_; }
  void retry() {
    if (has_never_loaded()) load();
  }

  void load() {
    try {
      bundle_ = runtime_.load_bundle(options_.folder);
      const BundleVersion version = bundle_.version();
      print_line({"loaded", options_.folder, version.number, version.sha256.substr(0, 16), "", 0}, options_.json);
    } catch (const Error& error) {
      if (std::exchange(refusal_, error.what()) != error.what())
        print_line({"refused", options_.folder, 0, "", error.what(), error.source().line}, options_.json);
    }
  }

  void handle(const WatchEvent& event) const {
    const std::string hash = bundle_ ? bundle_.version().sha256.substr(0, 16) : "";
    print_line({to_string(event.kind), event.path, event.version, hash, event.message, event.source.line},
               options_.json);
  }

 private:
  Runtime& runtime_;
  const WatchCommand& options_;
  Bundle bundle_;
  std::string refusal_;
};

}  // namespace

int watch_bundle(const WatchCommand& options) {
  return follow_events<BundleFollower>(options, "the bundle " + options.folder);
}

}  // namespace triage::cli
