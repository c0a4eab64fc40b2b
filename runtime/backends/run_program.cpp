#include "runtime/backends/run_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

extern char** environ;

namespace triage {
namespace {

constexpr size_t longest_output = 1 << 20;  // bytes; what is longer is read and dropped

/// It is left to be waited for, so that its id and its group's stay its own. A host that ignores SIGCHLD, or waits for all its
/// children itself, leaves nothing to wait for; then the file that should have been made tells how it went.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno == ECHILD
                                                                                            : info.si_pid == child;
}

/// A program that ends before it has read its input must not end this process.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    if (sigismember(&before_, SIGPIPE)) return;
    const timespec at_once{};
    while (::sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

}  // namespace

std::string run_program(const std::vector<std::string>& words, const std::string& input,
                        std::chrono::duration<double> limit, const std::atomic<bool>& give_up,
                        const std::filesystem::path& folder) {
  const NoPipeSignal no_signal;
  int to_child[2], from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
  if (::pipe2(from_child, O_CLOEXEC) != 0) {
    ::close(to_child[0]), ::close(to_child[1]);
    throw std::runtime_error("cannot make a pipe");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], 1);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], 2);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables;
  std::string temporary = "TMPDIR=" + folder.string();
  for (char** variable = environ; variable && *variable; ++variable)
    if (folder.empty() || std::string_view(*variable).rfind("TMPDIR=", 0) != 0) variables.push_back(*variable);
  if (!folder.empty()) variables.push_back(temporary.data());
  variables.push_back(nullptr);
  posix_spawnattr_t attributes;  // the thread that compiles has signals blocked, its children have not
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);  // `c++` starts others, which have to end with it
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to_child[0]), ::close(from_child[1]);
  if (failed) {
    ::close(to_child[1]), ::close(from_child[0]);
    throw CannotStart(fmt::format("cannot start `{}` ({})", words[0], ::strerror(failed)));
  }

  const auto end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::milliseconds>(limit);
  ::fcntl(to_child[1], F_SETFL, O_NONBLOCK);
  std::string output;
  size_t written = 0;
  int status = 0;
  bool late = false, ended = false, open = true;
  while (!ended) {
    if (written == input.size() && to_child[1] >= 0) ::close(std::exchange(to_child[1], -1));
    late = std::chrono::steady_clock::now() >= end || give_up;
    if (late) break;
    const int look_up_after = open ? 20 : 1;  // ms
    pollfd waiting[2] = {{open ? from_child[0] : -1, POLLIN, 0}, {to_child[1], POLLOUT, 0}};
    if (::poll(waiting, 2, look_up_after) <= 0) {  // silent, or something it has left running still holds the pipe
      ended = has_ended(child);
      continue;
    }
    if (waiting[1].revents) {
      const ssize_t count = ::write(to_child[1], input.data() + written, input.size() - written);
      written = count < 0 ? input.size() : written + static_cast<size_t>(count);  // gone: its exit status will tell
    }
    if (waiting[0].revents) {
      char buffer[4096];
      const ssize_t count = ::read(from_child[0], buffer, sizeof(buffer));
      open = count > 0;
      if (open) output.append(buffer, std::min(static_cast<size_t>(count), longest_output - output.size()));
    }
  }
  if (to_child[1] >= 0) ::close(to_child[1]);
  ::close(from_child[0]);
  ::kill(-child, SIGKILL);
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (late && give_up) throw std::runtime_error("the process ends");
  if (late) throw std::runtime_error(fmt::format("`{}` took longer than {:g} s", words[0], limit.count()));
  if (WIFSIGNALED(status))
    throw std::runtime_error(
        fmt::format("`{}` was ended by signal {} ({})", words[0], WTERMSIG(status), ::strsignal(WTERMSIG(status))));
  if (WEXITSTATUS(status) != 0)
    throw std::runtime_error(fmt::format("`{}` failed with exit status {}: {}", words[0], WEXITSTATUS(status),
                                         output.empty() ? "it said nothing" : output.substr(0, 2000)));
  return output;
}

}  // namespace triage
