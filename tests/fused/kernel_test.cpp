// The thread that compiles kernels, where processes fork and end.
#include <doctest/doctest.h>
#include <runtime/backends/fused/kernel_cache/checksum_trailer.h>
#include <runtime/backends/fused/kernel_cache/kernel_files.h>
#include <runtime/backends/fused/kernels/kernel.h>
#include <runtime/backends/fused/kernels/system_compiler.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace triage::fused {
namespace {

/// One that no process has compiled before.
std::string new_kernel_source() {
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

#if !defined(__SANITIZE_THREAD__)  // which ends a forked child that starts threads
TEST_CASE("a kernel that is being compiled during a fork is there for parent and child, threads or none") {
  const auto running = kernel_of(new_kernel_source()), queued = kernel_of(new_kernel_source());
  const auto both_are_there = [&] {
    running->wait();
    queued->wait();
    return running->function() && queued->function() ? 7 : 1;
  };
  CHECK(in_a_child(both_are_there) == 7);
  CHECK(both_are_there() == 7);
  const std::string later = new_kernel_source();
  CHECK(in_a_child([&] {
          const auto kernel = kernel_of(later);
          kernel->wait();
          return kernel->function() ? 7 : 1;
        }) == 7);
}
#endif

/// A folder of kernels for one test; its name is in the environment.
struct Cache {
  std::string folder = (std::filesystem::temp_directory_path() / "triage-kernel-test-XXXXXX").string();
  Cache() {
    REQUIRE(::mkdtemp(folder.data()));
    ::setenv("TRIAGE_KERNEL_CACHE", folder.c_str(), 1);
  }
  ~Cache() {
    ::unsetenv("TRIAGE_KERNEL_CACHE");
    std::filesystem::remove_all(folder);
  }
  std::string file(const std::string& source) const { return folder + "/" + hash_of(text(source)) + ".so"; }
  static std::string text(const std::string& source) {
    static const std::atomic<bool> never{false};
    return kernel_text(SystemCompiler::instance(never).identity(), source);
  }
};

TEST_CASE("a kernel that is whole on disk and cannot be loaded is made anew") {
  const Cache cache;
  const std::string source = new_kernel_source();
  KernelFiles files;
  {
    const auto build_directory = files.build_directory();
    const std::string made = *build_directory / "made.so";
    std::ofstream(made) << "no machine code";
    files.keep(Cache::text(source), made, *build_directory);
  }
  REQUIRE(files.find(Cache::text(source)));
  const auto broken = std::filesystem::file_size(cache.file(source));
  const auto kernel = kernel_of(source);
  kernel->wait();
  CHECK((kernel->function() != nullptr));
  CHECK(std::filesystem::file_size(cache.file(source)) > broken + 1000);
}

TEST_CASE("a kernel on disk under another one's name is not taken for it, and replaced") {
  const Cache cache;
  const std::string unique = new_kernel_source(), head = unique.substr(0, unique.find('\n') + 1);
  const auto source = [&](int number) {
    return head +
           "extern \"C\" __attribute__((visibility(\"default\"))) void triage_rows(int* at, long, long) { *at = " +
           std::to_string(number) + "; }\n";
  };
  const std::string one = source(1), two = source(2);
  REQUIRE(in_a_child([&] {
            const auto first = kernel_of(one), second = kernel_of(two);
            first->wait(), second->wait();
            return first->function() && second->function() ? 7 : 1;
          }) == 7);
  const auto copied = std::filesystem::copy_options::overwrite_existing;
  for (const char* part : {"", ".sum"})
    if (std::filesystem::exists(cache.file(one) + part))
      std::filesystem::copy_file(cache.file(one) + part, cache.file(two) + part, copied);
  const auto kernel = kernel_of(two);
  kernel->wait();
  REQUIRE((kernel->function() != nullptr));
  int written = 0;
  kernel->function()(reinterpret_cast<const Call*>(&written), 0, 0);
  CHECK(written == 2);
  CHECK(KernelFiles().find(Cache::text(two)));
}

TEST_CASE("what a broken file of the cache is, it is not used") {
  const Cache cache;
  KernelFiles files;
  const std::string text = "a compiler and a source";
  const auto build_directory = files.build_directory();
  const std::string made = *build_directory / "made.so";
  std::ofstream(made) << "machine code";
  files.keep(text, made, *build_directory);
  REQUIRE(files.find(text));
  const std::string file = cache.folder + "/" + hash_of(text) + ".so";
  std::string bytes;
  {
    std::ifstream stream(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(stream), {});
  }
  const auto write = [&](const std::string& changed) { std::ofstream(file, std::ios::binary) << changed; };
  for (size_t size = 0; size < bytes.size(); ++size) {
    write(bytes.substr(0, size));
    CHECK(!files.find(text));
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    write(changed);
    CHECK(!files.find(text));
  }
  write(bytes);
  CHECK(files.find(text));
  std::filesystem::permissions(file, std::filesystem::perms::group_write, std::filesystem::perm_options::add);
  CHECK(!files.find(text));
}

}  // namespace triage::fused
