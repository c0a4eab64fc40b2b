#include "runtime/diagnose/minify/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "runtime/files/disk.h"

namespace triage::diagnose {
namespace {

/// Bytes of address space that this process uses.
int64_t address_space() {
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * ::sysconf(_SC_PAGESIZE);
}

void limit(int resource, int64_t most) {
  rlimit now{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &now);
  const auto wanted = static_cast<rlim_t>(most);
  now.rlim_cur = now.rlim_max == RLIM_INFINITY ? wanted : std::min(now.rlim_max, wanted);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

[[noreturn]] void be_child(const std::function<std::string()>& work, const ChildLimits& limits, int to_parent) {
  ::setpgid(0, 0);  // what it starts ends with it
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_AS, address_space() + limits.bytes);
  limit(RLIMIT_CPU, static_cast<int64_t>(limits.seconds) + 2);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int stream = 0; stream < 3; ++stream) ::dup2(nothing, stream);
  const std::string output = work();
  files::write_all(to_parent, output.data(), output.size());
  ::_exit(0);  // no destructors and exit handlers of the parent
}

/// Reads until the other side is closed; false when `seconds` are over before.
bool read_all(int from, double seconds, std::string& output) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  char buffer[4096];
  while (true) {
    const double left = std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
    pollfd wait{from, POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(left * 1000) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = ::read(from, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    output.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

std::string describe(const ChildEnd& end, const ChildLimits& limits) {
  switch (end.kind) {
    case ChildEnd::Kind::timed_out:
      return fmt::format("does not end within {:g} s", limits.seconds);
    case ChildEnd::Kind::killed:
      return "is killed, as for too much memory";
    default:
      return end.signal ? fmt::format("crashes the process with signal {} ({})", end.signal, ::strsignal(end.signal))
                        : "ends the process";
  }
}

ChildEnd run_in_child(const std::function<std::string()>& work, const ChildLimits& limits) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(std::string("cannot start a child process: ") + std::strerror(errno));
  std::fflush(nullptr);  // or the child would print it as well
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    be_child(work, limits, ends[1]);
  }
  const int failed = errno;
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    throw Error(std::string("cannot start a child process: ") + std::strerror(failed));
  }
  ChildEnd end{ChildEnd::Kind::finished, 0, 0, {}};
  const bool in_time = read_all(ends[0], limits.seconds, end.output);
  ::close(ends[0]);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-child, SIGKILL);  // what it has started
  if (!in_time || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU))
    end.kind = ChildEnd::Kind::timed_out;
  else if (WIFSIGNALED(status))
    end = {WTERMSIG(status) == SIGKILL ? ChildEnd::Kind::killed : ChildEnd::Kind::crashed, WTERMSIG(status), 0, {}};
  else if (WEXITSTATUS(status) != 0)
    end = {ChildEnd::Kind::crashed, 0, WEXITSTATUS(status), {}};
  return end;
}

}  // namespace triage::diagnose
