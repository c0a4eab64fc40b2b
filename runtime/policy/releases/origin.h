#pragma once
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/policy/releases/release.h"

namespace triage::policy {

class ReleaseHistory;
class Releases;

/// Where releases come from: a file, a text of the host, or the folder of a bundle. What reads the disk throws NotNow
/// where that cannot be done now. One thread at a time makes releases; any thread asks for the rest.
class ReleaseOrigin {
 public:
  virtual ~ReleaseOrigin() = default;

  /// What is on the disk: a source, or bundle.json; nothing where there is none. Throws FileError for what cannot be
  /// read.
  virtual std::optional<std::string> read() const = 0;
  /// The first release. Throws Error.
  virtual Prepared make_first() = 0;
  /// Makes a release of `text`, which the disk holds (`on_disk`) or the host gave; nothing where that is live already.
  virtual std::optional<Prepared> make(std::string text, bool on_disk) = 0;
  /// Of contents that were live before a restart.
  virtual Prepared make_kept(const Contents& contents) = 0;

  /// What the disk holds now, in a few bytes; empty: what the last look saw.
  virtual std::string news() const = 0;
  /// Where a change may be a change of what is live, and the files themselves.
  virtual std::set<std::filesystem::path> places() const = 0;
  virtual std::vector<std::filesystem::path> files() const = 0;
  /// The file that errors name.
  virtual std::string shown_file() const = 0;

  /// Whether what was seen is of the same bytes as `release`.
  virtual bool holds(const Contents& seen, const Release& release) const { return seen == release.contents; }
  /// The last look found files that do not belong together; they may be on their way.
  virtual bool is_incomplete() const { return false; }
  /// ... and it may be another folder now.
  virtual bool may_be_complete() const { return false; }
  /// Another release was chosen: what completes it is not followed.
  virtual void forget_incomplete() {}
};

}  // namespace triage::policy
