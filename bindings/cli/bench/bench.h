#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace triage::cli {

/// What bounds a call: itself (guards, allocation, one call of each operator), moving the data, or computing with it.
enum class Bound : uint8_t { overhead, memory, compute };
const char* to_string(Bound bound);

/// One batch size: microseconds a call, medians.
struct BatchTimes {
  int64_t rows = 0;
  int64_t bytes = 0;  // of the inputs
  double read = 0;    // at::sum over as many bytes
  double copy = 0;    // of as many bytes into a warm buffer
  double script = 0, eager = 0, fused = 0;
  Bound bound = Bound::overhead;  // of `fused`
};

struct BenchReport {
  std::string policy, from;
  std::vector<std::string> inputs;  // "z float32 32x512"
  int threads = 1;
  size_t graphs = 0;
  std::vector<std::string> graph_breaks;
  bool writes_data = false;         // the limit is the copy; else the read
  std::vector<BatchTimes> batches;  // by rising rows
  double call = 0;                  // microseconds of `fused` at no rows at all, as two small batches tell
  double script_ms = 0, first_ms = 0, ready_ms = 0;  // the first call, of the size that `inputs` tells

  double limit(const BatchTimes& batch) const { return writes_data ? batch.copy : batch.read; }
  const char* limit_name() const { return writes_data ? "copy" : "read"; }
};

/// Sets what bounds each batch. Where the call itself is half of the time or more, it is that; else what is above it tells,
/// against the limit.
void find_bounds(BenchReport& report);

/// One sentence for each stretch of batch sizes with the same bound, with the figures that say so.
std::string closing_words(const BenchReport& report);

void print_bench(const BenchReport& report);
nlohmann::ordered_json to_json(const BenchReport& report);

}  // namespace triage::cli
