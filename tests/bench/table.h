#pragma once
// Tables of ratios: what an operation costs against the limit that the machine sets.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "bindings/cli/bench/measure.h"

namespace triage::bench {

/// Adds a table that `bench_triage` prints; `--table=NAME` prints only those whose name begins with NAME.
struct Table {
  Table(const char* name, void (*print)());
};

struct Shape {
  int64_t rows, columns;
};

inline void print_head(const char* title, const char* limit) {
  std::printf("\n%s\n%-13s %-9s %-18s %9s %9s %7s   goal\n", title, "shape", "dtype", "operation", limit, "us",
              "ratio");
}

/// The candidates of `timing` from the second on, each against the limit `limits[i]` (an index of a candidate), of which it
/// moves `shares[i]`; both may be left out, for the first candidate and 1.
inline void print_row(Shape shape, const char* dtype, const std::vector<const char*>& names, const Timing& timing,
                      double goal, const std::vector<size_t>& limits = {}, const std::vector<double>& shares = {}) {
  for (size_t i = 1; i < names.size(); ++i) {
    const size_t of = i < limits.size() ? limits[i] : 0;
    const double share = i < shares.size() ? shares[i] : 1, limit = timing.micros[of] * share;
    const bool within = timing.micros[i] <= limit * goal + 0.5;  // a call has a floor of half a microsecond
    std::printf("%6ldx%-6ld %-9s %-18s %9.2f %9.2f %7.2f   %s\n", shape.rows, shape.columns, dtype, names[i], limit,
                timing.micros[i], timing.micros[i] / limit, within ? "within" : "over");
  }
}

}  // namespace triage::bench
