#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace triage {

/// A program to run: looked for on PATH, by no shell.
struct ProgramCall {
  std::vector<std::string> words;
  std::string input = {};  // on its standard input
  std::chrono::duration<double> limit = std::chrono::minutes(1);
  /// Which variables of this process's environment ("NAME=value") it gets; null: all.
  bool (*gets)(std::string_view variable) = nullptr;
  /// Whatever it has started ends with it. Without, a key such as Ctrl-C, which ends this process, ends it as well.
  bool own_group = true;
};

struct ProgramEnd {
  int status;  // 0 as well where this process cannot wait for its children: then what was to be made tells how it went
  std::string output;  // and errors together, up to 1 MiB
};

/// Throws std::runtime_error where it cannot be started, takes too long, or a signal ends it.
ProgramEnd run_to_end(const ProgramCall& program);

/// Its output. Throws std::runtime_error with the beginning of it also where the exit status is not 0.
std::string run_program(const ProgramCall& program);

}  // namespace triage
