#pragma once
#include <triage/backend.h>

#include <functional>
#include <string>

#include "runtime/diagnose/minify/child.h"
#include "runtime/diagnose/program_run.h"

/// Makes a graph program that fails as small as it gets, while it fails the same way: delta debugging. Each candidate
/// runs in a child process.
namespace triage::diagnose {

struct MinifierOptions {
  ChildLimits child;     // of each candidate
  double seconds = 300;  // in all; then the smallest program so far is the result
  std::function<void(const std::string&)> say = [](const std::string&) {};  // progress, a line each
};

struct Minified {
  GraphProgram program;
  std::string failure;    // for a person
  size_t candidates = 0;  // that were tried
  bool finished = true;   // false: the time was over
};

/// Throws InputError where the program does not fail. `program.backend` is `backend`'s name.
/// The process must be one that `run_in_child` can fork, and `at::get_num_threads()` be 1.
Minified minify(const GraphProgram& program, const Backend& backend, const MinifierOptions& options);

}  // namespace triage::diagnose
