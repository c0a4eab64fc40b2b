#include "runtime/policy/known_sources.h"

#include <algorithm>

namespace triage::policy {

void KnownSources::note(const std::string& source, bool proven) {
  Known known{source, proven || this->proven(source).value_or(false)};
  forget(source);
  known_.push_back(std::move(known));
  bytes_ += source.size();
  while (known_.size() > 1 && (known_.size() > most || bytes_ > most_bytes)) {
    bytes_ -= known_.front().source.size();
    known_.pop_front();
  }
}

void KnownSources::forget(std::string_view source) {
  const auto same =
      std::find_if(known_.begin(), known_.end(), [&](const auto& known) { return known.source == source; });
  if (same == known_.end()) return;
  bytes_ -= source.size();
  known_.erase(same);
}

std::optional<bool> KnownSources::proven(std::string_view source) const {
  for (const Known& known : known_)
    if (known.source == source) return known.proven;
  return std::nullopt;
}

}  // namespace triage::policy
