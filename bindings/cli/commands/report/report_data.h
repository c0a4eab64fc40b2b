#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/cli/commands/report/flags_over_time.h"
#include "bindings/cli/commands/report/trace_reader.h"

namespace triage::cli {

/// Gathers the events of traces into what the page shows, in bounded memory: whatever there is more of is counted in
/// `skipped`. Events may lack fields, or have others than expected: a missing text is empty, a missing number 0.
class ReportData {
 public:
  using Json = nlohmann::ordered_json;
  using Event = nlohmann::json;

  explicit ReportData(SkippedLines& skipped) : skipped_(skipped) {}

  /// The header of a file begins a process, of which all events until the next one are.
  void add(const Event& event);
  /// What page.js reads (the data of the page), and what the command prints.
  Json page() const;
  Json summary() const;

 private:
  struct ReportedFunction {
    std::string name, file, backend;
    int64_t line = 0;
    int source = -1;
    Json breaks = Json::array(), recompiles = Json::array(), failures = Json::array();
  };
  struct ReportGraph {
    int function = -1;
    std::string name;
    bool segment = false;
    double seconds = 0;
    Json stages = Json::array(), guards = Json::array(), code = Json::array(), times = Json::array(),
         kernels = Json::array();
  };

  void begin_process(const Event& event);
  void add_source(const Event& event);
  void add_capture(const Event& event);
  void add_graph(const Event& event);
  void add_groups(const Event& event);
  void skip_without_graph();
  void add_guards(const Event& event);
  void add_code(const Event& event);
  void add_times(const Event& event);
  void add_kernel(const Event& event);
  void add_break(const Event& event);
  void add_recompile(const Event& event);
  void add_failure(const Event& event);
  void add_span(const Event& event, const std::string& label, const char* kind);
  void add_policy(const Event& event);

  double time_of(const Event& event) const;
  int source_of(const std::string& file) const;
  /// The place that a text names at its end, "(read at f.lua:3)": the source, -1 where there is none, and the line.
  std::pair<int, int64_t> place_in(std::string_view text) const;
  int find_function(const Event& event);
  ReportGraph* graph_of(const Event& event);

  SkippedLines& skipped_;
  Json processes_ = Json::array();
  size_t process_ = 0;        // that events are of; also one that has no room in `processes_`
  double process_begin_ = 0;  // seconds since 1970
  double first_ = 0, last_ = 0;
  std::vector<std::pair<std::string, std::string>> sources_;  // file and text
  std::map<std::string, int> current_sources_;                // by file, of this process
  std::vector<ReportedFunction> functions_;
  std::map<std::string, int> function_numbers_;
  std::vector<ReportGraph> graphs_;
  std::map<std::pair<size_t, int64_t>, size_t> graph_numbers_;  // by process and number
  Json spans_ = Json::array();
  std::map<std::string, Json> policies_;  // what happened to each, by name
  std::map<std::string, FlagsOverTime> flags_;
};

}  // namespace triage::cli
