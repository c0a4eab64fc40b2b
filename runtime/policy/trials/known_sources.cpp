#include "runtime/policy/trials/known_sources.h"

#include <algorithm>
#include <numeric>

#include "runtime/messages/assert.h"

namespace triage::policy {

KnownSources::Noted KnownSources::to_note(const Contents& contents, bool proven) const {
  Noted noted;
  noted.known_.push_back({contents, proven || this->proven(contents).value_or(false)});
  return noted;
}

void KnownSources::note(Noted noted) noexcept {
  if (noted.known_.empty()) return;
  const Contents& contents = noted.known_.front().contents;
  forget(contents);
  bytes_ += contents.bytes();
  known_.splice(known_.end(), noted.known_);
  while (known_.size() > 1 && (known_.size() > most || bytes_ > most_bytes)) {
    bytes_ -= known_.front().contents.bytes();
    known_.pop_front();
  }
  TRIAGE_ASSERT(bytes_ ==
                std::accumulate(known_.begin(), known_.end(), size_t{0},
                                [](size_t sum, const KnownSource& one) { return sum + one.contents.bytes(); }));
}

void KnownSources::forget(const Contents& contents) noexcept {
  const auto same =
      std::find_if(known_.begin(), known_.end(), [&](const KnownSource& known) { return known.contents == contents; });
  if (same == known_.end()) return;
  bytes_ -= same->contents.bytes();
  known_.erase(same);
}

std::optional<bool> KnownSources::proven(const Contents& contents) const {
  for (const KnownSource& known : known_)
    if (known.contents == contents) return known.proven;
  return std::nullopt;
}

}  // namespace triage::policy
