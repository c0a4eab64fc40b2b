// The program on hosts that give little: it works, or says which limit it met.
#include "tests/cli/scene.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

namespace {

constexpr const char* run = "run repair.lua --input z=randn:32x8,seed=1,nan=3";

/// What a shell does before it starts the program, and how the program ends: with `status`, and a message that has
/// `says`.
struct Host {
  const char* name;
  const char* before;
  int status = 0;
  const char* says = "";
  const char* arguments = run;
  const char* after = "";
};

constexpr Host hosts[] = {
    {"no HOME", "unset HOME;"},
    {"HOME is no folder", "export HOME=/nonexistent;"},
    {"no folder for temporary files", "export TMPDIR=/nonexistent;"},
    {"a locale that is not installed", "export LC_ALL=xx_YY.UTF-8;"},
    {"the folder of the process was removed",
     "cp repair.lua /tmp/small-host-$$.lua; mkdir gone; cd gone; rmdir ../gone;", 0, "",
     "run /tmp/small-host-$$.lua --input z=randn:32x8", "; status=$?; rm /tmp/small-host-$$.lua; exit $status"},
    {"standard input is closed", "", 0, "", run, " <&-"},
    {"standard output is closed", "", 1, "cannot write to standard output: Bad file descriptor", run, " >&-"},
    {"standard output is full", "", 1, "cannot write to standard output: No space left on device", run, " >/dev/full"},
    {"standard error is closed", "", 0, "", run, " 2>&-"},
    {"eight open files", "ulimit -n 8;"},
    {"no locked memory", "ulimit -l 0;"},
    {"no pending signals", "ulimit -i 0;"},
    {"a stack without an end", "ulimit -s unlimited;"},
    {"a stack of 128 KiB", "ulimit -s 128;", 2, "KiB of stack left, and a script needs 512 KiB"},
    {"files of no size", "set -o pipefail; (ulimit -f 0;", 2,
     "cannot write \"z.pt\": writing failed: File too large; the file is unchanged",
     "run repair.lua --input z=randn:32x8 --output z=z.pt", ") 2>&1 | cat >&2"},
    {"an environment without variables", "exec env -i"},
};

/// These need the rights of root, in a mount namespace of their own, or give them up.
constexpr Host hosts_of_root[] = {
    {"a user without a name", "exec setpriv --reuid 12345 --regid 12345 --clear-groups"},
    {"one task", "ulimit -u 1; exec setpriv --reuid 12345 --regid 12345 --clear-groups", 1,
     "`ulimit -u` allows its user 1"},
    {"no /proc", "exec unshare -m sh -c 'mount -t tmpfs none /proc; exec \"$@\"' sh"},
    {"no /sys", "exec unshare -m sh -c 'mount -t tmpfs none /sys; exec \"$@\"' sh"},
    {"no /dev", "exec unshare -m sh -c 'mount -t tmpfs none /dev; exec \"$@\"' sh", 1, "/dev/urandom"},
};

void check_host(const Scene& scene, const Host& host) {
  const std::string command = std::string(host.before) + " \"$triage\" " + host.arguments + host.after;
  const Ran ran = shell(scene.folder, "export triage; bash -c " + shell_quoted(command));
  INFO(std::string(host.name) << ": " << ran.out << ran.err);
  CHECK(ran.status == host.status);
  CHECK(has(ran.err, host.says));  // "": of hosts where it works
  if (host.status != 0) CHECK(ran.err.rfind("triage run: ", 0) != std::string::npos);
}

/// The program, where the system refuses these calls with `error`.
Ran refused(const Scene& scene, const std::vector<int>& calls, int error, const std::vector<std::string>& arguments) {
  const TemporaryFolder output;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const int call : calls) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
      filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    std::vector<char*> words{const_cast<char*>("triage")};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    const auto redirect = [](const std::string& path, int to) {
      ::dup2(::open(path.c_str(), O_WRONLY | O_CREAT, 0600), to);
    };
    redirect(output / "out", 1);
    redirect(output / "err", 2);
    const std::string path = program_path();
    if (::chdir(scene.folder.path().c_str()) == 0 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
      ::execv(path.c_str(), words.data());
    ::_exit(126);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(output / "out"), read_bytes(output / "err")};
}

}  // namespace

TEST_CASE("small hosts: the program works, or says which limit it met") {
  const Scene scene;
  for (const Host& host : hosts) check_host(scene, host);
  if (shell(scene.folder, "unshare -m true && setpriv --reuid 12345 --clear-groups true").status != 0) {
    MESSAGE("not root: left out what needs it");
    return;
  }
  REQUIRE(shell(scene.folder, "chmod -R a+rX .").status == 0);
  for (const Host& host : hosts_of_root) check_host(scene, host);
}

TEST_CASE("small hosts: a filter of system calls takes one away, and the program works or names it") {
  const Scene scene;
  const std::vector<std::string> plain{"run", "repair.lua", "--input", "z=randn:32x8"};
  std::vector<std::string> writes = plain;
  writes.insert(writes.end(), {"--output", "z=z.pt"});
  for (const auto& calls : std::vector<std::vector<int>>{{SYS_inotify_init1},
                                                         {SYS_getrandom},
                                                         {SYS_statx},
                                                         {SYS_sched_getaffinity},
                                                         {SYS_memfd_create},
                                                         {SYS_prctl},
                                                         {SYS_madvise},
                                                         {SYS_membarrier}}) {
    const Ran ran = refused(scene, calls, ENOSYS, plain);
    INFO("system call " << calls[0] << ": " << ran.err);
    CHECK(ran.status == 0);
  }
  const auto fails = [&](const std::vector<int>& calls, int error, const std::vector<std::string>& arguments,
                         const char* says) {
    const Ran ran = refused(scene, calls, error, arguments);
    INFO(ran.status << ": " << ran.err);
    CHECK(ran.status != 0);
    CHECK(has(ran.err, says));
  };
  fails({SYS_clone, SYS_clone3}, EPERM, plain, "a filter of system calls (seccomp) refuses to start one");
  fails({SYS_fsync, SYS_fdatasync}, EIO, writes, "flushing to disk failed: Input/output error; the file is unchanged");
  fails({SYS_renameat, SYS_renameat2
#ifdef SYS_rename
         ,
         SYS_rename
#endif
        },
        EPERM, writes, "renaming the finished file failed: Operation not permitted; the file is unchanged");
  fails({SYS_getcwd}, ENOSYS, plain, "cannot make absolute path: Function not implemented [repair.lua]");
  fails({SYS_getdents64}, EPERM, {"test", "."}, "cannot list the folder \".\": Operation not permitted");
}
