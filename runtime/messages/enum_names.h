#pragma once
#include <cstddef>

namespace triage::messages {

/// The name of an enumerator, of those that count from 0 to `last`; "unknown" for a number that is none of them.
template <auto last, size_t count>
const char* name_in(const char* const (&names)[count], decltype(last) value) noexcept {
  static_assert(static_cast<size_t>(last) + 1 == count);
  return static_cast<size_t>(value) < count ? names[static_cast<size_t>(value)] : "unknown";
}

}  // namespace triage::messages
