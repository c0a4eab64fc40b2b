#pragma once
#include <cstdio>
#include <cstdlib>

/// TRIAGE_ASSERT(condition) states what the code around it relies on, and no caller, script or file can break. A build
/// with TRIAGE_ASSERTIONS (Debug, `./dev sanitize`) checks it and aborts where it is false; others compile it but never
/// evaluate it. What a caller can break throws instead.
#ifdef TRIAGE_ASSERTIONS
#define TRIAGE_ASSERT(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : ::triage::assertion_failed(#__VA_ARGS__, __FILE__, __LINE__))
#else
#define TRIAGE_ASSERT(...) static_cast<void>(sizeof((__VA_ARGS__) ? 1 : 0))
#endif

namespace triage {

/// For `if constexpr`: work that is done only to be asserted about.
#ifdef TRIAGE_ASSERTIONS
constexpr bool kAssertions = true;
#else
constexpr bool kAssertions = false;
#endif

/// Not through a log: its state may be what is broken.
[[noreturn]] inline void assertion_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace triage
