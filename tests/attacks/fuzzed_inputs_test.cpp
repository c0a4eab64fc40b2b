// What reads bytes from outside, on valid inputs and on what libFuzzer has found (tests/fuzz/inputs/found, one folder a target):
// each is read whole or refused, in a process of its own for each target.
#include "tests/attacks/forked.h"
#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <csignal>
#include <filesystem>
#include <set>

namespace triage::fuzz {
namespace {

namespace fs = std::filesystem;
namespace testing = triage::lua::testing;

fs::path found_folder() { return fs::path(triage::test::source_dir()) / "tests/fuzz/inputs/found"; }

/// What is wrong; empty where nothing is.
std::string fault(const std::function<std::string(const testing::Say&)>& work) {
  const testing::Ended ended = testing::in_fork(work, /*processor_seconds=*/120);
  return ended.death.empty() ? ended.text : ended.stage + ": " + ended.death;
}

std::string read_found(const InputTarget& target, const testing::Say& say) {
  for (const auto& entry : fs::directory_iterator(found_folder() / target.name)) {
    say(entry.path().string());
    accepts(target, read_bytes(entry.path().string()));
  }
  return "";
}

std::string read_seeds(const InputTarget& target, const testing::Say& say) {
  const std::vector<std::string> seeds = target.seeds();
  if (seeds.size() < 2) return "it has no seeds";
  size_t accepted = 0;
  for (size_t i = 0; i < seeds.size(); ++i) {
    say(fmt::format("seed {}", i + 1));
    accepted += accepts(target, seeds[i]);
  }
  return accepted > 0 ? "" : "all of its seeds are refused";
}

void crash(std::string_view) {
  std::signal(SIGSEGV, SIG_DFL);  // not the handler of the tests
  *reinterpret_cast<volatile int*>(8) = 1;
}
void throw_another(std::string_view) { throw std::out_of_range("at"); }
void refuse(std::string_view) { throw FileError("no"); }

}  // namespace

TEST_CASE("inputs from outside: seeds are read, and what the fuzzer has found is read or refused") {
  for (const InputTarget& target : input_targets()) {
    CAPTURE(target.name);
    CHECK(fault([&](const auto& say) { return read_seeds(target, say); }) == "");
    CHECK(fault([&](const auto& say) { return read_found(target, say); }) == "");
  }
}

TEST_CASE("inputs from outside: a crash, an exception that is not of triage, and a broken law are seen") {
  const auto run = [](void (*reader)(std::string_view)) {
    return fault([&](const testing::Say&) {
      return std::string(accepts({"", "", reader, nullptr}, "bytes") ? "accepted" : "refused");
    });
  };
  CHECK(run(refuse) == "refused");
  CHECK(run([](std::string_view) {}) == "accepted");
  CHECK(run(crash) != "");
  CHECK(run(throw_another).find("at") != std::string::npos);
}

TEST_CASE("inputs from outside: each target has what was found for it, and nothing else is kept") {
  std::set<std::string> kept, names;
  for (const auto& entry : fs::directory_iterator(found_folder())) kept.insert(entry.path().filename().string());
  for (const InputTarget& target : input_targets()) names.insert(target.name);
  CHECK(kept == names);
}

}  // namespace triage::fuzz
