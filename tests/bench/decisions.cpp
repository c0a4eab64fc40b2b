// What it costs to know what calls did: to count flags, and to log decisions. Goal on clean batches: 2% of the call each. Pairs are
// measured turn by turn; a line without a goal says what a batch with bad rows pays for its line.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/decisions.h>
#include <triage/runtime.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>

namespace triage::bench {
namespace {

constexpr int64_t rows = 256, columns = 1024;

/// One policy, on a Runtime of its own.
struct Case {
  Runtime runtime;
  Policy policy;

  explicit Case(bool count_flags, std::shared_ptr<DecisionLog> log = nullptr) : runtime(options(count_flags, log)) {
    policy = runtime.load_source(works().at("detect_repair").source, "repair.lua");
  }
  static RuntimeOptions options(bool count_flags, const std::shared_ptr<DecisionLog>& log) {
    RuntimeOptions options;
    options.compiler = CompilerMode::background;
    options.count_flags = count_flags;
    options.decisions = log;
    return options;
  }
  auto call(const at::Tensor& z) {
    policy.prepare({z});
    return [this, z] { benchmark::DoNotOptimize(policy.run({z}).data()); };
  }
};

at::Tensor with_bad_rows(int64_t bad) {
  at::Tensor z = at::randn({rows, columns});
  for (int64_t i = 0; i < bad; ++i) z[i * (rows / bad)][7] = std::nanf("");
  return z;
}

void measure_pair(const Add& add, Case& without, Case& with, int64_t bad, const std::string& work,
                  const std::string& limit, double goal) {
  const at::Tensor z = with_bad_rows(bad);
  const Timing timing = measure({without.call(z), with.call(z)}, /*rounds=*/201);
  add(line_of(timing, 1, work, shape_name(rows, columns), limit, goal));
}

void measure_decisions(const Add& add) {
  const auto file = std::filesystem::temp_directory_path() / "triage-bench-decisions.jsonl";
  DecisionLogOptions options;
  options.file = file;
  options.max_files = 0;
  const auto log = std::make_shared<DecisionLog>(options);
  Case uncounted(false), counted(true), logged(true, log);
  measure_pair(add, uncounted, counted, 0, "flags counted, clean batch", "uncounted", 1.02);
  measure_pair(add, counted, logged, 0, "with a decision log, clean batch", "no log", 1.02);
  measure_pair(add, counted, logged, 1, "... 1 bad row", "no log", 0);
  measure_pair(add, counted, logged, 32, "... 32 bad rows", "no log", 0);
  log->flush();
  std::filesystem::remove(file);
}

const Table table("decisions", "Counting flags and logging decisions, detect_repair on `fused` (us)",
                  measure_decisions);

}  // namespace
}  // namespace triage::bench
