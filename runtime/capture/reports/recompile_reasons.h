#pragma once
#include <string>
#include <vector>

namespace triage::capture {

/// A failed guard without the values of one call, so that failures of the same guard count together: "argument 2
/// ('rate')" of "argument 2 ('rate') was 1, is now 2".
std::string guard_of(const std::string& why);

/// What to change where that guard fails again and again.
std::string advice_for(const std::string& guard);

/// A graph that does not fit a call, and why.
struct MisfitGraph {
  std::string graph;  // "3/0"
  std::string why;
};

/// A line for each guard that failed, with the values of the newest graph and the number of older ones that it failed
/// for.
std::string reason_lines(const std::vector<MisfitGraph>& oldest_first);

}  // namespace triage::capture
