#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "bindings/cli/call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// Events from the watching thread to the main one, which waits on `descriptor`.
class EventQueue {
 public:
  EventQueue() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~EventQueue() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }

  void push(const WatchEvent& event) {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
    ::eventfd_write(descriptor_, 1);
  }
  std::deque<WatchEvent> take() {
    eventfd_t ignored;
    ::eventfd_read(descriptor_, &ignored);
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  int descriptor_;
  std::mutex mutex_;
  std::deque<WatchEvent> events_;
};

/// Ctrl-C as something to wait for. Must be made before any thread is: threads inherit which signals are blocked.
class StopSignal {
 public:
  StopSignal() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    descriptor_ = ::signalfd(-1, &signals, SFD_CLOEXEC);
  }
  ~StopSignal() { ::close(descriptor_); }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// One line: what happened to which file.
struct Line {
  std::string event;
  std::string path;
  int version = 0;
  std::string hash, message;
  int line = 0;
};

void print_line(const Line& line, bool json) {
  if (json) {
    Json object = {{"event", line.event}, {"path", line.path}};
    if (line.version > 0) object["version"] = line.version;
    if (!line.hash.empty()) object["hash"] = line.hash;
    if (!line.message.empty()) object["message"] = line.message;
    if (line.line > 0) object["line"] = line.line;
    print_json(object, /*on_one_line=*/true);
    return;
  }
  Paint colour = line.event == "refused" || line.event == "reverted" || line.event == "lost" ? Paint::error
                 : line.event == "deleted"                                                   ? Paint::warning
                                                                                             : Paint::good;
  std::string version = line.version > 0 ? fmt::format("  version {}", line.version) : "";
  std::string hash = line.hash.empty() ? "" : "  " + line.hash;
  std::string message = line.message.empty() ? "" : "  " + line.message;
  if (line.event == "loaded") message = paint(Paint::faint, "  (its tests were not run)");
  say("{:%H:%M:%S}  {}  {}{}{}{}\n", fmt::localtime(std::time(nullptr)),
      paint(colour, fmt::format("{:<8}", line.event)), line.path, version, paint(Paint::faint, hash), message);
  std::fflush(stdout);
}

/// Why it cannot be read, where that is so: to tell whether anything has changed.
std::string read_bytes(const std::string& path) {
  try {
    return files::read_text(path);
  } catch (const FileError& error) {
    return error.what();
  }
}

/// The policies of a folder, and what is printed about them. A Watch follows files that a policy was loaded from; those
/// that have never loaded are looked at here.
class Follower {
 public:
  Follower(Runtime& runtime, bool json) : runtime_(runtime), json_(json) {}

  void load(const std::string& path) {
    std::string source = read_bytes(path);
    try {
      Policy policy = runtime_.load(path);
      print_line({"loaded", path, policy.version().number, policy.version().hash, "", 0}, json_);
      policies_[path] = policy;
      never_loaded_.erase(path);
    } catch (const Error& error) {
      print_line({"refused", path, 0, "", error.what(), error.source().line}, json_);
      never_loaded_[path] = source;
    }
  }

  void handle(const WatchEvent& event) {
    if (event.kind == WatchEvent::Kind::added) return load(event.path);
    Line line{to_string(event.kind), event.path, event.version, "", "", event.source.line};
    if (event.kind == WatchEvent::Kind::refused || event.kind == WatchEvent::Kind::reverted ||
        event.kind == WatchEvent::Kind::lost)
      line.message = event.message;
    auto policy = policies_.find(event.path);
    if (policy != policies_.end()) line.hash = policy->second.version().hash;
    print_line(line, json_);
  }

  bool has_never_loaded() const { return !never_loaded_.empty(); }

  /// Tries again those that have changed since they were refused.
  void retry() {
    std::vector<std::string> changed, gone;
    for (const auto& [path, source] : never_loaded_) {
      std::error_code ignored;
      if (!fs::exists(path, ignored)) {
        gone.push_back(path);
      } else if (read_bytes(path) != source) {
        changed.push_back(path);
      }
    }
    for (const std::string& path : gone) {
      never_loaded_.erase(path);
      print_line({"deleted", path, 0, "", "", 0}, json_);
    }
    for (const std::string& path : changed) load(path);
  }

 private:
  Runtime& runtime_;
  bool json_;
  std::map<std::string, Policy> policies_;
  std::map<std::string, std::string> never_loaded_;  // with the source that was refused
};

std::vector<std::string> lua_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".lua" && entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

int run(const WatchCommand& options) {
  if (!fs::is_directory(options.folder))
    throw FileError(fmt::format("cannot watch \"{}\": there is no such folder", options.folder));
  StopSignal stop;
  EventQueue events;
  Runtime runtime(quiet_runtime(options.json));
  Follower follower(runtime, options.json);
  for (const std::string& path : lua_files(options.folder)) follower.load(path);
  WatchOptions watch_options;
  watch_options.debounce = std::chrono::milliseconds(options.debounce_ms);
  watch_options.poll_interval = std::chrono::milliseconds(options.poll_ms);
  watch_options.on_event = [&](const WatchEvent& event) { events.push(event); };
  Watch watch = runtime.watch(options.folder, watch_options);
  if (!options.json) {
    say("{}\n", paint(Paint::faint, fmt::format("watching {}; press Ctrl-C to stop", options.folder)));
    std::fflush(stdout);
  }
  pollfd waiting[] = {{stop.descriptor(), POLLIN, 0}, {events.descriptor(), POLLIN, 0}};
  while (true) {
    constexpr int retry_ms = 200;
    if (::poll(waiting, 2, follower.has_never_loaded() ? retry_ms : -1) < 0 && errno != EINTR) {
      throw Error("cannot wait for events");
    }
    if (waiting[0].revents) return 0;
    follower.retry();
    for (const WatchEvent& event : events.take()) follower.handle(event);
  }
}

}  // namespace triage::cli
