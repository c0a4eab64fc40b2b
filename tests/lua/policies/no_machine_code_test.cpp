// Fused policies make no executable memory, no file in memory and no other process: each of the library runs under a
// filter of system calls that kills the process which tries.
#include "bindings/lua/engine/policies/lua_script.h"
#include "tests/cli/folder.h"
#include "tests/logs.h"
#include "tests/policy_library.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <triage/triage.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

namespace {

using namespace triage::test;

#if defined(__x86_64__)
constexpr uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t architecture = 0;
#endif

/// Kills the process for a call that starts a program, makes a file in memory, or makes memory executable.
std::vector<sock_filter> filter() {
  const auto load = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  const auto skip_unless = [](uint16_t test, uint32_t value, uint8_t count) {
    return sock_filter{static_cast<uint16_t>(BPF_JMP | test | BPF_K), 0, count, value};
  };
  const sock_filter kill{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS}, number = load(offsetof(seccomp_data, nr));
  constexpr size_t protection = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);  // its lower half
  std::vector<sock_filter> list = {load(offsetof(seccomp_data, arch)), skip_unless(BPF_JEQ, architecture, 1),
                                   sock_filter{BPF_JMP | BPF_JA, 0, 0, 1}, kill, number};
  for (const uint32_t call : {SYS_execve, SYS_execveat, SYS_memfd_create})
    list.insert(list.end(), {skip_unless(BPF_JEQ, call, 1), kill});
  for (const uint32_t call : {SYS_mmap, SYS_mprotect, SYS_pkey_mprotect})
    list.insert(list.end(),
                {skip_unless(BPF_JEQ, call, 4), load(protection), skip_unless(BPF_JSET, PROT_EXEC, 1), kill, number});
  list.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  return list;
}

bool install_filter() {
  std::vector<sock_filter> list = filter();
  const sock_fprog program{static_cast<unsigned short>(list.size()), list.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr int no_filter = 77;

/// How a child ends that does `work`, which returns its exit status, under the filter.
int status_of(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    at::set_num_threads(1);  // a fork has none of OpenMP's threads
    ::_exit(install_filter() ? work() : no_filter);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// Whether the system has such filters, for processes of this user.
bool has_filters() {
  if (architecture == 0) {
    MESSAGE("left out: the numbers of system calls are known for x86_64 and aarch64");
    return false;
  }
  const int status = status_of([] { return 0; });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  MESSAGE("left out: this process may not filter its system calls");
  return false;
}

/// 0: every policy of the library has run on the inputs of its tests, in loops.
int run_library() {
  triage::RuntimeOptions options;
  options.log = no_log();
  size_t tapes = 0;
  for (const std::filesystem::path& path : library()) {
    triage::lua::LuaScript script(read_bytes(path), script_options(path));
    const triage::Policy policy = triage::Runtime(options).load(path);
    for (size_t test = 0; test < script.test_count(); ++test) {
      const std::vector<at::Tensor> params = script.test_params(test), inputs = script.test_arguments(test);
      for (size_t i = 0; i < params.size(); ++i) policy.set_param(script.signature().params[i].name, params[i].item());
      policy.reset_state();
      for (int call = 0; call < 3; ++call) policy.run(inputs);
    }
    tapes += policy.cache().loops.tapes;
  }
  return tapes > 20 ? 0 : 1;
}

}  // namespace

TEST_CASE("every policy of the library runs where executable memory and other processes are forbidden") {
  if (!has_filters()) return;
  const int status = status_of([] {
    try {
      return run_library();
    } catch (const std::exception&) {
      return 2;
    }
  });
  CHECK_FALSE(WIFSIGNALED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the filter kills: a program, a file in memory, memory that is or becomes executable") {
  if (!has_filters()) return;
  const std::function<int()> forbidden[] = {
      [] { return ::execl("/bin/true", "true", nullptr); },
      [] { return static_cast<int>(::syscall(SYS_execveat, -1, "/bin/true", nullptr, nullptr, 0)); },
      [] { return static_cast<int>(::syscall(SYS_memfd_create, "a", 0)); },
      [] {
        return ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? 1 : 0;
      },
      [] {
        void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return ::mprotect(memory, 4096, PROT_READ | PROT_EXEC);
      }};
  for (const auto& call : forbidden) {
    const int status = status_of(call);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSYS);
  }
}
