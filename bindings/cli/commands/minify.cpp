// `triage minify`: a failing graph program, made as small as it gets.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/engine/program_file.h"
#include "runtime/backends/repro.h"
#include "runtime/diagnose/minify/minifier.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;
using diagnose::Minified;
using graph::GraphProgram;

/// The program in a folder that triage has written, or the file itself.
std::string program_in(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (!fs::exists(path, ignored))
      throw UsageError(fmt::format("there is no file or folder \"{}\"", messages::one_line(path)));
    return path;
  }
  for (const char* name : {"minifier_launcher.lua", "graph_runnable.lua"})
    if (const fs::path file = fs::path(path) / name; fs::exists(file, ignored)) return file.string();
  throw UsageError(fmt::format(
      "the folder \"{}\" has no minifier_launcher.lua or graph_runnable.lua; give the program itself", path));
}

/// The result as a file, run by a process that knows nothing else. Returns whether it fails there as well.
bool fails_alone(const std::string& file, double seconds) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const auto work = [&]() -> std::string {
    ::execl(program.c_str(), "triage", "exec", file.c_str(), nullptr);
    ::_exit(127);
  };
  diagnose::ChildLimits limits;
  limits.seconds = seconds;
  limits.bytes = int64_t{1} << 40;
  const diagnose::ChildEnd end = diagnose::run_in_child(work, limits);
  return end.kind == diagnose::ChildEnd::Kind::crashed && end.signal == 0 && end.status == 1;
}

/// "aten::relu (model.lua:5), aten::exp": operators of the graph, with their lines of the script.
std::string described_operators(const graph::Graph& graph) {
  constexpr size_t most = 8;
  std::string text;
  for (size_t i = 0; i < std::min(graph.nodes().size(), most); ++i) {
    const graph::Node& node = *graph.nodes()[i];
    text += (i ? ", " : "") + graph::op_name(node.op);
    if (!node.source.file.empty())
      text += fmt::format(" ({}:{})", messages::one_line(node.source.file), node.source.line);
  }
  return graph.nodes().size() > most ? fmt::format("{} and {} more", text, graph.nodes().size() - most) : text;
}

nlohmann::ordered_json to_json(const Minified& minified, const std::string& file, size_t nodes_before, bool confirmed) {
  return {{"repro", file},
          {"backend", minified.program.backend},
          {"failure", minified.failure},
          {"nodes_before", nodes_before},
          {"nodes", minified.program.graph.nodes().size()},
          {"operators", described_operators(minified.program.graph)},
          {"inputs", minified.program.inputs.size()},
          {"candidates", minified.candidates},
          {"finished", minified.finished},
          {"confirmed", confirmed}};
}

}  // namespace

int run(const MinifyCommand& options) {
  if (options.program.ends_with(".pt")) {
    ReplayCommand replay;
    replay.capsule = options.program, replay.json = options.json;
    replay.minify = replay.must_minify = true;
    return run(replay);
  }
  at::set_num_threads(1);       // each candidate runs in a fork of this process
  messages::set_trace_dir("");  // ... and would write a trace of its own
  const std::string path = program_in(options.program);
  lua::ProgramFile file = lua::read_program_file(path);
  if (options.numbers) file.program.check = graph::ProgramCheck::numbers;
  file.program.isolated = 0;
  diagnose::MinifierOptions minifier;
  minifier.child.seconds = options.time_limit;
  minifier.child.bytes = static_cast<int64_t>(options.memory_mib) << 20;
  minifier.seconds = options.seconds;
  Progress progress;
  minifier.say = [&](const std::string& text) { progress.show(text); };
  const size_t before = file.program.graph.nodes().size();
  Minified minified = diagnose::minify(file.program, file.backend, minifier);
  minified.program.comment = fmt::format("Made by triage minify of a graph of {} nodes.\n{}backend `{}` {}\n{}{}",
                                         before, repro_failure, minified.program.backend, minified.failure,
                                         repro_operators, described_operators(minified.program.graph));
  const std::string output =
      options.output.empty() ? (fs::path(path).parent_path() / "repro.lua").string() : options.output;
  graph::save(minified.program, output);
  const bool confirmed = fails_alone(output, 2 * options.time_limit + 10);
  if (options.json) {
    print_json(to_json(minified, output, before, confirmed));
  } else {
    say("{}: {} of {} nodes, after {} candidates\n", output, minified.program.graph.nodes().size(), before,
        minified.candidates);
    say("backend `{}` {}\n", minified.program.backend, minified.failure);
    say("what is left: {}\n", described_operators(minified.program.graph));
    if (!minified.finished) say("the time limit ended the search (--seconds); a longer one may find a smaller graph\n");
  }
  if (!confirmed)
    throw Error(
        fmt::format("{} does not fail with status 1 in a process of its own, as it did here; it may depend on "
                    "what the script set up before the call",
                    output));
  return 0;
}

}  // namespace triage::cli
