// Whatever fails, triage survives it: no crash, no hang, no damaged file, and the last good version serves. Each
// failure happens in a process of its own, which goes through a life of policies (lives.cpp).
//
// TRIAGE_FAILURE_STEP=1 tries every N, from TRIAGE_FAILURE_FROM to TRIAGE_FAILURE_TO, and takes hours;
// TRIAGE_FAILURE_STEP=stacks tries the first allocation of each call stack; without it some are tried.
// TRIAGE_FAILURE_LIFE=NAME: only in that life.
#include "tests/attacks/forked.h"
#include "tests/failures/failing.h"
#include "tests/failures/life.h"
#include "tests/logs.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/triage.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

namespace triage::test {
namespace {

namespace testing = lua::testing;

struct NamedLife {
  const char* name;
  void (*live)(Life&);
};

const NamedLife lives[] = {{"alone", live_alone},        {"state", live_with_state},
                           {"bundle", live_in_a_bundle}, {"candidates", live_with_candidates},
                           {"watched", live_watched},    {"followed", live_followed},
                           {"files", live_with_files}};

uint64_t asked(const char* name, uint64_t usual) {
  const char* const text = std::getenv(name);
  return std::max<uint64_t>(1, text ? std::strtoull(text, nullptr, 10) : usual);
}

/// What was wrong in the life; empty where all is well. With `nth` 0: the numbers of first_of_each_stack, and how many
/// operations there were.
testing::Ended lived(const NamedLife& life, const Failure& failure) {
  constexpr double seconds = 60;
  return testing::in_fork(
      [&](const auto& say) {
        Life scene(say, failure);
        life.live(scene);
        if (failure.nth > 0 || !scene.problem.empty()) return scene.problem;
        return fmt::format("{} {}", fmt::join(first_of_each_stack(), " "), scene.operations);
      },
      seconds);
}

/// Those that are tried, of a life without failures.
std::vector<uint64_t> chosen(std::istringstream numbers, uint64_t most) {
  std::vector<uint64_t> list{std::istream_iterator<uint64_t>(numbers), {}};
  REQUIRE_MESSAGE(!list.empty(), numbers.str());
  const uint64_t operations = list.back();
  list.pop_back();
  MESSAGE(operations << " operations, from " << list.size() << " call stacks");
  const uint64_t from = asked("TRIAGE_FAILURE_FROM", 1),
                 to = std::min(operations, asked("TRIAGE_FAILURE_TO", operations));
  const char* const step = std::getenv("TRIAGE_FAILURE_STEP");
  if (step && std::string(step) == "stacks") {
    std::erase_if(list, [&](uint64_t nth) { return nth < from || nth > to; });
    return list;
  }
  list.clear();
  for (uint64_t nth = from; nth <= to; nth += asked("TRIAGE_FAILURE_STEP", operations / most)) list.push_back(nth);
  return list;
}

void survives(Fails kind, uint64_t most) {
  const char* const only = std::getenv("TRIAGE_FAILURE_LIFE");
  for (const NamedLife& life : lives) {
    if (only && std::string(only) != life.name) continue;
    // Without memory a replay differs from what was recorded.
    if (std::string(life.name) == "files" && (kind == Fails::allocation || kind == Fails::tensor)) continue;
    CAPTURE(std::string(life.name));
    const testing::Ended clean = lived(life, {kind});
    REQUIRE_MESSAGE(clean.death.empty(), clean.death << " at: " << clean.stage);
    for (const uint64_t nth : chosen(std::istringstream(clean.text), most))
      for (const uint64_t more : {uint64_t{0}, uint64_t{1000000}}) {
        if (more > 0 && kind != Fails::file && kind != Fails::system) continue;  // a full disk stays full
        const testing::Ended ended = lived(life, {kind, nth, more});
        const std::string which = std::to_string(nth) + (more > 0 ? " and all after it" : "");
        CHECK_MESSAGE((ended.death.empty() && ended.text.empty()), std::string(life.name)
                                                                       << ", failure " << which << ", " << ended.stage
                                                                       << ": " << ended.death << ended.text);
      }
  }
}

}  // namespace

TEST_CASE("the Nth allocation of triage fails: no crash, and a version serves") { survives(Fails::allocation, 40); }

TEST_CASE("the Nth tensor cannot be allocated: no crash, and a version serves") { survives(Fails::tensor, 20); }

TEST_CASE("the Nth file operation fails, or all from the Nth on: no crash, no damaged file, and a version serves") {
  survives(Fails::file, 20);
}

TEST_CASE(
    "the Nth call of the system fails, or all from the Nth on: only triage::Error, no crash, and a version serves") {
  survives(Fails::system, 3);
}

TEST_CASE("a script that hits its budget anywhere leaves no damage") {
  RuntimeOptions options;
  options.log = no_log();
  const auto try_once = [&] {
    try {
      Runtime runtime(options);
      runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; }, {.pure = true});
      runtime.define_tensor("nothing", at::zeros({8}));
      const std::string problem = wrong(runtime.load_source(repair_source(1), "p.lua").run({bad_batch()}), 1);
      CHECK(problem == "");
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  bool fits = false;
  for (uint64_t bytes = 1 << 10; bytes < 4u << 20; bytes += bytes / 16) {
    CAPTURE(bytes);
    options.limits.script_bytes = bytes;
    fits = try_once();
  }
  CHECK(fits);
  options.limits = {};
  for (uint64_t instructions = 1; instructions < 100'000; instructions += 1 + instructions / 8) {
    CAPTURE(instructions);
    options.limits.instructions = instructions;
    fits = try_once();
  }
  CHECK(fits);
}

}  // namespace triage::test
