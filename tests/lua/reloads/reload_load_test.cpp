// Reloads under load: four threads call while good, broken, slow and failing versions come. TRIAGE_RELOADS sets how
// many, for a long run by hand.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include "tests/logs.h"

namespace {

using triage::Reload;

/// Version `i` adds it to every element, and gives it as a second output, so that an answer shows which version it is
/// of.
std::string version(int i, const std::string& first, const std::string& then = "") {
  const std::string number = std::to_string(i);
  return "local calls = 0\nreturn policy {outputs = {'y', 'v'}, run = function(z)\n" + first + "\nlocal y, v = z + " +
         number + ", torch.zeros_like(z) + " + number + "\n" + then + "\nreturn y, v end}";
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::string of_kind(int i) {
  switch (i % 10) {
    case 0:
      return version(i, "error('broken')");
    case 1:
      return version(i, "local s = z:sum():item()");
    case 2:
      return version(i, "calls = calls + 1 if calls > 5 then error('broken') end");
    case 3:
      return version(i, "local s = z:max():item() while s > 1.5 do end");
    case 4:
      return version(i, "", "if z:max():item() > 1.5 then y = y:to(torch.float64) end");
    case 5:
      return version(i, "calls = calls + 1");
    case 6:
      return version(i, "", "y = y:sum(-1)");
    case 7:
      return version(i, "if z:max():item() > 1.5 then error({}) end");
    case 8:
      return "return (";
    default:
      return version(i, "");
  }
}

}  // namespace

TEST_CASE("reloads under load: good, broken, slow and failing versions, and no failed call (threads)") {
  const char* const asked = std::getenv("TRIAGE_RELOADS");
  const int reloads = asked ? std::atoi(asked) : 200;
  triage::RuntimeOptions options;
  options.limits.seconds = 0.5;  // of wall time: a good version gets some of it on a busy machine, too
  options.trial_calls = 40;
  options.trial_seconds = 0;
  options.log = triage::test::no_log();
  triage::Runtime runtime(options);
  const triage::Policy policy = runtime.load_source(version(0, ""), "load.lua");
  std::atomic<bool> stop{false};
  std::atomic<int64_t> calls{0};
  std::atomic<int> failed{0}, torn{0};
  std::mutex mutex;
  std::string first;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const at::Tensor z = at::full({3 + t % 2, 4}, 2.0f);
      triage::RunOptions timed;
      while (!stop) {
        try {
          if (t == 3) timed.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
          const auto [y, v] = policy.run<2>({z}, timed);
          if (y.scalar_type() != at::kFloat || !at::equal(y, z + v)) ++torn;
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          if (first.empty()) first = error.what();
          ++failed;
        }
        ++calls;
      }
    });
  int live = 0, refused = 0;
  int64_t memory = 0;
  for (int i = 1; i <= reloads; ++i) {
    const Reload outcome = policy.replace(of_kind(i));
    live += outcome == Reload::swapped;
    refused += outcome == Reload::refused;
    for (const int64_t seen = calls; calls < seen + 30 + i % 40;) std::this_thread::yield();
    if (i % 7 == 0) policy.rollback(policy.versions()[static_cast<size_t>(i) % policy.versions().size()].number);
    if (asked && i % std::max(1, reloads / 10) == 0)
      MESSAGE(i << " reloads, " << calls.load() << " calls, " << failed.load() << " failed, " << resident_bytes() / 1024
                << " KiB");
    if (i == reloads / 2) memory = resident_bytes();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK_MESSAGE(failed == 0, first);
  CHECK(torn == 0);
  CHECK(live > 0);
  CHECK(refused > 0);
  if (reloads >= 1000) CHECK(resident_bytes() - memory < (32 << 20));
}
