#pragma once
// Tables of what things cost, against what the machine or a goal sets.
#include <functional>
#include <string>
#include <vector>

#include "bindings/cli/commands/bench/measure.h"

namespace triage::bench {

/// One line of a table. Where something was measured beside it (`limit`), the goal is a multiple of that, above the
/// floor that every call has; else it is an amount.
struct Line {
  std::string work, shape;      // "detect_repair", "32x512"
  double took = 0, spread = 0;  // of `unit`: the median, and half the distance between the quartiles
  std::string unit = "us";
  std::string limit = {};  // "read", "copy", ...
  double limit_took = 0, ratio = 0;
  double goal = 0, floor = 0;  // a goal of 0 is none

  bool within() const { return took <= (limit.empty() ? goal : floor + goal * limit_took); }
};

/// Candidate `i` of a timing, against candidate 0 under the name of `limit`.
Line line_of(const Timing& timing, size_t i, const std::string& work, const std::string& shape,
             const std::string& limit = "", double goal = 0, double floor = 0);

using Add = std::function<void(const Line&)>;

/// Adds a table to those that `bench_triage` prints; `--table=NAME` prints only those whose name begins with NAME.
struct Table {
  Table(const char* name, const char* title, void (*measure)(const Add& add));
};

/// "32x512"
std::string shape_name(long rows, long columns);

}  // namespace triage::bench
