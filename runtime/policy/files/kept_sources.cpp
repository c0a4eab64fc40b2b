#include "runtime/policy/files/kept_sources.h"

#include <sys/stat.h>
#include <triage/error.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/files/disk.h"
#include "runtime/files/folder.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t largest_kept = 1u << 30;  // more than any contents have
constexpr size_t hash_size = 16;

}  // namespace

fs::path kept_sources_of(const fs::path& cache_dir) { return cache_dir.empty() ? cache_dir : cache_dir / "sources"; }

KeptSources::KeptSources(const fs::path& cache_dir)
    : dir_(cache_dir.empty() ? cache_dir : fs::absolute(kept_sources_of(cache_dir)).lexically_normal()) {}

KeptSources::KeptSourceFile KeptSources::keep(const std::string& path, const std::string& hash,
                                              const Contents& contents) const {
  if (dir_.empty()) return {};
  if (std::string trouble = files::make_own_folder(dir_); !trouble.empty()) return {{}, std::move(trouble)};
  const std::string begin = fs::path(path).stem().string() + "-", end = fs::path(path).extension().string();
  const fs::path file = dir_ / (begin + hash + end);
  if (files::is_ours(file.string(), S_IFREG)) {
    std::error_code error;
    fs::last_write_time(file, fs::file_time_type::clock::now(), error);  // it is live again
    return {file.string(), {}};
  }
  try {
    files::OutputFile output(file.string(), /*own=*/true);
    const std::string text = packed_or_source(contents);
    output.write(text.data(), text.size());
    output.commit();
    remove_oldest(begin, end);
    return {file.string(), {}};
  } catch (const FileError& failure) {
    return {{}, failure.what()};
  }
}

/// Of the files "BEGIN<hash>END", where there are more than `most`. What cannot be removed stays.
void KeptSources::remove_oldest(const std::string& begin, const std::string& end) const {
  std::vector<std::pair<fs::file_time_type, fs::path>> kept;
  std::error_code error;
  for (const files::FolderEntry& entry : files::entries_of(dir_, error)) {
    const std::string& name = entry.name;
    if (name.size() != begin.size() + hash_size + end.size() || !name.starts_with(begin) || !name.ends_with(end))
      continue;
    const auto time = fs::last_write_time(dir_ / name, error);
    if (!error) kept.emplace_back(time, dir_ / name);
  }
  std::sort(kept.begin(), kept.end());
  for (size_t i = 0; i + most < kept.size(); ++i) fs::remove(kept[i].second, error);
}

std::optional<Contents> read_kept_source(const fs::path& file, const std::string& hash) {
  std::optional<Contents> contents = unpacked_or_source(files::read_text(file.string(), largest_kept));
  return contents && contents->hash() == hash ? contents : std::nullopt;
}

}  // namespace triage::policy
