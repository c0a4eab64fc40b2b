#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace triage {

struct CannotStart : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs a program (looked for on PATH, by no shell) with `input` on its standard input; returns its output and errors together, up
/// to 1 MiB. Throws CannotStart, and std::runtime_error where it fails, or takes longer than `limit`, or `give_up` becomes true.
/// Whatever it has started in its process group ends with it. Its temporary files go to `folder`, where one is given: it leaves
/// them behind when it is ended.
std::string run_program(const std::vector<std::string>& words, const std::string& input,
                        std::chrono::duration<double> limit, const std::atomic<bool>& give_up,
                        const std::filesystem::path& folder = {});

}  // namespace triage
