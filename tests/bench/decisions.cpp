// What it costs to know what calls did: to count flags, and to log decisions. Goal on clean batches: 2% of the call
// each. Pairs are measured turn by turn; a line without a goal says what a batch with bad rows pays for its line, or
// what chance does.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/decisions.h>
#include <triage/runtime.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

/// One policy, on a Runtime of its own.
struct Case {
  Runtime runtime;
  Policy policy;

  explicit Case(bool count_flags, std::shared_ptr<DecisionLog> log = nullptr) : runtime(options(count_flags, log)) {
    policy = runtime.load_source(works().at("detect_repair").source, "repair.lua");
  }
  static RuntimeOptions options(bool count_flags, const std::shared_ptr<DecisionLog>& log) {
    RuntimeOptions options;
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

using Make = std::function<std::unique_ptr<Case>()>;

/// Where its memory lies makes a call up to 5% slower or faster, for as long as a policy lives: so several pairs, each
/// begun by the other one, and the median over them.
void measure_pairs(const Add& add, const Make& without, const Make& with, int64_t bad, const std::string& work,
                   const std::string& limit, double goal) {
  constexpr int pairs = 24;
  std::vector<double> took, limit_took, ratios;
  for (int i = 0; i < pairs; ++i) {
    const at::Tensor z = with_bad_rows(bad);
    const bool swapped = i % 2 == 1;
    const auto first = swapped ? with() : without(), second = swapped ? without() : with();
    const Timing timing = measure({first->call(z), second->call(z)}, /*rounds=*/21);
    took.push_back(timing.micros[swapped ? 0 : 1]);
    limit_took.push_back(timing.micros[swapped ? 1 : 0]);
    ratios.push_back(swapped ? 1 / timing.ratio[1] : timing.ratio[1]);
  }
  const TimingSummary summary = summarize(took);
  Line line{work, shape_name(rows, columns), summary.median, summary.spread};
  line.limit = limit;
  line.limit_took = summarize(limit_took).median;
  line.ratio = summarize(ratios).median;
  line.goal = goal;
  add(line);
}

void measure_decisions(const Add& add) {
  const auto file = std::filesystem::temp_directory_path() / "triage-bench-decisions.jsonl";
  DecisionLogOptions options;
  options.file = file;
  options.max_files = 0;
  const auto log = std::make_shared<DecisionLog>(options);
  const Make uncounted = [] { return std::make_unique<Case>(false); };
  const Make counted = [] { return std::make_unique<Case>(true); };
  const Make logged = [&] { return std::make_unique<Case>(true, log); };
  measure_pairs(add, counted, counted, 0, "the same policy twice, clean batch", "itself", 0);
  measure_pairs(add, uncounted, counted, 0, "flags counted, clean batch", "uncounted", 1.02);
  measure_pairs(add, counted, logged, 0, "with a decision log, clean batch", "no log", 1.02);
  measure_pairs(add, counted, logged, 1, "... 1 bad row", "no log", 0);
  measure_pairs(add, counted, logged, 32, "... 32 bad rows", "no log", 0);
  log->flush();
  std::filesystem::remove(file);
}

const Table decisions_table("decisions", "Counting flags and logging decisions, detect_repair on `fused` (us)",
                            measure_decisions);

}  // namespace
}  // namespace triage::bench
