#include "bindings/cli/commands/decisions/decision_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <triage/error.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

/// A file that is named twice, as by two patterns of a shell, has its decisions once.
std::vector<std::string> each_once(const std::vector<std::string>& paths) {
  std::set<std::pair<dev_t, ino_t>> seen;
  std::vector<std::string> once;
  for (const std::string& path : paths) {
    struct stat status {};
    const bool is_file = path != "-" && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    if (!is_file || seen.emplace(status.st_dev, status.st_ino).second) once.push_back(path);
  }
  return once;
}

/// Why a file is no decision log; empty for one that is, or has no lines at all.
std::string why_no_log(DecisionFile& file, const char* command) {
  if (!file.first_time().empty() || file.damaged().count == 0) return "";
  return fmt::format(
      "\"{}\" is no decision log: none of its lines ({}) is a decision. Expected lines of JSON, as triage::DecisionLog "
      "writes them; unpack a compressed file first: zcat FILE | {} -",
      messages::one_line(file.damaged().file), file.damaged().count, command);
}

}  // namespace

DecisionFiles open_decision_files(const char* command, const std::vector<std::string>& paths) {
  if (std::count(paths.begin(), paths.end(), "-") > 1)
    throw UsageError("- is given twice; standard input can be read once");
  DecisionFiles files;
  std::vector<std::string> wrong;
  for (const std::string& path : each_once(paths)) {
    files.push_back(std::make_unique<DecisionFile>(path));
    if (std::string why = why_no_log(*files.back(), command); !why.empty()) wrong.push_back(std::move(why));
  }
  if (wrong.size() == files.size()) throw FileError(fmt::format("{}", fmt::join(wrong, "\n")));
  for (const std::string& why : wrong) say(stderr, "{}: {}\n", command, why);
  std::stable_sort(files.begin(), files.end(),
                   [](const auto& a, const auto& b) { return a->first_time() < b->first_time(); });
  return files;
}

void print_damaged(const DecisionFiles& files, std::FILE* to) {
  for (const auto& file : files) {
    const DamagedLines& damaged = file->damaged();
    if (damaged.count == 0) continue;
    say(to, "  {:<8} {}: {} that could not be read: {}{}\n", "damaged", damaged.file, counted(damaged.count, "line"),
        fmt::format("{}", fmt::join(damaged.first, ", ")), damaged.count > damaged.first.size() ? ", ..." : "");
  }
}

nlohmann::ordered_json damaged_json(const DecisionFiles& files) {
  nlohmann::ordered_json damaged = nlohmann::ordered_json::array();
  for (const auto& file : files)
    if (file->damaged().count > 0)
      damaged.push_back(
          {{"file", file->damaged().file}, {"lines", file->damaged().count}, {"first", file->damaged().first}});
  return damaged;
}

std::string counted(uint64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace triage::cli
