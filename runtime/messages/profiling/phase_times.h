#pragma once
#include <chrono>
#include <string>

/// Adds up what triage::compile_times() returns (triage/compile_times.h).
namespace triage::messages {

/// Thread-safe.
void add_phase_time(const std::string& phase, const std::string& function,
                    std::chrono::steady_clock::duration time) noexcept;

/// compile_times() begins again with nothing. Thread-safe.
void forget_phase_times() noexcept;

}  // namespace triage::messages
