// Processes that end without notice: before, in and after each change of what RuntimeOptions::cache_dir holds, or at
// any time.
#include "tests/policy/lives/killed.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace lives {
namespace {

int moments_left = -1;  // until this process kills itself; negative: it does not
std::string watched_folder;

void note_moment(const char* path) noexcept {
  if (moments_left < 0 || std::string_view(path).substr(0, watched_folder.size()) != watched_folder) return;
  if (moments_left-- == 0) ::raise(SIGKILL);
}

constexpr uint8_t first_timed = 192;  // of the moments that are a time

/// Tells through `arrows` each arrow that it takes.
[[noreturn]] void live_and_end(const Kind& kind, Host& host, const Steps& steps, int arrows) {
  int status = 0;
  try {
    Life life(kind, &host, [&](const Outside&) {
      if (::write(arrows, "", 1) != 1) ::_exit(1);
    });
    for (const Step& step : steps) life.take(step);
  } catch (const Life::Different& different) {
    std::fprintf(stderr, "%s\n", different.text.c_str());
    status = 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thrown: %s\n", error.what());
    status = 3;
  }
  ::_exit(status);
}

size_t count_bytes(int pipe) {
  char bytes[256];
  size_t all = 0;
  for (ssize_t count; (count = ::read(pipe, bytes, sizeof bytes)) > 0;) all += static_cast<size_t>(count);
  return all;
}

}  // namespace

Killed kill(const Kind& kind, Host& host, const std::filesystem::path& cache, const Steps& steps, uint8_t moment) {
  std::vector<Outside> outside;
  Life life(kind, nullptr, [&](const Outside& now) { outside.push_back(now); });
  for (const Step& step : steps) life.take(step);
  outside.push_back({life.model().disk, life.model().kept});

  Killed killed;
  killed.history = life.history();
  int arrows[2];
  if (::pipe2(arrows, O_CLOEXEC) != 0) return killed.failure = "there is no pipe", killed;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(arrows[0]);
    if (moment < first_timed) {
      watched_folder = cache.string() + "/";
      moments_left = moment;
    }
    live_and_end(kind, host, steps, arrows[1]);
  }
  ::close(arrows[1]);
  if (moment >= first_timed) {
    std::this_thread::sleep_for(std::chrono::microseconds(500) * (moment - first_timed));
    ::kill(child, SIGKILL);
  }
  const size_t taken = count_bytes(arrows[0]);
  ::close(arrows[0]);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return killed.failure = "there is no process", killed;
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    killed.failure = "its life is not that of the model (what differs stands above)";
  killed.before = taken > 0 ? outside[taken - 1] : Outside{outside[0].disk, {}};
  killed.after = outside[std::min(taken, outside.size() - 1)];
  return killed;
}

}  // namespace lives

/// In the place of those of the C library.
extern "C" int rename(const char* from, const char* to) noexcept {
  lives::note_moment(to);
  const auto done = static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
  lives::note_moment(to);
  return done;
}

extern "C" int unlink(const char* path) noexcept {
  lives::note_moment(path);
  const auto done = static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
  lives::note_moment(path);
  return done;
}
