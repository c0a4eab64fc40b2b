// The thread that compiles kernels, where processes fork and end.
#include <doctest/doctest.h>
#include <runtime/backends/fused/kernels/kernel.h>
#include <runtime/backends/fused/kernels/kernel_files.h>
#include <runtime/backends/fused/kernels/system_compiler.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace triage::fused {
namespace {

/// One that no process has compiled before.
std::string new_source() {
  static int count = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return "// " + std::to_string(::getpid()) + " " + std::to_string(now) + " " + std::to_string(count++) +
         "\nextern \"C\" __attribute__((visibility(\"default\"))) void triage_rows() {}\n";
}

/// Runs `work` in a forked child; its result, or -1 where it did not come back.
template <typename Work>
int in_a_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends the child where it waits for ever
    ::_exit(work());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a kernel that is being compiled during a fork is there for parent and child, threads or none") {
  const auto running = kernel_of(new_source()), queued = kernel_of(new_source());
  const auto both_are_there = [&] {
    running->wait();
    queued->wait();
    return running->function() && queued->function() ? 7 : 1;
  };
  CHECK(in_a_child(both_are_there) == 7);
  CHECK(both_are_there() == 7);
  const std::string later = new_source();
  CHECK(in_a_child([&] {
          const auto kernel = kernel_of(later);
          kernel->wait();
          return kernel->function() ? 7 : 1;
        }) == 7);
}

TEST_CASE("a kernel that is whole on disk and cannot be loaded is made anew") {
  std::string folder = (std::filesystem::temp_directory_path() / "triage-kernel-test-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()));
  ::setenv("TRIAGE_KERNEL_CACHE", folder.c_str(), 1);
  const std::string source = new_source();
  const std::atomic<bool> never{false};
  const std::string key = hash_of(SystemCompiler::instance(never).identity() + source);
  const KernelFiles files;
  {
    KernelFile made = files.scratch(key);
    std::ofstream(made.path()) << "no machine code";
    files.keep(key, std::move(made));
  }
  REQUIRE(files.find(key));
  const auto kernel = kernel_of(source);
  kernel->wait();
  CHECK((kernel->function() != nullptr));
  CHECK(std::filesystem::file_size(folder + "/" + key + ".so") > 1000);
  ::unsetenv("TRIAGE_KERNEL_CACHE");
  std::filesystem::remove_all(folder);
}

}  // namespace triage::fused
