#include "runtime/policy/files/kept_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"
#include "runtime/files/folder.h"
#include "runtime/messages/enum_names.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t largest_text = 1u << 30;  // more than any contents have

std::string normal(const fs::path& path) { return fs::absolute(path).lexically_normal().string(); }

/// What a text that is kept is checked from: so it is known to be that of this file.
uint64_t checksum_of(const fs::path& path) { return files::checksum(normal(path) + '\n'); }

fs::path below(const fs::path& cache_dir, const char* name) { return cache_dir.empty() ? cache_dir : cache_dir / name; }

}  // namespace

const char* done_by(ChosenBy by) {
  return messages::name_in<ChosenBy::failure>({"pinned", "rolled back to", "live", "live"}, by);
}

KeptTexts::KeptTexts(fs::path dir, std::string label) : dir_(std::move(dir)), label_(std::move(label)) {}

fs::path KeptTexts::place_of(const fs::path& path) const {
  return dir_ / fmt::format("{}-{}", files::checksum_text(files::checksum(normal(path))), path.filename().string());
}

std::string KeptTexts::keep(const fs::path& path, std::string_view text) const {
  if (dir_.empty()) return {};
  if (std::string trouble = files::make_own_folder(dir_); !trouble.empty()) return trouble;
  try {
    files::OutputFile file(place_of(path).string(), /*own=*/true);
    file.write(text.data(), text.size());
    const std::string line = files::checksum_line(label_, files::checksum(text, checksum_of(path)));
    file.write(line.data(), line.size());
    file.commit();
    return {};
  } catch (const FileError& failure) {
    return failure.what();
  }
}

std::string KeptTexts::forget(const fs::path& path) const {
  if (dir_.empty()) return {};
  const fs::path place = place_of(path);
  if (::unlink(place.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return {};
  return fmt::format("{}: {}", place.string(), std::strerror(errno));
}

KeptTexts::KeptText KeptTexts::find(const fs::path& path) const {
  const fs::path place = place_of(path);
  std::error_code ignored;
  if (dir_.empty() || !fs::exists(fs::symlink_status(place, ignored))) return {};
  const auto unusable = [&](const std::string& why) {
    return KeptText{std::nullopt, fmt::format("{}: {}", place.string(), why)};
  };
  if (!files::is_ours(dir_.string(), S_IFDIR) || !files::is_ours(place.string(), S_IFREG))
    return unusable("it, or its folder, is another user's, a symbolic link, or one that others may write to");
  try {
    const std::string kept = files::read_text(place.string(), largest_text);
    const auto [text, intact] = files::without_checksum(kept, label_, checksum_of(path));
    if (intact) return {std::string(text), {}};
    return unusable("it is damaged: its checksum is not that of its content");
  } catch (const FileError& error) {
    return unusable(error.what());
  }
}

KeptTexts last_good_in(const fs::path& cache_dir) {
  return {below(cache_dir, "last_good"), "\n-- triage: last good source, checksum "};
}

static constexpr std::array<const char*, 4> words_of_choices = {"pinned", "rolled-back", "on-trial",
                                                                "failed"};  // by ChosenBy

KeptChoices::KeptChoices(const fs::path& cache_dir)
    : texts_(below(cache_dir, "chosen"), "\n-- triage: chosen version, checksum ") {}

// One line, "WORD NUMBER SIZE", where there is a reason with its size behind it; what is live, of SIZE bytes; the
// reason; what was on the disk.
std::string KeptChoices::keep(const fs::path& path, const VersionChoice& choice) const {
  const std::string live = packed(choice.live);
  const std::string reason = choice.reason.empty() ? "" : fmt::format(" {}", choice.reason.size());
  return texts_.keep(
      path, fmt::format("{} {} {}{}\n{}{}{}", words_of_choices[static_cast<size_t>(choice.by)], choice.number,
                        live.size(), reason, live, choice.reason, choice.on_disk ? packed(*choice.on_disk) : ""));
}

KeptChoices::KeptChoice KeptChoices::find(const fs::path& path) const {
  const auto [text, trouble] = texts_.find(path);
  if (!text) return {std::nullopt, trouble};
  const KeptChoice malformed{std::nullopt,
                             "what is kept of a pin or rollback is not in a form that this version of triage reads"};
  const size_t end = text->find('\n');
  if (end == std::string::npos) return malformed;
  std::istringstream line(text->substr(0, end));
  std::string word;
  VersionChoice choice;
  size_t size = 0, reason = 0;
  if (!(line >> word >> choice.number >> size)) return malformed;
  line >> reason;
  std::string_view rest = std::string_view(*text).substr(end + 1);
  const auto by = std::find(words_of_choices.begin(), words_of_choices.end(), word);
  if (by == words_of_choices.end() || size > rest.size() || reason > rest.size() - size) return malformed;
  choice.by = static_cast<ChosenBy>(by - words_of_choices.begin());
  const auto live = unpacked(rest.substr(0, size));
  if (!live) return malformed;
  choice.live = *live;
  choice.reason = rest.substr(size, reason);
  rest.remove_prefix(size + reason);
  if (!rest.empty() && !(choice.on_disk = unpacked(rest))) return malformed;
  return {std::move(choice), {}};
}

}  // namespace triage::policy
