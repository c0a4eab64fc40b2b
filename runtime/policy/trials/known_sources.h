#pragma once
#include <list>
#include <optional>

#include "runtime/policy/files/contents.h"

namespace triage::policy {

/// Contents that went live and were not taken back: a file may be put back to them whatever came after. They are
/// compared byte by byte, for what is trusted skips every check of a reload. The oldest are forgotten where they are
/// too many.
class KnownSources {
 public:
  static constexpr size_t most = 1000, most_bytes = 32u << 20;

  class Noted;
  /// `proven`: its trial is over, now or earlier. To be noted when nothing can fail any more.
  Noted to_note(const Contents& contents, bool proven) const;
  void note(Noted noted) noexcept;
  void forget(const Contents& contents) noexcept;
  /// Nothing for contents that are not known.
  std::optional<bool> proven(const Contents& contents) const;

 private:
  struct KnownSource {
    Contents contents;
    bool proven;
  };
  std::list<KnownSource> known_;  // the one noted last is behind
  size_t bytes_ = 0;
};

class KnownSources::Noted {
  friend class KnownSources;
  std::list<KnownSource> known_;  // at most one
};

}  // namespace triage::policy
