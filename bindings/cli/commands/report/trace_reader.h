#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace triage::cli {

/// Traces come from elsewhere, and from processes that were killed: what cannot be read is counted, and the rest is
/// used.
struct SkippedLines {
  size_t damaged = 0;    // no JSON object with an event: the end of a process that was killed, other text
  size_t too_long = 0;   // beyond any line that is written
  size_t left_out = 0;   // of a kind of which there are more than a page can show
  size_t malformed = 0;  // events whose fields are not those of their kind
  size_t all() const { return damaged + too_long + left_out + malformed; }
};

/// Calls `on_event` with each event of a trace file, its header first. Throws FileError where the file cannot be read,
/// or is no trace, or has another format than this program knows.
void read_trace(const std::string& path, const std::function<void(const nlohmann::json&)>& on_event,
                SkippedLines& skipped);

/// The files that are meant by files and folders, sorted in each folder. Throws UsageError where a folder has none.
std::vector<std::string> trace_files(const std::vector<std::string>& paths);

}  // namespace triage::cli
