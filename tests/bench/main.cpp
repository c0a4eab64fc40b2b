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
#include <cstdio>
#include <cstring>

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

}  // namespace

Table::Table(const char* name, void (*print)()) { tables().push_back({name, print}); }

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
