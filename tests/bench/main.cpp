// bench_triage                  prints every table of ratios
// bench_triage --table=NAME     prints one
// bench_triage --threads=N      the same on N threads (default 1)
// bench_triage --benchmark_...  runs the Google Benchmarks instead
// bench_triage --version        prints which triage and which LibTorch
#include "table.h"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/version.h>
#include <triage/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace triage::bench {
namespace {

struct Entry {
  const char* name;
  void (*print)();
};

std::vector<Entry>& tables() {
  static std::vector<Entry> all;
  return all;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// On one thread its processor time, which other programs on the machine disturb little; on several, the time on the wall.
double now_micros() {
  if (at::get_num_threads() > 1) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double micros_of(const std::function<void()>& run, int64_t calls) {
  const double start = now_micros();
  for (int64_t i = 0; i < calls; ++i) run();
  return (now_micros() - start) / static_cast<double>(calls);
}

}  // namespace

Table::Table(const char* name, void (*print)()) { tables().push_back({name, print}); }

Timing measure(const std::vector<std::function<void()>>& candidates, int rounds) {
  std::vector<int64_t> calls;
  for (const auto& run : candidates) {
    run();
    calls.push_back(std::max<int64_t>(1, static_cast<int64_t>(1000 / std::max(micros_of(run, 3), 0.05))));
  }
  std::vector<std::vector<double>> times(candidates.size()), ratios(candidates.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      times[i].push_back(micros_of(candidates[i], calls[i]));
      ratios[i].push_back(times[i].back() / times[0].back());
    }
  }
  Timing result;
  for (size_t i = 0; i < candidates.size(); ++i) {
    result.micros.push_back(median(times[i]));
    result.ratio.push_back(median(ratios[i]));
  }
  return result;
}

}  // namespace triage::bench

int main(int argc, char** argv) {
  std::string wanted;
  int threads = 1;
  bool google = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strncmp(argv[i], "--table=", 8)) wanted = argv[i] + 8;
    if (!std::strncmp(argv[i], "--threads=", 10)) threads = std::max(1, std::atoi(argv[i] + 10));
    if (!std::strcmp(argv[i], "--version")) {
      std::printf("triage %s on LibTorch %s\n", TRIAGE_VERSION, TORCH_VERSION);
      return 0;
    }
    google = google || !std::strncmp(argv[i], "--benchmark", 11);
  }
  at::set_num_threads(threads);
  if (google) {
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  bool any = false;
  for (const auto& table : triage::bench::tables()) {
    if (std::string(table.name).rfind(wanted, 0) != 0) continue;
    table.print();
    any = true;
  }
  if (!any) std::fprintf(stderr, "bench_triage: there is no table %s\n", wanted.c_str());
  return any ? 0 : 2;
}
