#pragma once
#include <cstdint>
#include <functional>
#include <string>

/// Work in a child process, which may crash, hang or use up memory without harm to this one.
namespace triage::diagnose {

struct ChildLimits {
  double seconds = 10;
  int64_t bytes = int64_t{4} << 30;  // of memory besides what this process has now
};

struct ChildEnd {
  enum class Kind : uint8_t { finished, crashed, timed_out, killed };
  Kind kind;
  int signal = 0;      // of a crash
  int status = 0;      // of one that ended by itself too early, or started another program
  std::string output;  // what `work` returned
};

/// What became of a child that did not finish: "crashes the process with signal 11 (Segmentation fault)".
std::string describe(const ChildEnd& end, const ChildLimits& limits);

/// Runs `work` in a fork of this process, which must not have started threads that `work` needs: a fork has one thread,
/// and LibTorch's pool of threads would be waited for without end. The child prints nothing. `work` must not throw.
ChildEnd run_in_child(const std::function<std::string()>& work, const ChildLimits& limits);

}  // namespace triage::diagnose
