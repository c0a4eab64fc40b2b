#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/policy/files/contents.h"

namespace triage::cli {

/// The sources that a Runtime kept in its cache_dir while it wrote a decision log. What a log says of files is checked:
/// a text is used only where its hash is the one that is asked for.
class SourceTexts {
 public:
  /// `cache_dir`: where they lie; empty: where the log says.
  explicit SourceTexts(std::string cache_dir);
  struct FoundSource {
    std::optional<policy::Contents> contents;
    std::string file;     // that has them
    std::string trouble;  // why there are none: a clause
  };
  /// `named`: the file that the log names for this hash; may be empty.
  FoundSource find(const std::string& hash, const std::string& named) const;
  /// What is wrong with `cache_dir`; empty: nothing.
  const std::string& trouble() const { return trouble_; }

 private:
  const std::string cache_dir_;
  std::map<std::string, std::string> files_;  // by hash, of cache_dir
  std::string trouble_;
};

/// What changes from one version to the next: its source, and the files that it reads. `name` is that of the source in
/// the lines.
std::vector<std::string> diff_of(const policy::Contents& before, const policy::Contents& after, const std::string& name,
                                 const std::string& version_before, const std::string& version_after);

}  // namespace triage::cli
