#include "runtime/backends/repro.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <triage/error.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/backends/graph_program.h"
#include "runtime/backends/run_program.h"
#include "runtime/backends/shipped.h"
#include "runtime/files/disk.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/repro_settings.h"
#include "runtime/messages/logs/log.h"

namespace triage {
namespace {

using messages::ReproAfter;
using messages::ReproSettings;

constexpr int most_programs = 100;  // of a process
constexpr int numbers_level = 4, every_graph_level = 3, minify_level = 2;

void warn(const std::string& text) { messages::LogTo::current().write(LogLevel::warn, text); }

/// Lua that registers a backend which other processes have not: a file of the user, as it is. Its locals stay inside. A
/// function that it returns is the backend.
std::string registration_of(const std::string& backend, const ReproSettings& settings) {
  if (is_shipped_backend(backend)) return "";
  const std::string file = settings.backends.empty() ? messages::backend_file(backend) : settings.backends;
  if (file.empty()) return "";
  return fmt::format(
      "local backend = (function(...)\n{}\nend)()\n"
      "if type(backend) == \"function\" then triage.register_backend({}, backend) end\n",
      files::read_text(file), graph::string_literal(backend));
}

struct Written {
  std::filesystem::path folder;
  bool runs_elsewhere;  // its backend is one that every process has, or it registers it
};

/// The folder of the program; nothing where there were enough, or it cannot be written, which is logged.
std::optional<Written> write_program(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                     const std::string& backend, const ReproSettings& settings,
                                     const std::string& failure) {
  static std::atomic<int> written{0};
  const int number = ++written;
  if (number > most_programs) {
    if (number == most_programs + 1)
      warn(fmt::format("{} graphs were written for the minifier; no more are", most_programs));
    return std::nullopt;
  }
  try {
    graph::GraphProgram program =
        graph::program_of(graph, examples, backend, /*keep_values=*/settings.level >= every_graph_level);
    program.comment = failure;
    if (settings.level == numbers_level) program.check = graph::ProgramCheck::numbers;
    program.preamble = registration_of(backend, settings);
    const bool runs_elsewhere = is_shipped_backend(backend) || !program.preamble.empty();
    if (!runs_elsewhere)
      program.comment += "\nRegister its backend here (triage.register_backend) under the name that the call has.";
    const std::filesystem::path folder =
        std::filesystem::absolute(settings.folder) /
        fmt::format("{}-pid_{}-{}", messages::folder_name(graph.name()), ::getpid(), number);
    std::filesystem::create_directories(folder);
    graph::save(program, (folder / "minifier_launcher.lua").string());
    return Written{folder, runs_elsewhere};
  } catch (const std::exception& error) {
    warn(fmt::format("graph `{}` cannot be written for the minifier: {}", graph.name(), error.what()));
    return std::nullopt;
  }
}

/// Not what would write programs, folders and logs for each candidate as well.
bool minifier_gets(std::string_view variable) {
  return !variable.starts_with("TRIAGE_REPRO_") && !variable.starts_with("TRIAGE_COMPILE_DEBUG=") &&
         !variable.starts_with("TRIAGE_LOGS=") && !variable.starts_with("TRIAGE_LOG_FILE=") &&
         !variable.starts_with("TRIAGE_TRACE=");
}

/// `triage minify FOLDER`, with what it says in minify.log. Whether it made a repro.
bool minify(const std::string& triage, const std::filesystem::path& folder) {
  constexpr std::chrono::hours longest(1);  // it has a limit of its own, of minutes
  const ProgramEnd end =
      run_to_end({{triage, "minify", folder.string()}, "", longest, minifier_gets, /*own_group=*/false});
  files::write_file((folder / "minify.log").string(), end.output);
  std::error_code ignored;
  return end.status == 0 && std::filesystem::exists(folder / "repro.lua", ignored);
}

bool says_nothing_fails(const std::filesystem::path& folder) {
  try {
    return files::read_text((folder / "minify.log").string()).find("the program does not fail: ") != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

/// The rest of the line of a program's header that begins so.
std::string header_line(const std::string& program, const std::string& begin) {
  const size_t found = program.find("\n-- " + begin);
  if (found == std::string::npos) return "";
  const size_t rest = found + 4 + begin.size();
  return program.substr(rest, program.find('\n', rest) - rest);
}

/// What the minifier found, as its repro tells it.
std::string describe_repro(const std::string& graph, const std::filesystem::path& repro, int level) {
  std::string program;
  try {
    program = files::read_text(repro.string());
  } catch (const Error&) {
    return fmt::format("graph `{}` fails; `triage exec {}` was to run what is left of it", graph, repro.string());
  }
  return fmt::format("graph `{}` fails: {}. What is left of it: {}, `triage exec {}`{}", graph,
                     header_line(program, repro_failure), header_line(program, repro_operators), repro.string(),
                     level >= every_graph_level ? "; the run goes on with the same backend" : "");
}

/// Minifies what is in the folder where this process can, and says in the log what there is.
void report(const std::string& graph, const Written& written, const ReproSettings& settings) {
  const std::filesystem::path& folder = written.folder;
  const std::string triage = messages::minifier_program();
  const std::string launcher = (folder / "minifier_launcher.lua").string();
  const std::string by_hand = fmt::format("graph `{}` and its inputs are in {}", graph, launcher);
  if (settings.level < minify_level)
    return warn(
        fmt::format("{}; `triage exec` runs it, `triage minify {}` makes it smaller", by_hand, folder.string()));
  if (!written.runs_elsewhere)
    return warn(
        fmt::format("{}; its backend belongs to this program, so register it there first, then `triage minify "
                    "{}`; a Lua file that registers it (TRIAGE_REPRO_BACKENDS) goes there by itself",
                    by_hand, folder.string()));
  if (triage.empty()) return warn(fmt::format("{}; `triage minify {}` makes it smaller", by_hand, folder.string()));
  bool made = false;
  try {
    made = minify(triage, folder);
  } catch (const std::exception& error) {
    return warn(fmt::format("{}; the minifier does not run: {}", by_hand, error.what()));
  }
  std::error_code ignored;
  if (made)
    warn(fmt::format("{}; the whole graph: {}", describe_repro(graph, folder / "repro.lua", settings.level), launcher));
  else if (settings.level >= every_graph_level && says_nothing_fails(folder))
    std::filesystem::remove_all(folder, ignored);
  else
    warn(fmt::format("{}; what the minifier said is in {}", by_hand, (folder / "minify.log").string()));
}

/// `wanted` says whether the settings ask for graphs of this stage.
Backend with_repro_if(bool (*wanted)(const std::string& name), Backend backend, const std::string& name) {
  return
      [wanted, backend = std::move(backend), name](const graph::Graph& graph, const std::vector<at::Tensor>& examples) {
        if (messages::repro_after() == ReproAfter::nothing || !wanted(name) || examples.size() != graph.inputs().size())
          return backend(graph, examples);
        const ReproSettings settings = messages::repro_settings();
        const bool every = settings.level >= every_graph_level;
        const auto write = [&](const std::string& failure) {
          if (const auto written = write_program(graph, examples, name, settings, failure))
            report(graph.name(), *written, settings);
        };
        if (every) write(fmt::format("Graph `{}`, before backend `{}` gets it.", graph.name(), name));
        try {
          return backend(graph, examples);
        } catch (const LimitError&) {
          throw;
        } catch (const std::exception& error) {
          if (!every) write(fmt::format("Backend `{}` cannot compile it: {}", name, error.what()));
          throw;
        }
      };
}

}  // namespace

Backend with_repro(Backend backend, const std::string& name) {
  const auto wanted = [](const std::string& of) {
    return messages::repro_after() == ReproAfter::capture || !makes_joint_graph(of);
  };
  return with_repro_if(wanted, std::move(backend), name);
}

Backend with_repro_of_half(Backend half, const std::string& name) {
  const auto wanted = [](const std::string&) { return messages::repro_after() == ReproAfter::aot; };
  return [half = with_repro_if(wanted, std::move(half), name)](const auto& graph, const auto& examples) {
    const at::NoGradGuard no_grad;  // a half is called without
    return half(graph, examples);
  };
}

}  // namespace triage
