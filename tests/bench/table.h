#pragma once
// Tables of ratios: what an operation costs against the limit that the machine sets.
#include <functional>
#include <string>
#include <vector>

#include "bindings/cli/bench/measure.h"

namespace triage::bench {

/// Adds a table that `bench_triage` prints; `--table=NAME` prints only those whose name begins with NAME.
struct Table {
  Table(const char* name, void (*print)());
};

}  // namespace triage::bench
