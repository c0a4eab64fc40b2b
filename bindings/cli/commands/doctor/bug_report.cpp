#include "bindings/cli/commands/doctor/bug_report.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "runtime/capsule/capsule.h"
#include "runtime/files/formats.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/replay_settings.h"
#include "runtime/messages/logs/log_file.h"
#include "runtime/messages/printable.h"

namespace triage::cli::doctor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t most_of_log = 1u << 20, most_of_capsule = 16u << 20;  // bytes

std::string or_default(const std::string& chosen, const char* usual) { return chosen.empty() ? usual : chosen; }

/// The file or folder of these that was written last and is called so; empty where there is none.
fs::path newest(const fs::path& folder, std::string_view start, std::string_view ending, fs::file_type type) {
  fs::path found;
  fs::file_time_type when;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code unknown;
    if (!name.starts_with(start) || !name.ends_with(ending) || entry.symlink_status(unknown).type() != type) continue;
    const auto written = entry.last_write_time(unknown);
    if (!unknown && (found.empty() || written > when)) found = entry.path(), when = written;
  }
  return found;
}

/// The last bytes of a file, from the beginning of a line.
std::string end_of(const fs::path& file, uint64_t most) {
  const files::InputFile in(file.string());
  const uint64_t size = std::min(in.size(), most);
  std::string text(size, '\0');
  in.read(in.size() - size, text.data(), size);
  if (in.size() > most)
    text = "[the beginning is left out]\n" + text.substr(std::min(text.find('\n') + 1, text.size()));
  return text;
}

/// What cannot be read is an attachment that says so.
template <typename Fill>
Attachment attach(Attachment attachment, const Fill& fill) {
  try {
    fill(attachment);
  } catch (const std::exception& error) {
    attachment.missing = error.what();
  }
  if (!attachment.missing.empty()) attachment.content.clear();
  return attachment;
}

/// "the source of the function and the values of its inputs (z)"; masked ones are not in it.
std::string private_parts(const Json& inputs) {
  std::vector<std::string> names;
  for (const Json& one : inputs)
    if (one.is_object() && !one.value("masked", false)) names.push_back(one.value("name", "?"));
  if (names.empty() && !inputs.empty()) return "the source of the function, and no values of its inputs";
  return "the source of the function and the values of its inputs" +
         (names.empty() ? "" : fmt::format(" ({})", fmt::join(names, ", ")));
}

/// "the call of 'windows': PolicyError: ...; holds ..."
std::string describe_capsule(const std::string& file) {
  const Json facts = capsule::load(file).facts;
  std::string error;
  if (const Json result = facts.value("result", Json::object()); result.is_object() && result.contains("error"))
    error = ": " + result["error"].value("message", "");
  const Json call = facts.value("call", Json::object());
  return messages::one_line(fmt::format("the call of '{}'{}; holds {}", facts.value("name", ""), error.substr(0, 200),
                                        private_parts(call.value("inputs", Json::array()))));
}

Attachment last_capsule() {
  const std::string folder = or_default(messages::replay_dir(), "triage_capsules");
  const Attachment capsule{"capsule.pt", "", "the last call that failed, for triage replay", "", ""};
  return attach(capsule, [&](Attachment& into) {
    const fs::path file = newest(folder, "", ".pt", fs::file_type::regular);
    if (file.empty()) {
      into.missing = fmt::format(
          "there is none in \"{}\"; TRIAGE_REPLAY_RECORD=1, set for the program that fails, "
          "writes one for each call that fails",
          folder);
      return;
    }
    into.from = file.string();
    into.says = describe_capsule(into.from);
    if (const uintmax_t bytes = fs::file_size(file); bytes > most_of_capsule)
      into.missing = fmt::format("it has {} MiB, more than {}; send it by itself", bytes >> 20, most_of_capsule >> 20);
    else
      into.content = files::read_text(into.from, most_of_capsule);
  });
}

Attachment end_of_log() {
  const Attachment log{"log.txt", messages::log_file(), "the end of the log file; names policies and files", "", ""};
  return attach(log, [](Attachment& into) {
    if (into.from.empty())
      into.missing = "TRIAGE_LOG_FILE is not set; set it as for the program that fails";
    else
      into.content = end_of(into.from, most_of_log);
  });
}

/// Of each graph of the newest run.
Attachment debug_logs() {
  const char* const named = std::getenv("TRIAGE_DEBUG_DIR");
  const std::string folder = or_default(or_default(messages::debug_dir(), named ? named : ""), "triage_debug");
  const Attachment logs{"debug.log", "", "what was logged of each graph of the last run", "", ""};
  return attach(logs, [&](Attachment& into) {
    const fs::path run = newest(folder, "run_", "", fs::file_type::directory);
    if (run.empty()) {
      into.missing = fmt::format("there is no run in \"{}\"; TRIAGE_COMPILE_DEBUG=1 makes one", folder);
      return;
    }
    into.from = run.string();
    std::vector<fs::path> graphs;
    for (const auto& entry : fs::directory_iterator(run)) graphs.push_back(entry.path());
    std::sort(graphs.begin(), graphs.end());
    for (const fs::path& graph : graphs) {
      const fs::path log = graph / "debug.log";
      std::error_code unknown;
      if (into.content.size() < most_of_log && fs::is_regular_file(log, unknown))
        into.content += fmt::format("==> {}\n{}", log.string(), end_of(log, most_of_log - into.content.size()));
    }
    if (into.content.empty()) into.missing = fmt::format("\"{}\" has no debug.log", into.from);
  });
}

std::string size_text(size_t bytes) {
  return bytes < 1024 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
}

}  // namespace

std::vector<Attachment> collect_attachments() { return {last_capsule(), end_of_log(), debug_logs()}; }

std::string contents_text(const std::vector<Attachment>& attachments) {
  std::string text;
  for (const Attachment& one : attachments) {
    if (one.missing.empty())
      text += fmt::format("{:<12} {:>10}  {}{}\n", one.name, size_text(one.content.size()), one.says,
                          one.from.empty() ? "" : fmt::format(" (from {})", messages::one_line(one.from)));
    else
      text += fmt::format("{:<12} {:>10}  {}\n", one.name, "left out", messages::one_line(one.missing));
  }
  return text;
}

void write_archive(files::OutputFile& file, const std::vector<Attachment>& attachments) {
  files::write_zip(file, [&](caffe2::serialize::PyTorchStreamWriter& archive) {
    for (const Attachment& one : attachments)
      if (one.missing.empty()) archive.writeRecord(one.name, one.content.data(), one.content.size());
  });
  file.flush();
  file.commit();
}

}  // namespace triage::cli::doctor
