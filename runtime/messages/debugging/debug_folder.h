#pragma once
#include <triage/log.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/messages/debugging/trace_file.h"

/// The debug folder: what captures and compilations make, as files. Each process that writes one makes
/// `run_<time>-pid_<pid>` in it, and there a folder for each graph, `<function>_<n>`. What is off costs one load.
namespace triage::messages {

enum class DebugFile : uint8_t {
  debug_log,
  graph_readable,
  graph_transformed,
  joint_graph,
  ir_pre_fusion,
  ir_post_fusion,
  output_code,
  guards,
  timing,
  profile,
  step_times,
  graph_runnable,
  graph_dot,
  graph_svg
};

/// A name of a graph as that of a folder: short, and without what shells and file systems read otherwise.
std::string folder_name(const std::string& graph);

bool debug_folder_on() noexcept;
bool wants_debug_file(DebugFile file) noexcept;

/// Where the runs go; empty: nowhere. At first TRIAGE_DEBUG_DIR, or "triage_debug", where TRIAGE_COMPILE_DEBUG is set:
/// to 1, or to words such as "profile.json,-output_code.txt", which turn files on and off. Thread-safe.
std::string debug_dir();
void set_debug_dir(const std::string& path);

/// While it lives, what this thread makes and logs goes to the folder of a graph: a new one, or that of the newest
/// graph of this name; and so do events of the trace. Scopes nest. Nothing where both are off.
class DebugScope {
 public:
  enum class Of : uint8_t { new_graph, known_graph };
  explicit DebugScope(const std::string& graph, Of of = Of::new_graph);
  /// A scope that ended, for what later calls tell of its graph.
  struct EndedScope {
    int64_t graph = 0;
    std::string folder;
  };
  explicit DebugScope(const EndedScope& ended);
  static EndedScope current();
  ~DebugScope();
  DebugScope(const DebugScope&) = delete;
  DebugScope& operator=(const DebugScope&) = delete;

 private:
  TraceScope trace_;
  std::string folder_;
  const std::string* outer_ = nullptr;
  bool active_ = false;
};

/// Appends to a file of the scope; outside of one, of the newest graph of that name. Where that cannot be, or the bound
/// of the run is reached, one error is logged, and the process goes on without.
void write_debug_file(DebugFile file, std::string_view text, const std::string& graph = {}) noexcept;
/// The path of that file of the scope, for those who write it themselves; empty outside of a scope.
std::string debug_file_path(DebugFile file);
/// To debug.log of the scope.
void write_to_debug_log(const LogRecord& record) noexcept;
/// A step of a compilation in this scope: for timing.json and profile.json.
void note_debug_step(const std::string& step, std::chrono::steady_clock::time_point begin) noexcept;
/// Tells the log, once for the process, that the debug folder cannot be written; nothing more is.
void give_up_debug_folder(const std::string& reason) noexcept;

}  // namespace triage::messages
