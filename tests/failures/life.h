#pragma once
#include "tests/attacks/forked.h"
#include "tests/failures/failing.h"

#include <ATen/core/Tensor.h>
#include <triage/triage.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Lives of policies in which something fails at one moment: what they go through, and what must hold afterwards.
namespace triage::test {

/// What fails, and when; `nth` 0: nothing, and the operations are counted.
struct Failure {
  Fails kind;
  uint64_t nth = 0, more = 0;
};

/// A Runtime with a cache, a decision log in a file, and what a host gives, in a folder of its own.
class Life {
 public:
  Life(const lua::testing::Say& say, const Failure& failure);
  ~Life();
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  /// From here on something fails: the Runtime is made, with its decision log.
  void begin();
  /// Goes through `work`, which may throw what a failure makes it throw, and nothing else. Whether it came to its end.
  template <class Work>
  bool step(const char* name, const Work& work) {
    return go_through(name, std::cref(work));  // which allocates nothing
  }
  /// From here on nothing fails. Checks the decision log.
  void end();
  /// The first thing that is found to be wrong stays.
  void check(bool holds, const std::string& otherwise);
  void check(const std::string& problem) { check(problem.empty(), problem); }
  /// As at a restart, with the same folder.
  Runtime& restart();

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const;

  std::optional<Runtime> runtime;
  std::string problem;
  uint64_t operations = 0;

 private:
  bool go_through(const char* name, const std::function<void()>& work);
  void check_log();

  const lua::testing::Say& say_;
  const Failure failure_;
  const std::filesystem::path folder_;
  std::shared_ptr<DecisionLog> decisions_;
};

/// Version `version` of a policy that repairs with that number; it calls the function `same` of the host, adds the
/// tensor `nothing` of the host, and counts its calls in the state `calls`.
std::string repair_source(int version, const char* behind = "");
/// The same with an expression for the number.
std::string repair_source(const char* number, const char* behind);
/// What is wrong with an answer of it; empty where it is right.
std::string wrong(const std::vector<at::Tensor>& outputs, int version);
/// The version that answers; 0 where that is none of 1 to `newest`.
int version_of(const std::vector<at::Tensor>& outputs, int newest);
const at::Tensor& bad_batch();

void live_alone(Life& life);
void live_with_state(Life& life);
void live_in_a_bundle(Life& life);
void live_with_candidates(Life& life);
void live_watched(Life& life);
void live_followed(Life& life);
void live_with_files(Life& life);

}  // namespace triage::test
