#pragma once
#include <triage/graph.h>

#include <cstdint>
#include <optional>
#include <string>

namespace triage::diagnose {

/// Flags of a graph whose records have fewer slots than a sample can have entries.
struct RecordRoom {
  std::string output;
  int64_t entries = 0;  // that a sample can have at most, of those that the graph itself adds
  int64_t slots = 0;
  Source source = {};  // where the first one is added that may find no slot
};

/// The first output of flags with too little room, counted as the records accumulate entries: where they join equal
/// ones, each counts once. An entry that a branch adds counts, whatever the other one adds. Nothing where there is
/// room, where overflow is tracked, or where records keep the worst.
std::optional<RecordRoom> too_little_room(const graph::Graph& graph);

}  // namespace triage::diagnose
