#include "bindings/cli/commands/incident/source_texts.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "bindings/cli/commands/incident/source_diff.h"
#include "runtime/policy/files/kept_sources.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t hash_size = 16;

bool is_hash(std::string_view text) {
  return text.size() == hash_size && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string text_of(const policy::Files& files, const std::string& name) {
  const auto found = files.find(name);
  return found != files.end() && found->second.usable() ? *found->second.bytes : "";
}

}  // namespace

SourceTexts::SourceTexts(std::string cache_dir) : cache_dir_(std::move(cache_dir)) {
  if (cache_dir_.empty()) return;
  std::error_code error;
  for (fs::directory_iterator entry(policy::kept_sources_of(cache_dir_), error), none; !error && entry != none;
       entry.increment(error)) {
    const std::string stem = entry->path().stem().string();
    if (stem.size() > hash_size && is_hash(std::string_view(stem).substr(stem.size() - hash_size)))
      files_[stem.substr(stem.size() - hash_size)] = entry->path().string();
  }
  if (files_.empty())
    trouble_ = fmt::format("\"{}\" has no kept sources{}; expected the folder that RuntimeOptions::cache_dir names",
                           cache_dir_, error ? ": " + error.message() : "");
}

SourceTexts::FoundSource SourceTexts::find(const std::string& hash, const std::string& named) const {
  if (!is_hash(hash)) return {{}, {}, "the log has no hash of it, or masks it"};
  std::string file = named;
  if (!cache_dir_.empty()) {
    const auto found = files_.find(hash);
    file = found == files_.end() ? "" : found->second;
  }
  if (file.empty())
    return {{},
            {},
            cache_dir_.empty() ? "the Runtime that wrote the log had no cache_dir"
                               : fmt::format("\"{}\" does not have it", cache_dir_)};
  // A log comes from elsewhere: no other file is opened than one with the name of such a text.
  if (fs::path(file).stem().string().find(hash) == std::string::npos)
    return {{}, {}, fmt::format("the log names \"{}\", which is no name of a kept source", file)};
  try {
    auto contents = policy::read_kept_source(file, hash);
    if (contents) return {std::move(contents), file, {}};
    return {{}, {}, fmt::format("\"{}\" is damaged: its content has another hash", file)};
  } catch (const FileError& error) {
    return {{}, {}, error.what()};
  }
}

std::vector<std::string> diff_of(const policy::Contents& before, const policy::Contents& after, const std::string& name,
                                 const std::string& version_before, const std::string& version_after) {
  const auto titled = [](const std::string& file, const std::string& version) {
    return fmt::format("{} ({})", file, version);
  };
  std::vector<std::string> lines =
      unified_diff(before.source, after.source, titled(name, version_before), titled(name, version_after));
  std::set<std::string> names;
  for (const policy::Files* files : {&before.files, &after.files})
    for (const auto& [file, content] : *files) names.insert(file);
  for (const std::string& file : names) {
    const auto more = unified_diff(text_of(before.files, file), text_of(after.files, file),
                                   titled(file, version_before), titled(file, version_after));
    lines.insert(lines.end(), more.begin(), more.end());
  }
  return lines;
}

}  // namespace triage::cli
