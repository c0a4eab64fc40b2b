#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "runtime/backends/fused/parts/part_times.h"

/// Where the time of captured code goes: by line of the script, by part, and by step of a tape.
namespace triage::cli {

/// Of the graphs that `call` runs, for one call. It is called a few times at least, then until `seconds` are over.
std::vector<fused::GraphTime> time_steps(const std::function<void()>& call, double seconds);
double micros_of(const std::vector<fused::GraphTime>& graphs);
/// `lines`: of all graphs; shares are of `whole` microseconds.
nlohmann::ordered_json to_json(const std::vector<fused::GraphTime>& graphs, const std::vector<fused::LineTime>& lines,
                               double whole);

}  // namespace triage::cli
