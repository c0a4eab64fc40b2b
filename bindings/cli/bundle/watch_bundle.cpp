// `triage watch` of a bundle.
#include <fmt/format.h>
#include <poll.h>
#include <triage/bundle.h>

#include <cerrno>

#include "bindings/cli/bundle/actions.h"
#include "bindings/cli/call.h"
#include "bindings/cli/terminal.h"
#include "bindings/cli/watch_events.h"

namespace triage::cli {
namespace {

/// A Watch follows a bundle that was loaded; one that never was is tried again here.
class BundleFollower {
 public:
  BundleFollower(Runtime& runtime, const WatchCommand& options) : runtime_(runtime), options_(options) {}

  bool is_loaded() const { return static_cast<bool>(bundle_); }

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

  void print(const WatchEvent& event) const {
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
  StopSignal stop;
  EventQueue events;
  Runtime runtime(quiet_runtime(options.json));
  BundleFollower follower(runtime, options);
  follower.load();
  WatchOptions watch_options;
  watch_options.debounce = std::chrono::milliseconds(options.debounce_ms);
  watch_options.poll_interval = std::chrono::milliseconds(options.poll_ms);
  watch_options.on_event = [&](const WatchEvent& event) { events.push(event); };
  Watch watch = runtime.watch(options.folder, watch_options);
  if (!options.json) {
    say("{}\n", paint(Paint::faint, fmt::format("watching the bundle {}; press Ctrl-C to stop", options.folder)));
    std::fflush(stdout);
  }
  pollfd waiting[] = {{stop.descriptor(), POLLIN, 0}, {events.descriptor(), POLLIN, 0}};
  while (true) {
    constexpr int retry_ms = 500;
    if (::poll(waiting, 2, follower.is_loaded() ? -1 : retry_ms) < 0 && errno != EINTR)
      throw Error("cannot wait for events");
    if (waiting[0].revents) return 0;
    if (!follower.is_loaded()) follower.load();
    for (const WatchEvent& event : events.take()) follower.print(event);
  }
}

}  // namespace triage::cli
