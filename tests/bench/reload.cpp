// Calls while the policy's file changes: how long the slowest of a hundred take, and that none fails.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <triage/runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace triage::bench {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int reloads = 20;
constexpr auto between = std::chrono::milliseconds(100);

/// A folder of its own, gone in the end.
struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "triage-bench-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path path;
};

/// Another program each time, so that nothing is there already.
void write_policy(const fs::path& file, const Work& work, int number) {
  const fs::path fresh = file.string() + ".new";
  std::ofstream(fresh) << "local run = (function()\n"
                       << work.source << "\nend)()\nreturn function(x) return run(x + " << number << ".25) end";
  fs::rename(fresh, file);
}

/// Microseconds of each call until `done`. A call that throws ends the bench.
std::vector<double> times_until(const Policy& policy, const at::Tensor& z, const std::atomic<bool>& done) {
  std::vector<double> times;
  while (!done) {
    const auto start = Clock::now();
    policy.run({z});
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return times;
}

double percentile(std::vector<double>& times, double part) {
  const auto at = times.begin() + static_cast<ptrdiff_t>(static_cast<double>(times.size() - 1) * part);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

/// Times while `work` runs on a thread of its own.
template <typename Work>
std::vector<double> times_beside(const Policy& policy, const at::Tensor& z, const Work& work) {
  std::atomic<bool> done{false};
  std::thread other([&] {
    work();
    done = true;
  });
  std::vector<double> times = times_until(policy, z, done);
  other.join();
  return times;
}

void measure_reloads(const Add& add) {
  const Folder folder;
  const fs::path file = folder.path / "policy.lua";
  const at::Tensor z = noise(256, 1024);
  const Work& work = works().at("detect_repair");
  for (const char* backend : {"eager", "fused"}) {
    RuntimeOptions options;
    options.backend = backend;
    Runtime runtime(options);
    int number = 0;
    write_policy(file, work, ++number);
    const Policy policy = runtime.load(file.string());
    policy.prepare({z});
    auto alone = times_beside(policy, z, [] { std::this_thread::sleep_for(reloads * between); });
    auto meanwhile = times_beside(policy, z, [&] {
      for (int i = 0; i < reloads; ++i) {
        std::this_thread::sleep_for(between);
        write_policy(file, work, ++number);
        if (policy.reload() != Reload::swapped) throw std::logic_error("a change was not taken over");
      }
    });
    for (const auto& [name, part] : {std::pair{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}}) {
      Line line{std::string(name) + " of calls while " + std::to_string(reloads) + " versions come, " + backend,
                "256x1024", percentile(meanwhile, part)};
      line.limit = "before";
      line.limit_took = percentile(alone, part);
      line.ratio = line.took / line.limit_took;
      if (part == 0.99) line.goal = 2;
      add(line);
    }
    add({std::string("the slowest, ") + backend, "256x1024", percentile(meanwhile, 1)});
  }
}

const Table reload_table("reload",
                         "Calls while new versions of the policy come, one every tenth of a second (us on the wall)",
                         measure_reloads);

}  // namespace
}  // namespace triage::bench
