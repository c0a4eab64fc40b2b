// bench_triage                  prints every table
// bench_triage --table=NAME     those whose names begin so
// bench_triage --list           their names
// bench_triage --threads=N      the same on N threads (default 1)
// bench_triage --json=FILE      writes them for programs to read, too
// bench_triage --write=PAGE     and into a Markdown page, between its marks
// bench_triage --benchmark_...  runs the Google Benchmarks instead
// bench_triage --version        prints which triage and which LibTorch
#include "report.h"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/version.h>
#include <triage/version.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "bindings/cli/commands/blas.h"

namespace triage::bench {
namespace {

struct Entry {
  const char *name, *title;
  void (*measure)(const Add& add);
};

std::vector<Entry>& tables() {
  static std::vector<Entry> all;
  return all;
}

struct Options {
  std::string table, json, page;
  int threads = 1;
  bool google = false, list = false, version = false;
};

Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value_of = [&](const char* name) {
      const std::string start = std::string(name) + "=";
      return word.rfind(start, 0) == 0 ? word.substr(start.size()) : std::string();
    };
    if (word == "--version")
      options.version = true;
    else if (word == "--list")
      options.list = true;
    else if (word.rfind("--benchmark", 0) == 0)
      options.google = true;
    else if (!value_of("--table").empty())
      options.table = value_of("--table");
    else if (!value_of("--json").empty())
      options.json = value_of("--json");
    else if (!value_of("--write").empty())
      options.page = value_of("--write");
    else if (!value_of("--threads").empty())
      options.threads = std::max(1, std::atoi(value_of("--threads").c_str()));
    else {
      std::fprintf(stderr,
                   "bench_triage: %s: there are --table=NAME --list --threads=N --json=FILE --write=PAGE --version "
                   "--benchmark_...\n",
                   argv[i]);
      std::exit(2);
    }
  }
  return options;
}

int print_tables(const Options& options) {
  if (const cli::Blas blas = cli::loaded_blas(); blas.slow)
    std::fprintf(stderr,
                 "bench_triage: matrix products run on %s (%s), which is 10 to 30 times slower than OpenBLAS; %s\n",
                 blas.name.c_str(), blas.file.c_str(), cli::slow_blas_advice(blas).c_str());
  std::vector<Report> reports;
  for (const Entry& table : tables()) {
    if (std::string(table.name).rfind(options.table, 0) != 0) continue;
    Report& report = reports.emplace_back(Report{table.name, table.title, {}});
    print_head(report);
    table.measure([&](const Line& line) {
      print_line(line);
      report.lines.push_back(line);
    });
  }
  if (reports.empty()) {
    std::fprintf(stderr, "bench_triage: there is no table %s (--list)\n", options.table.c_str());
    return 2;
  }
  if (!options.json.empty()) write_json(options.json, reports);
  if (!options.page.empty()) write_page(options.page, reports);
  return 0;
}

}  // namespace

Table::Table(const char* name, const char* title, void (*measure)(const Add& add)) {
  tables().push_back({name, title, measure});
}

Line line_of(const Timing& timing, size_t i, const std::string& work, const std::string& shape,
             const std::string& limit, double goal, double floor) {
  Line line{work, shape, timing.micros[i], timing.spread[i]};
  if (!limit.empty()) {
    line.limit = limit;
    line.limit_took = timing.micros[0];
    line.ratio = timing.ratio[i];
  }
  line.goal = goal;
  line.floor = floor;
  return line;
}

std::string shape_name(long rows, long columns) { return std::to_string(rows) + "x" + std::to_string(columns); }

}  // namespace triage::bench

int main(int argc, char** argv) {
  using namespace triage::bench;
  const Options options = read_options(argc, argv);
  if (options.version) {
    std::printf("triage %s on LibTorch %s\n", TRIAGE_VERSION, TORCH_VERSION);
    return 0;
  }
  if (options.list) {
    for (const auto& table : tables()) std::printf("%-12s %s\n", table.name, table.title);
    return 0;
  }
  at::set_num_threads(options.threads);
  if (options.google) {
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  try {
    return print_tables(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_triage: %s\n", error.what());
    return 1;
  }
}
