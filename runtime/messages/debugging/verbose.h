#pragma once
#include <exception>
#include <string>

/// Whether messages about a failed capture or backend show the C++ side as well: LibTorch's errors with where in C++
/// they came from. For the process; at first what TRIAGE_VERBOSE says. Thread-safe.
namespace triage::messages {

bool verbose() noexcept;
void set_verbose(bool on) noexcept;

/// What the error says, without where in C++ LibTorch's errors come from.
std::string message_without_backtrace(const std::exception& error);
/// What the error says; its C++ side only where `verbose`.
std::string message_of(const std::exception& error);
/// The same, and where it has a C++ side that is not shown, how to see that. For messages about what is not the
/// script's fault.
std::string message_with_hint(const std::exception& error);

}  // namespace triage::messages
