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
#include <stdexcept>
#include <string_view>
#include <utility>

extern char** environ;

namespace triage {
namespace {

constexpr size_t longest_output = 1 << 20;  // bytes; what is longer is read and dropped

/// It is left to be waited for, so that its id and its group's stay its own. A host that ignores SIGCHLD, or waits for
/// all its children itself, leaves nothing to wait for; then the file that should have been made tells how it went.
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

struct Child {
  pid_t id = -1;
  int input = -1, output = -1;  // our ends of its pipes
};

std::vector<char*> environment_of(const ProgramCall& program) {
  std::vector<char*> variables;
  for (char** variable = environ; variable && *variable; ++variable)
    if (!program.gets || program.gets(*variable)) variables.push_back(*variable);
  variables.push_back(nullptr);
  return variables;
}

Child start(const ProgramCall& program) {
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
  for (const auto& word : program.words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::vector<char*> variables = environment_of(program);
  posix_spawnattr_t attributes;  // the thread that compiles has signals blocked, its children have not
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);  // what it starts has to end with it
  const int group = program.own_group ? POSIX_SPAWN_SETPGROUP : 0;
  posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | group));
  Child child{-1, to_child[1], from_child[0]};
  const int failed = ::posix_spawnp(&child.id, argv[0], &actions, &attributes, argv.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to_child[0]), ::close(from_child[1]);
  if (!failed) return child;
  ::close(child.input), ::close(child.output);
  throw std::runtime_error(fmt::format("cannot start `{}` ({})", program.words[0], ::strerror(failed)));
}

/// Writes its input and reads its output until it ends; false where it does not in time.
bool talk(Child& child, const ProgramCall& program, std::string& output) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::milliseconds>(program.limit);
  ::fcntl(child.input, F_SETFL, O_NONBLOCK);
  const std::string& input = program.input;
  size_t written = 0;
  bool ended = false, open = true;
  while (!ended) {
    if (written == input.size() && child.input >= 0) ::close(std::exchange(child.input, -1));
    if (std::chrono::steady_clock::now() >= end) return false;
    const int look_up_after = open ? 20 : 1;  // ms
    pollfd waiting[2] = {{open ? child.output : -1, POLLIN, 0}, {child.input, POLLOUT, 0}};
    if (::poll(waiting, 2, look_up_after) <= 0) {  // silent, or something it has left running still holds the pipe
      ended = has_ended(child.id);
      continue;
    }
    if (waiting[1].revents) {
      const ssize_t count = ::write(child.input, input.data() + written, input.size() - written);
      written = count < 0 ? input.size() : written + static_cast<size_t>(count);  // gone: its exit status will tell
    }
    if (waiting[0].revents) {
      char buffer[4096];
      const ssize_t count = ::read(child.output, buffer, sizeof(buffer));
      open = count > 0;
      if (open) output.append(buffer, std::min(static_cast<size_t>(count), longest_output - output.size()));
    }
  }
  return true;
}

}  // namespace

ProgramEnd run_to_end(const ProgramCall& program) {
  const NoPipeSignal no_signal;
  Child child = start(program);
  ProgramEnd end{0, {}};
  const bool late = !talk(child, program, end.output);
  if (child.input >= 0) ::close(child.input);
  ::close(child.output);
  ::kill(program.own_group ? -child.id : child.id, SIGKILL);
  int status = 0;
  while (::waitpid(child.id, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string& name = program.words[0];
  if (late) throw std::runtime_error(fmt::format("`{}` took longer than {:g} s", name, program.limit.count()));
  if (WIFSIGNALED(status))
    throw std::runtime_error(
        fmt::format("`{}` was ended by signal {} ({})", name, WTERMSIG(status), ::strsignal(WTERMSIG(status))));
  end.status = WEXITSTATUS(status);
  return end;
}

std::string run_program(const ProgramCall& program) {
  ProgramEnd end = run_to_end(program);
  if (end.status != 0)
    throw std::runtime_error(fmt::format("`{}` failed with exit status {}: {}", program.words[0], end.status,
                                         end.output.empty() ? "it said nothing" : end.output.substr(0, 2000)));
  return std::move(end.output);
}

}  // namespace triage
