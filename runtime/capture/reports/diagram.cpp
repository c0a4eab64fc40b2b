#include "runtime/capture/reports/diagram.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <string>

#include "runtime/backends/run_program.h"
#include "runtime/graph/text/dot.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/repro_settings.h"
#include "runtime/messages/logs/log.h"

namespace triage::capture {
namespace {

constexpr std::chrono::seconds longest_drawing{10};

/// What went wrong; empty where nothing did.
std::string draw(const std::string& dot, const std::string& svg) {
  if (messages::minifier_program().empty()) return "this program is not `triage`, and starts no other";
  try {
    run_program({{"dot", "-Tsvg", "-o", svg, dot}, "", longest_drawing});
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

void draw_diagram(const graph::Graph& graph) {
  using messages::DebugFile;
  if (!messages::wants_debug_file(DebugFile::graph_dot)) return;
  messages::write_debug_file(DebugFile::graph_dot, graph::dot_text(graph));
  const std::string dot = messages::debug_file_path(DebugFile::graph_dot);
  const std::string svg = messages::debug_file_path(DebugFile::graph_svg);
  if (dot.empty() || svg.empty()) return;
  static std::atomic<bool> gave_up{false};  // whoever waited once for a drawing does not wait again
  if (gave_up) return;
  if (const std::string failure = draw(dot, svg); !failure.empty() && !gave_up.exchange(true))
    messages::warn(fmt::format("no graph.svg, because Graphviz did not draw it: {}; `dot -Tsvg {}` draws it by hand",
                               failure, dot));
}

}  // namespace triage::capture
