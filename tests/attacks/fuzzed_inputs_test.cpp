// Readers of bytes from outside run on valid inputs, on inputs that once showed a fault (tests/fuzz/inputs/found, one
// folder a target), and on the inputs that libFuzzer keeps because each reaches something new
// (tests/fuzz/inputs/corpus, one archive a target). Each input is read whole or refused. Each target runs in a process
// of its own.
#include "tests/attacks/forked.h"
#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>

namespace triage::fuzz {
namespace {

namespace fs = std::filesystem;
namespace testing = triage::lua::testing;

fs::path inputs_folder() { return fs::path(triage::test::source_dir()) / "tests/fuzz/inputs"; }
fs::path found_folder() { return inputs_folder() / "found"; }
fs::path corpus_of(const InputTarget& target) {
  return inputs_folder() / "corpus" / (std::string(target.name) + ".tar.gz");
}

/// What is wrong; empty where nothing is.
std::string fault(const std::function<std::string(const testing::Say&)>& work) {
  const testing::Ended ended = testing::in_fork(work, /*processor_seconds=*/120);
  return ended.death.empty() ? ended.text : ended.stage + ": " + ended.death;
}

std::string read_all(const InputTarget& target, const fs::path& folder, const testing::Say& say) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    say(entry.path().string());
    accepts(target, read_bytes(entry.path().string()));
  }
  return "";
}

std::string read_corpus(const InputTarget& target, const testing::Say& say) {
  const TemporaryFolder folder;
  const std::string command = fmt::format("tar -xzf '{}' -C '{}'", corpus_of(target).string(), folder.path().string());
  if (std::system(command.c_str()) != 0) return command + " failed";
  if (folder.names().size() < 100) return "the corpus is all but empty";
  return read_all(target, folder.path(), say);
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

TEST_CASE("inputs from outside: seeds are read, and what the fuzzer has found and kept is read or refused") {
  for (const InputTarget& target : input_targets()) {
    CAPTURE(target.name);
    CHECK(fault([&](const auto& say) { return read_seeds(target, say); }) == "");
    CHECK(fault([&](const auto& say) { return read_all(target, found_folder() / target.name, say); }) == "");
    CHECK(fault([&](const auto& say) { return read_corpus(target, say); }) == "");
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
