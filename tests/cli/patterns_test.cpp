// examples/patterns: each program runs and prints exactly what its arrows promise.
#include <doctest/doctest.h>

#include <sstream>

#include "tests/cli/program.h"
#include "tests/paths.h"

namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::path(triage::test::source_dir()) / "examples" / "patterns";

std::string promised_output(const std::string& program) {
  std::string text;
  std::istringstream lines(program);
  for (std::string line; std::getline(lines, line);) {
    const size_t arrow = line.find("--> ");
    if (arrow != std::string::npos) text += line.substr(arrow + 4) + "\n";
  }
  return text;
}

void check_pattern(const std::string& name) {
  CAPTURE(name);
  TemporaryFolder elsewhere;
  const std::string path = (folder / (name + ".lua")).string();
  const Ran ran = triage_program(elsewhere, {"exec", path});
  CHECK(ran.err.empty());
  CHECK(ran.status == 0);
  const std::string promised = promised_output(read_bytes(path));
  CHECK_FALSE(promised.empty());
  CHECK(ran.out == promised);
}

}  // namespace

TEST_CASE("T33: drop bad samples") { check_pattern("drop_bad_samples"); }
TEST_CASE("T33: replace bad samples by a fallback") { check_pattern("fall_back"); }
TEST_CASE("T33: log and continue") { check_pattern("log_and_continue"); }
TEST_CASE("T33 T08: partition for separate handling") { check_pattern("partition"); }
TEST_CASE("T33: indices of the bad samples") { check_pattern("bad_indices"); }
TEST_CASE("T33 T15: recover on a condition inside one captured graph") { check_pattern("recover_on_condition"); }
TEST_CASE("T01 T33: flags ride along with a captured model, and every sample comes out") {
  check_pattern("follow_the_layers");
}
TEST_CASE("T11 T33: replace values, without a gradient through them") { check_pattern("replace_values"); }
TEST_CASE("T11 T12 T33: work on clean or on bad samples only") { check_pattern("clean_samples_only"); }
TEST_CASE("T11 T33: chain steps, frozen or accumulating") { check_pattern("chain_steps"); }
TEST_CASE("T31 T33: train through a batch with bad samples") { check_pattern("train_safely"); }
TEST_CASE("T27 T33: keep the first, the last or the worst errors of a full record") {
  check_pattern("keep_what_matters");
}
TEST_CASE("D20: a backend of one's own, given the graph") { check_pattern("toy_backend"); }

TEST_CASE("T33: every program of examples/patterns has its test here, and stands in docs/policy-library.md") {
  const std::string tests = read_bytes(triage::test::source_dir() + "/tests/cli/patterns_test.cpp");
  const std::string page = read_bytes(triage::test::source_dir() + "/docs/policy-library.md");
  for (const auto& entry : fs::directory_iterator(folder)) {
    CAPTURE(entry.path().string());
    CHECK(page.find("| `" + entry.path().filename().string() + "` |") != std::string::npos);
    CHECK(tests.find("check_pattern(\"" + entry.path().stem().string() + "\")") != std::string::npos);
  }
}
