#include <fmt/chrono.h>
#include <fmt/format.h>
#include <triage/runtime.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "bindings/cli/commands/bundle/actions.h"
#include "bindings/cli/commands/watch_events.h"
#include "runtime/files/disk.h"
#include "runtime/messages/printable.h"

namespace triage::cli {

static bool is_bad(const std::string& event) {
  return event == "refused" || event == "reverted" || event == "candidate_reverted" || event == "lost";
}

void print_line(const WatchEventLine& line, bool json) {
  using Json = nlohmann::ordered_json;
  if (json) {
    Json object = {{"event", line.event}, {"path", line.path}};
    if (line.version > 0) object["version"] = line.version;
    if (!line.hash.empty()) object["hash"] = line.hash;
    if (!line.message.empty()) object["message"] = line.message;
    if (line.line > 0) object["line"] = line.line;
    print_json(object, /*on_one_line=*/true);
    return;
  }
  Paint colour = is_bad(line.event) ? Paint::error : line.event == "deleted" ? Paint::warning : Paint::good;
  std::string version = line.version > 0 ? fmt::format("  version {}", line.version) : "";
  std::string hash = line.hash.empty() ? "" : "  " + line.hash;
  std::string message = line.message.empty() ? "" : "  " + line.message;
  if (line.event == "loaded") message = paint(Paint::faint, "  (its tests were not run)");
  say("{:%H:%M:%S}  {}  {}{}{}{}\n", fmt::localtime(std::time(nullptr)),
      paint(colour, fmt::format("{:<8}", line.event)), messages::one_line(line.path), version,
      paint(Paint::faint, hash), message);
  flush(stdout);
}

namespace {

namespace fs = std::filesystem;

/// Why it cannot be read, where that is so: to tell whether anything has changed.
std::string read_bytes(const std::string& path) {
  try {
    return files::read_text(path);
  } catch (const FileError& error) {
    return error.what();
  }
}

std::vector<std::string> lua_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;  // a link in a circle is no file
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".lua" && entry.is_regular_file(ignored)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The policies of a folder, and what is printed about them. A Watch follows files that a policy was loaded from; those
/// that have never loaded are looked at here.
class FolderFollower {
 public:
  FolderFollower(Runtime& runtime, const WatchCommand& options)
      : runtime_(runtime), folder_(options.folder), json_(options.json) {}

  static constexpr int retry_ms = 200;
  void load() {
    for (const std::string& path : lua_files(folder_)) load(path);
  }

  void load(const std::string& path) {
    Refused refused{read_bytes(path), policy::listing_of(folder_), ""};
    try {
      Policy policy = runtime_.load(path);
      print_line({"loaded", path, policy.version().number, policy.version().hash, "", 0}, json_);
      policies_[path] = policy;
      never_loaded_.erase(path);
    } catch (const Error& error) {
      refused.message = error.what();
      const auto before = never_loaded_.find(path);
      if (before == never_loaded_.end() || before->second.source != refused.source ||
          before->second.message != refused.message)
        print_line({"refused", path, 0, "", error.what(), error.source().line}, json_);
      never_loaded_[path] = refused;
    }
  }

  void handle(const WatchEvent& event) {
    if (event.kind == WatchEvent::Kind::added) return load(event.path);
    WatchEventLine line{to_string(event.kind), event.path, event.version, "", "", event.source.line};
    if (is_bad(line.event)) line.message = event.message;
    auto policy = policies_.find(event.path);
    if (policy != policies_.end()) line.hash = policy->second.version().hash;
    print_line(line, json_);
  }

  bool has_never_loaded() const { return !never_loaded_.empty(); }

  /// Tries again those that have changed since they were refused, or beside which something has: they may have missed a
  /// module.
  void retry() {
    if (never_loaded_.empty()) return;
    std::vector<std::string> changed, gone;
    const std::string listing = policy::listing_of(folder_);
    for (const auto& [path, refused] : never_loaded_) {
      std::error_code ignored;
      if (!fs::exists(path, ignored)) {
        gone.push_back(path);
      } else if (listing != refused.listing || read_bytes(path) != refused.source) {
        changed.push_back(path);
      }
    }
    for (const std::string& path : gone) {
      never_loaded_.erase(path);
      print_line({"deleted", path, 0, "", "", 0}, json_);
    }
    for (const std::string& path : changed) load(path);
  }

 private:
  Runtime& runtime_;
  std::string folder_;
  bool json_;
  std::map<std::string, Policy> policies_;
  struct Refused {
    std::string source, listing;  // of the file, and of the folder, when it was tried
    std::string message;
  };
  std::map<std::string, Refused> never_loaded_;
};

}  // namespace

int run(const WatchCommand& options) {
  if (!options.canary.empty() || !options.shadow.empty()) return try_candidate(options);
  if (!options.call.inputs.empty() || !options.call.params.empty() || options.calls >= 0 || options.share > 0 ||
      !options.decisions.empty() || !options.cache.empty())
    throw UsageError(
        "--input, --param, --calls, --share, --decisions and --cache are for a candidate: give --canary FILE or "
        "--shadow FILE");
  if (!fs::is_directory(options.folder))
    throw FileError(fmt::format("cannot watch \"{}\": there is no such folder", messages::one_line(options.folder)));
  if (fs::exists(fs::path(options.folder) / policy::manifest_name)) return watch_bundle(options);
  return follow_events<FolderFollower>(options, options.folder);
}

}  // namespace triage::cli
