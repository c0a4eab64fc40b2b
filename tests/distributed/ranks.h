#pragma once
#include <triage/distributed.h>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace triage::test {

/// What one rank does. Its result is text.
using RankWork = std::function<std::string(const Group& group)>;

/// Runs `work` in as many processes, connected by Gloo over a file and the loopback device. Gives what each returned,
/// "threw: ..." for an exception, "signal: ..." for one that a signal ended, and "stopped" for one that was stopped
/// when all others had ended. Processes that are there after a minute, which nothing here takes, are killed: "it
/// hangs".
std::vector<std::string> in_ranks(int count, std::chrono::milliseconds timeout, const RankWork& work);

/// What the exception says that `call` throws; "no error" where it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

/// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace triage::test
