#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/policy/files/contents.h"

/// What is kept of policy files in RuntimeOptions::cache_dir, for a restart. It is trusted: folder and file are this
/// user's, nobody else may write to them, and the file is as it was written.
namespace triage::policy {

/// A folder with one text for each policy file. Without a folder it keeps nothing.
class KeptTexts {
 public:
  /// `label` begins the last line of each, which has a checksum: a text of another label is damaged.
  KeptTexts(std::filesystem::path dir, std::string label);
  /// Replaces what is kept for `path`, all or nothing. Returns why it could not be done; empty: done.
  std::string keep(const std::filesystem::path& path, std::string_view text) const;
  /// Removes it; returns why it could not.
  std::string forget(const std::filesystem::path& path) const;
  struct KeptText {
    std::optional<std::string> text;
    std::string trouble;  // why what is there is not used
  };
  KeptText find(const std::filesystem::path& path) const;

 private:
  std::filesystem::path place_of(const std::filesystem::path& path) const;
  std::filesystem::path dir_;
  std::string label_;
};

/// The last contents that went live for each policy file (`packed_or_source`), so that a restart with a broken file
/// finds a policy.
KeptTexts last_good_in(const std::filesystem::path& cache_dir);

/// Why another version is live than the one on the disk, or is to be after a restart.
enum class ChosenBy : uint8_t {
  pin,
  rollback,  // until the disk changes
  trial,     // that on the disk was refused: a restart tries it again, over this one
  failure,   // that on the disk failed in calls, and was taken back: until the disk changes
};

/// "pinned": what was done to that version.
const char* done_by(ChosenBy by);

struct VersionChoice {
  ChosenBy by = ChosenBy::rollback;
  int number = 0;  // of the version, at that time
  Contents live;
  std::optional<Contents> on_disk;  // at that time; nothing: there was no file that could be read
  std::string reason = {};          // of a failure

  /// Whether a restart tries this source again.
  bool retries(const std::string& source) const {
    return by == ChosenBy::trial && on_disk && on_disk->source == source;
  }
};

/// The last one for each policy file. What was kept is replaced, or removed, as a whole.
class KeptChoices {
 public:
  explicit KeptChoices(const std::filesystem::path& cache_dir);
  std::string keep(const std::filesystem::path& path, const VersionChoice& choice) const;
  std::string forget(const std::filesystem::path& path) const { return texts_.forget(path); }
  struct KeptChoice {
    std::optional<VersionChoice> choice;
    std::string trouble;
  };
  KeptChoice find(const std::filesystem::path& path) const;

 private:
  KeptTexts texts_;
};

}  // namespace triage::policy
