#pragma once
#include <triage/error.h>

#include <cstddef>

namespace triage::capture {

/// What a script needs below the frame that calls a policy: Lua calls up to 200 functions of C inside each other, the
/// parser and the walkers over values nest as deep, and operators of LibTorch come on top.
/// tests/lua/sandbox/stack_test.cpp measures it. Sanitizers make frames several times as large.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
inline constexpr size_t least_stack = size_t{2} << 20;
#else
inline constexpr size_t least_stack = size_t{512} << 10;
#endif

/// Bytes that are left of this thread's stack; the largest number where nobody can tell (a stack that the host made
/// itself).
size_t stack_left() noexcept;

/// The thread that calls has too little: no version is to blame.
class StackError final : public InputError {
  using InputError::InputError;
};
/// Throws it where less than `least_stack` is left.
void require_stack();

}  // namespace triage::capture
