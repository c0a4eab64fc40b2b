// The C++ of docs/decisions.md and docs/incidents.md, which examples_test.cpp finds here: compiled, and run.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/capsule.h>
#include <triage/triage.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/cli/folder.h"

namespace {

/// The files of the page lie in the current folder.
struct CurrentFolder {
  explicit CurrentFolder(const std::filesystem::path& path) { std::filesystem::current_path(path); }
  ~CurrentFolder() { std::filesystem::current_path(before); }
  const std::filesystem::path before = std::filesystem::current_path();
};

triage::RuntimeOptions usual_options() {
  triage::DecisionLogOptions log;
  log.file = "decisions.jsonl";
  triage::RuntimeOptions options;
  options.decisions = std::make_shared<triage::DecisionLog>(log);
  options.cache_dir = "cache";
  return options;
}

triage::RuntimeOptions careful_options(const std::string& key_of_this_service) {
  triage::DecisionLogOptions log;
  log.file = "careful.jsonl";
  log.drop = {"path", "trace_id"};
  log.mask = {"sample_id", "decision_id"};
  log.mask_key = key_of_this_service;
  log.capsule_dir = "capsules";
  log.max_capsules = 100;
  log.capsule_bad_rows = true;  // only the flagged samples
  triage::RuntimeOptions options;
  options.decisions = std::make_shared<triage::DecisionLog>(log);
  return options;
}

void call_once(const triage::RuntimeOptions& options) {
  triage::Runtime runtime(options);
  const triage::Policy repair = runtime.load_source(
      "return function(z) local f = flag_nan(z, 'windows') return fix(z, f, 'windows'), f end", "repair.lua");
  at::Tensor z = at::ones({2, 3});
  z[1][0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::string> ids = {"user-7", "user-8"};
  triage::RunOptions call;
  call.decision_id = "order-1041";
  call.trace_id = "4bf92f3577b34da6";
  call.sample_ids = ids;
  auto [y, f] = repair.run<2>({z}, call);
}

}  // namespace

TEST_CASE("the logs of docs/decisions.md hold names or hide them, and a decision is replayed") {
  const TemporaryFolder folder;
  const CurrentFolder here(folder.path());
  call_once(usual_options());
  const std::string plain = read_bytes(folder / "decisions.jsonl");
  CHECK(plain.find("\"sample_id\":\"user-8\"") != std::string::npos);
  CHECK(plain.find("order-1041") != std::string::npos);
  CHECK(plain.find("\"event\":\"live\"") != std::string::npos);
  CHECK_FALSE(std::filesystem::is_empty(folder / "cache/sources"));
  call_once(careful_options("secret"));
  const std::string careful = read_bytes(folder / "careful.jsonl");
  for (const char* hidden : {"user-8", "order-1041", "4bf92f3577b34da6", "repair.lua"})
    CHECK(careful.find(hidden) == std::string::npos);
  const size_t begin = careful.find("capsules/"), end = careful.find('"', begin);
  REQUIRE(begin != std::string::npos);
  CHECK(triage::replay(careful.substr(begin, end - begin)).same);
}
