#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/calls/step_times.h"
#include "bindings/cli/commands/bench/costs.h"

/// What `triage bench` has measured, and how it tells of it.
namespace triage::cli {

/// What bounds a call: itself (guards, allocation, one call of each operator), moving the data, or computing with it.
enum class Bound : uint8_t { overhead, memory, compute };

/// One batch size: microseconds a call, medians.
struct BatchTimes {
  int64_t rows = 0;
  int64_t bytes = 0;  // of the inputs
  double read = 0;    // at::sum over as many bytes
  double copy = 0;    // of as many bytes into a warm buffer
  double script = 0, eager = 0, fused = 0;
  Bound bound = Bound::overhead;  // of `fused`
};

/// The trace of `--profile`.
struct Profile {
  std::string file, backend, by;  // `by`: who made it
  int64_t rows = 0;
  int calls = 0;
};

struct BenchReport {
  std::string policy, from;
  std::vector<std::string> inputs;  // "z float32 32x512"
  int threads = 1;
  size_t graphs = 0;
  std::vector<std::string> graph_breaks;
  std::string slow_blas;            // one line on a BLAS that slows the policy's matrix products down; empty: none does
  bool writes_data = false;         // the limit is the copy; else the read
  std::vector<BatchTimes> batches;  // by rising rows
  double call = 0;                  // microseconds of `fused` at no rows at all, as two small batches tell
  double script_ms = 0, first_ms = 0;  // the first call, of the size that `inputs` tells
  int64_t chosen_rows = 0;             // the batch as it came, or the largest; of it the following tells:
  double pays_after = 0;  // so many warm calls save what the first one takes longer than the script; 0: never
  std::vector<bench::ProfileEntry> lines;  // of the script
  std::vector<bench::ProfileEntry> parts;  // of what `fused` runs
  std::vector<fused::GraphTime> steps;     // likewise
  std::string file;                        // the script, as its lines are named, and its text, by line
  std::vector<std::string> source;
  std::optional<Profile> profile;

  double limit(const BatchTimes& batch) const { return writes_data ? batch.copy : batch.read; }
  bool pays(const BatchTimes& batch) const { return batch.fused < batch.script; }
  /// Microseconds of the call that `steps` tells of: with guards and flags, which are in no graph.
  double chosen_micros() const;
  std::vector<fused::LineTime> captured_lines() const;
  const char* limit_name() const { return writes_data ? "copy" : "read"; }
};

/// Sets what bounds each batch, and whether a capture pays.
void draw_conclusions(BenchReport& report);
void print_bench(const BenchReport& report);
nlohmann::ordered_json to_json(const BenchReport& report);

}  // namespace triage::cli
