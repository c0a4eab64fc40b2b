#include "runtime/messages/debugging/verbose.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace triage::messages {
namespace {

std::atomic<bool>& state() {
  static std::atomic<bool> on = [] {
    const char* const value = std::getenv("TRIAGE_VERBOSE");
    return value && *value && std::string_view(value) != "0";
  }();
  return on;
}

}  // namespace

bool verbose() noexcept { return state().load(std::memory_order_relaxed); }
void set_verbose(bool on) noexcept { state() = on; }

std::string message_without_backtrace(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch ? of_torch->what_without_backtrace() : error.what();
}

std::string message_of(const std::exception& error) {
  return verbose() ? error.what() : message_without_backtrace(error);
}

std::string message_with_hint(const std::exception& error) {
  const bool hides = !verbose() && dynamic_cast<const c10::Error*>(&error);
  return message_of(error) + (hides ? " (TRIAGE_VERBOSE=1 shows its C++ side)" : "");
}

}  // namespace triage::messages
