// `triage replay`: a call again, from its capsule.
#include <fmt/format.h>
#include <triage/capsule.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "runtime/capsule/capsule.h"
#include "runtime/files/disk.h"
#include "runtime/messages/debugging/repro_settings.h"
#include "runtime/policy/replay.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;

/// Graphs of the replay go to the minifier, each before its backend gets it.
void minify_graphs(const std::string& folder) {
  messages::ReproSettings settings;
  settings.after = messages::ReproAfter::capture;
  settings.level = 4;
  settings.folder = folder;
  messages::set_repro_settings(settings);
}

/// What the minifier made for this process; the folder may have programs of earlier ones.
std::vector<std::string> repros_in(const fs::path& folder) {
  const std::string own = fmt::format("-pid_{}-", ::getpid());
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (const fs::path repro = entry.path() / "repro.lua";
        entry.path().filename().string().find(own) != std::string::npos && fs::exists(repro, ignored))
      found.push_back(repro.string());
  std::sort(found.begin(), found.end());
  return found;
}

/// What is in the capsule, as files of fixed names: capsule.json, and the sources.
void extract(const capsule::Capsule& capsule, const fs::path& folder) {
  fs::create_directories(folder);
  files::write_file((folder / "capsule.json").string(),
                    capsule.facts.dump(1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  std::vector<std::string> sources;
  if (const auto source = capsule.facts.find("source"); source != capsule.facts.end())
    sources.push_back(source->value("text", ""));
  else if (const auto script = capsule.facts.find("script"); script != capsule.facts.end() && script->is_object())
    for (const auto& chunk : script->value("chunks", nlohmann::ordered_json::array()))
      sources.push_back(chunk.value("text", ""));
  for (size_t i = 0; i < sources.size(); ++i)
    files::write_file((folder / (i == 0 ? "script.lua" : fmt::format("script_{}.lua", i + 1))).string(), sources[i]);
}

}  // namespace

int run(const ReplayCommand& options) {
  ReplayOptions replay_options;
  replay_options.backend = options.backend;
  replay_options.trusted = options.trusted;
  replay_options.print = prints_to(options.json ? stderr : stdout);
  if (!options.backend.empty()) check_backend(options.backend);
  const capsule::Capsule capsule = capsule::load(options.capsule);
  if (!options.extract.empty()) extract(capsule, options.extract);
  if (options.minify) minify_graphs(options.capsule + ".repro");
  const Replayed replayed = policy::replay(capsule, options.capsule, replay_options);
  const std::vector<std::string> repros =
      options.minify ? repros_in(options.capsule + ".repro") : std::vector<std::string>();
  if (options.json) {
    print_json({{"capsule", options.capsule},
                {"name", replayed.name},
                {"same", replayed.same},
                {"recorded", replayed.recorded},
                {"difference", replayed.same ? nlohmann::ordered_json() : nlohmann::ordered_json(replayed.difference)},
                {"notes", replayed.notes},
                {"repros", repros}});
  } else {
    say("{}\n  recorded  {}\n  replayed  {}\n", paint(Paint::heading, replayed.name), replayed.recorded,
        replayed.same ? "the same" : paint(Paint::error, "NOT THE SAME") + ": " + replayed.difference);
    for (const std::string& note : replayed.notes) say("  note      {}\n", note);
    for (const std::string& repro : repros) say("  repro     triage exec {}\n", repro);
  }
  if (options.must_minify && replayed.same && repros.empty())
    throw UsageError(
        fmt::format("nothing to make smaller: the call of {} gives the same, and no graph of it fails; "
                    "`triage replay {} --backend NAME --minify` tries another backend",
                    options.capsule, options.capsule));
  return replayed.same ? 0 : 1;
}

}  // namespace triage::cli
