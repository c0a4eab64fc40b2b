// `triage replay`: a call again, from its capsule.
#include <fmt/format.h>
#include <triage/capsule.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/sample/sample_report.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/isolation.h"
#include "bindings/lua/testing/line_values.h"
#include "runtime/capsule/capsule.h"
#include "runtime/capture/force_eager.h"
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

/// The call again, line by line.
lua::CallByLine call_by_line(const capsule::Capsule& capsule, const ReplayCommand& options,
                             const ReplayOptions& replay_options) {
  const capture::ForceEager force_eager;  // functions that the script compiles are shown operator by operator, too
  std::optional<lua::CallByLine> call;
  Limits limits;
  limits.seconds = lua::seconds_by_line;
  policy::use_recorded_script(
      capsule, options.capsule, replay_options, limits,
      [&](Script& script, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values) {
        auto* const of_lua = dynamic_cast<lua::LuaScript*>(&script);
        if (!of_lua) throw UsageError(fmt::format("--sample: the policy of {} is no Lua", options.capsule));
        call.emplace(*of_lua, lua::CallOfScript{lua::isolation_inputs(script.signature(), inputs), values});
      });
  check_samples(options.samples, *call, options.capsule);
  return std::move(*call);
}

/// The number that the sample of the capsule had in the batch of the recorded call, where only its bad rows were kept.
std::optional<int64_t> recorded_number(const capsule::Capsule& capsule, int64_t sample) {
  const auto& call = capsule.facts.value("call", nlohmann::ordered_json::object());
  if (!call.contains("rows") || static_cast<size_t>(sample) >= call["rows"].size()) return std::nullopt;
  return call["rows"][static_cast<size_t>(sample)].get<int64_t>();
}

void print_samples(const lua::CallByLine& call, const std::string& name, const capsule::Capsule& capsule,
                   const std::vector<int64_t>& samples) {
  for (const int64_t sample : samples) {
    say("\n");
    print_sample(name, call.sample(sample));
    if (const auto number = recorded_number(capsule, sample))
      say("  it was sample {} of the recorded batch\n", *number);
  }
  print_end(call);
}

nlohmann::ordered_json samples_json(const lua::CallByLine& call, const capsule::Capsule& capsule,
                                    const std::vector<int64_t>& samples) {
  nlohmann::ordered_json json = samples_by_line_json(call, samples);
  for (size_t i = 0; i < samples.size(); ++i)
    if (const auto number = recorded_number(capsule, samples[i])) json[i]["recorded_sample"] = *number;
  return json;
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
  std::optional<lua::CallByLine> by_line;
  if (!options.samples.empty()) by_line = call_by_line(capsule, options, replay_options);
  const std::vector<std::string> repros =
      options.minify ? repros_in(options.capsule + ".repro") : std::vector<std::string>();
  if (options.json) {
    nlohmann::ordered_json json = {
        {"capsule", options.capsule},
        {"name", replayed.name},
        {"same", replayed.same},
        {"recorded", replayed.recorded},
        {"difference", replayed.same ? nlohmann::ordered_json() : nlohmann::ordered_json(replayed.difference)},
        {"notes", replayed.notes},
        {"repros", repros}};
    if (by_line) json["samples"] = samples_json(*by_line, capsule, options.samples);
    print_json(json);
  } else {
    say("{}\n  recorded  {}\n  replayed  {}\n", paint(Paint::heading, replayed.name), replayed.recorded,
        replayed.same ? "the same" : paint(Paint::error, "NOT THE SAME") + ": " + replayed.difference);
    for (const std::string& note : replayed.notes) say("  note      {}\n", note);
    for (const std::string& repro : repros) say("  repro     triage exec {}\n", repro);
    if (by_line) print_samples(*by_line, replayed.name, capsule, options.samples);
  }
  if (options.must_minify && replayed.same && repros.empty())
    throw UsageError(
        fmt::format("nothing to make smaller: the call of {} gives the same, and no graph of it fails; "
                    "`triage replay {} --backend NAME --minify` tries another backend",
                    options.capsule, options.capsule));
  return replayed.same ? 0 : 1;
}

}  // namespace triage::cli
