#include "runtime/capture/thread_stack.h"

#include <fmt/format.h>
#include <pthread.h>

#include <limits>

#include "runtime/capture/context.h"

namespace triage::capture {
namespace {

/// For the first thread the C library reads a file for this, so it is asked once. Where it does not know, the stack has
/// no bytes.
void find_bounds() noexcept {
  static constexpr char nowhere = 0;
  context.stack_low = context.stack_high = &nowhere;
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return;
  void* low = nullptr;
  size_t size = 0;
  if (::pthread_attr_getstack(&attributes, &low, &size) == 0) {
    context.stack_low = static_cast<const char*>(low);
    context.stack_high = context.stack_low + size;
  }
  ::pthread_attr_destroy(&attributes);
}

}  // namespace

size_t stack_left() noexcept {
  if (!context.stack_high) find_bounds();
  const auto* const here = static_cast<const char*>(__builtin_frame_address(0));
  if (here < context.stack_low || here >= context.stack_high) return std::numeric_limits<size_t>::max();
  return static_cast<size_t>(here - context.stack_low);
}

void require_stack() {
  const size_t left = stack_left();
  if (left >= least_stack) return;
  throw StackError(fmt::format(
      "the thread that calls has {} KiB of stack left, and a script needs {} KiB; give the thread a larger stack "
      "(pthread_attr_setstacksize), or call from another one",
      left >> 10, least_stack >> 10));
}

}  // namespace triage::capture
