#pragma once
// Tables of ratios: what an operation costs against the limit that the machine sets, both measured in the same run, turn by
// turn, as medians. Wall times of two separate runs say little on a shared machine; their ratio in one run says much.
#include <functional>
#include <string>
#include <vector>

namespace triage::bench {

/// Median microseconds a call of each candidate. In every round each candidate runs for about a millisecond.
/// `ratio[i]` is the median over the rounds of candidate i against candidate 0 of the same round.
struct Timing {
  std::vector<double> micros;
  std::vector<double> ratio;
};
Timing measure(const std::vector<std::function<void()>>& candidates, int rounds = 41);

/// Adds a table that `bench_triage` prints; `--table=NAME` prints only those whose name begins with NAME.
struct Table {
  Table(const char* name, void (*print)());
};

}  // namespace triage::bench
