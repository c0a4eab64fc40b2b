#include "tests/attacks/forked.h"

#include <ATen/Parallel.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace triage::lua::testing {
namespace {

struct Shared {
  char text[1 << 20];  // a page is there once it is written to
  char stage[400];
};

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::snprintf(to, N, "%s", text.c_str());
}

double seconds_of(pid_t process) {
  clockid_t clock;
  timespec used{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

[[noreturn]] void run(Shared& shared, const std::function<std::string(const Say&)>& work) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  try {
    put(shared.text, work([&](const std::string& stage) { put(shared.stage, stage); }));
  } catch (const std::exception& error) {
    put(shared.text, std::string("threw: ") + error.what());
  }
  ::_exit(0);
}

/// What waits without end takes no processor time: ten times as long, and a minute, is enough on a busy machine.
std::string wait_for(pid_t process, int pipe, double processor_seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(10 * processor_seconds + 60);
  pollfd waited{pipe, 0, 0};
  while (::poll(&waited, 1, 50) == 0) {  // ends when the other end is closed, with the process
    const bool waits = Clock::now() > end;
    if (!waits && seconds_of(process) < processor_seconds) continue;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    if (waits) return "it waits without end";
    return "it took more than " + std::to_string(processor_seconds) + " s of processor time";
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
  return std::string("signal: ") + strsignal(WTERMSIG(status));
}

}  // namespace

Ended in_fork(const std::function<std::string(const Say&)>& work, double processor_seconds) {
  at::set_num_threads(1);  // threads of OpenMP do not live on in a child
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2];
  if (memory == MAP_FAILED || ::pipe(ends) != 0) throw std::runtime_error("nothing to share with another process");
  auto* const shared = static_cast<Shared*>(memory);  // all zero
  const pid_t process = ::fork();
  if (process == 0) {
    ::close(ends[0]);
    run(*shared, work);
  }
  ::close(ends[1]);
  Ended ended;
  ended.death = process < 0 ? "no process" : wait_for(process, ends[0], processor_seconds);
  ended.text = shared->text;
  ended.stage = shared->stage;
  ::close(ends[0]);
  ::munmap(memory, sizeof(Shared));
  return ended;
}

}  // namespace triage::lua::testing
