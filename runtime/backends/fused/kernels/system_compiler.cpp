#include "runtime/backends/fused/kernels/system_compiler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

extern char** environ;

namespace triage::fused {
namespace {

// No -ffast-math: NaN and Inf are the subject, and the order of sums stands in the source (support/lanes.h). Loops are neither
// peeled for alignment nor unswitched: their copies are not vectorised as they are. Integers wrap, as ATen's do.
const std::vector<std::string> flags = {"-std=c++20",
                                        "-O3",
                                        "-mprefer-vector-width=512",
                                        "-fopenmp-simd",
                                        "-ffp-contract=off",
                                        "-fno-math-errno",
                                        "-fno-trapping-math",
                                        "-fPIC",
                                        "-fno-unswitch-loops",
                                        "-fwrapv",
                                        "-fvisibility=hidden",
                                        "-w",
                                        "--param=vect-max-peeling-for-alignment=0"};

/// TRIAGE_CXX_TIMEOUT seconds, a minute without it.
std::chrono::duration<double> time_limit() {
  const char* chosen = std::getenv("TRIAGE_CXX_TIMEOUT");
  if (!chosen || !*chosen) return std::chrono::minutes(1);
  double seconds = 0;  // read in the same way in every locale
  const auto [end, error] = std::from_chars(chosen, chosen + std::strlen(chosen), seconds);
  if (error != std::errc() || *end != '\0' || !(seconds > 0))
    throw std::runtime_error(
        fmt::format("TRIAGE_CXX_TIMEOUT is \"{}\"; it is a number of seconds above 0, 60 where it is not set", chosen));
  return std::chrono::duration<double>(std::min(seconds, 86400.0));
}

constexpr size_t longest_output = 1 << 20;  // bytes; what is longer is read and dropped

/// It is left to be waited for, so that its id and its group's stay its own. A host that ignores SIGCHLD, or waits for all its
/// children itself, leaves nothing to wait for; then the file that should have been made tells how it went.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ? errno == ECHILD
                                                                                            : info.si_pid == child;
}

/// A compiler that ends before it has read its input must not end this process.
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

/// Runs a program with `input` on its standard input; its output and errors together. Throws where it cannot be started, or
/// fails, or takes too long, or `give_up` becomes true. Whatever it has started in its process group ends with it.
/// Its temporary files go to `folder`, where one is given: it leaves them behind when it is ended.
std::string run(const std::vector<std::string>& words, const std::string& input, const std::atomic<bool>& give_up,
                const std::filesystem::path& folder = {}) {
  const auto limit = time_limit();
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
    throw std::runtime_error(fmt::format("cannot start `{}` ({}); TRIAGE_CXX names a program, without arguments",
                                         words[0], ::strerror(failed)));
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

/// The one of the build directory that it is made in.
std::filesystem::path folder_of(const std::string& output) { return std::filesystem::path(output).parent_path(); }

/// What -march=native looks at.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();)
    if (line.rfind("model name", 0) == 0 || line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)
      text += line + "\n";
  return text;
}

}  // namespace

const SystemCompiler& SystemCompiler::instance(const std::atomic<bool>& give_up) {
  static const SystemCompiler* const compiler =
      new SystemCompiler(give_up);  // a thread may be at work while statics are destroyed
  return *compiler;
}

SystemCompiler::SystemCompiler(const std::atomic<bool>& give_up) {
  const char* chosen = std::getenv("TRIAGE_CXX");
  program_ = chosen && *chosen ? chosen : "c++";
  identity_ = run({program_, "--version"}, "", give_up) + processor();
  for (const auto& flag : flags) identity_ += flag + "\n";
}

std::vector<std::string> SystemCompiler::words(const std::string& cpu) const {
  std::vector<std::string> words{program_};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back("-march=" + cpu);
  return words;
}

void SystemCompiler::compile(const std::string& source, const std::string& output,
                             const std::vector<std::string>& more_flags, const std::atomic<bool>& give_up) const {
  std::vector<std::string> command = words("native");
  command.insert(command.end(), more_flags.begin(), more_flags.end());
  command.insert(command.end(), {"-shared", "-x", "c++", "-", "-o", output});
  run(command, source, give_up, folder_of(output));
}

void SystemCompiler::compile_object(const std::string& source, const std::string& output, const std::string& cpu,
                                    const std::vector<std::string>& more_flags,
                                    const std::atomic<bool>& give_up) const {
  std::vector<std::string> command = words(cpu);
  command.insert(command.end(), more_flags.begin(), more_flags.end());
  command.insert(command.end(), {"-c", "-x", "c++", "-", "-o", output});
  run(command, source, give_up, folder_of(output));
}

void SystemCompiler::link(const std::vector<std::string>& objects, const std::string& output,
                          const std::atomic<bool>& give_up) const {
  std::vector<std::string> command{program_, "-shared", "-o", output};
  command.insert(command.end(), objects.begin(), objects.end());
  run(command, "", give_up, folder_of(output));
}

std::string SystemCompiler::macros(const std::string& cpu) const {
  std::vector<std::string> command = words(cpu);
  command.insert(command.end(), {"-dM", "-E", "-x", "c++", "-"});
  return run(command, "", false);
}

}  // namespace triage::fused
