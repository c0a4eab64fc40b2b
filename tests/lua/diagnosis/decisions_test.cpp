// The decision log with policies in Lua: what stands in a line, and capsules of decisions, which replay to the same
// bits.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <triage/triage.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/folder.h"
#include "tests/lua/policies/policies.h"

namespace {

namespace fs = std::filesystem;
using triage::DecisionLog;
using triage::DecisionLogOptions;
using triage::test::batch_with_bad_values;
using Json = nlohmann::json;

/// Random numbers, a param, and a variable that outlives calls: a replay must have them as they were.
constexpr const char* drawing = R"(
local factor = torch.full({3}, 2.0)
return policy {
  name = "drawing",
  params = { low = 0.25 },
  run = function(z, p)
    local f = flag_nan_and_inf(z, "encoder")
    local y = z * factor + p.low + torch.randn({3})
    return fix(y, f, "encoder"), f
  end,
})";

constexpr const char* counting_policy = R"(
local calls = {n = 0}
return function(z)
  calls.n = calls.n + 1
  local f = flag_nan(z, "counted")
  if z:sum():item() > 1e9 then z = z * 0 end
  return fix(z * calls.n, f, "counted"), f
end)";

constexpr const char* failing = "return function(z) local f = flag_nan(z, 'x') return z:reshape({7, -1}), f end";

std::vector<Json> lines_of(const std::string& path) {
  std::istringstream text(read_bytes(path));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// A log in a folder, with capsules.
struct DecisionsScene {
  TemporaryFolder folder;
  std::shared_ptr<DecisionLog> log;

  explicit DecisionsScene(DecisionLogOptions options = {}) {
    options.file = folder / "d.jsonl";
    options.events = false;
    if (options.capsule_dir.empty()) options.capsule_dir = folder / "capsules";
    log = std::make_shared<DecisionLog>(options);
  }
  triage::RuntimeOptions runtime(const std::string& backend = "fused") const {
    triage::RuntimeOptions options;
    options.backend = backend;
    options.decisions = log;
    options.log = [](const triage::LogRecord&) {};
    return options;
  }
  std::vector<Json> lines() const {
    log->flush();
    return lines_of(folder / "d.jsonl");
  }
};

}  // namespace

TEST_CASE("a logged decision replays bit for bit from its capsule, on every backend, cold and warm, at every size") {
  for (const std::string backend : {"fused", "eager", "aot_eager"}) {
    for (const char* source : {drawing, counting_policy}) {
      CAPTURE(backend);
      CAPTURE(source);
      const DecisionsScene scene;
      triage::Runtime runtime(scene.runtime(backend));
      const triage::Policy policy = runtime.load_source(source, "p.lua");
      std::vector<std::vector<at::Tensor>> answers;
      for (const int64_t rows : {2, 31, 32, 33, 2, 33, 1, 33})
        answers.push_back(policy.run({batch_with_bad_values(rows)}));
      const std::vector<Json> lines = scene.lines();
      REQUIRE(lines.size() == 7);  // one row has no NaN
      for (const Json& line : lines) {
        REQUIRE(line.contains("capsule"));
        const std::string file = line["capsule"];
        struct stat status {};
        REQUIRE(::stat(file.c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0600);
        const triage::Replayed replayed = triage::replay(file);
        CHECK_MESSAGE(replayed.same, replayed.difference);
        CHECK(replayed.recorded == "2 outputs");
      }
    }
  }
}

TEST_CASE("a decision of a failed call names the capsule of the failure, whatever answers") {
  const DecisionsScene scene;
  triage::Runtime runtime(scene.runtime());
  const triage::Policy policy = runtime.load_source(failing, "failing.lua");
  CHECK_THROWS_AS(policy.run({batch_with_bad_values(4)}), triage::PolicyError);
  const triage::Policy good = runtime.load_source(
      "return policy { outputs = {'z', 'f'}, on_error = 'pass_through',\n run = function(z)\n"
      "local f = flag_nan(z, 'x') return torch.mm(torch.eye(7), z), f end }",
      "passing.lua");
  good.run({at::zeros({7, 3})});
  good.run({batch_with_bad_values(4)});
  const std::vector<Json> lines = scene.lines();
  REQUIRE(lines.size() == 2);
  for (const Json& line : lines) {
    REQUIRE(line.contains("capsule"));
    const triage::Replayed replayed = triage::replay(line["capsule"]);
    CHECK_MESSAGE(replayed.same, replayed.difference << "; recorded: " << replayed.recorded);
    CHECK(replayed.recorded.find("PolicyError") == 0);
  }
  CHECK(lines[1]["answered"] == "passed_through");
}

TEST_CASE("a capsule of a decision may have the flagged samples alone; there are at most so many") {
  DecisionLogOptions options;
  options.capsule_bad_rows = true;
  options.max_capsules = 2;
  const DecisionsScene scene(options);
  triage::Runtime runtime(scene.runtime());
  const triage::Policy policy = runtime.load_source(
      "return function(z) local f = flag_nan_and_inf(z, 'x') return fix(z * 2, f, 'x'), f end", "p.lua");
  for (int i = 0; i < 4; ++i) policy.run({batch_with_bad_values(33)});
  policy.run({at::ones({33, 3})});
  const std::vector<Json> lines = scene.lines();
  REQUIRE(lines.size() == 4);
  CHECK(lines[1].contains("capsule"));
  CHECK_FALSE(lines[2].contains("capsule"));
  const triage::Replayed replayed = triage::replay(lines[1]["capsule"]);
  CHECK_MESSAGE(replayed.same, replayed.difference);
  bool said = false;
  for (const std::string& note : replayed.notes) said |= note.find("it has 2 samples of the batch") == 0;
  CHECK(said);
}

TEST_CASE("a folder for capsules that cannot be made is told once; lines go on without") {
  TemporaryFolder blocked;
  write_bytes(blocked / "file", "");
  std::vector<std::string> told;
  DecisionLogOptions options;
  options.capsule_dir = blocked / "file/below";
  options.log = [&](const triage::LogRecord& record) { told.emplace_back(record.text); };
  const DecisionsScene scene(options);
  triage::Runtime runtime(scene.runtime());
  const triage::Policy policy = runtime.load_source(drawing, "p.lua");
  for (int i = 0; i < 3; ++i) policy.run({batch_with_bad_values(4)});
  const std::vector<Json> lines = scene.lines();
  REQUIRE(lines.size() == 3);
  for (const Json& line : lines) CHECK_FALSE(line.contains("capsule"));
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("a decision has no capsule: ") == 0);
}

TEST_CASE("where calls that fail have capsules anyway, a decision names that one") {
  TemporaryFolder folder;
  triage::Diagnostics diagnostics;
  diagnostics.replay_dir = folder / "failures";
  triage::set_diagnostics(diagnostics);
  DecisionLogOptions options;
  options.file = folder / "d.jsonl";
  options.events = false;
  const auto log = std::make_shared<DecisionLog>(options);
  triage::RuntimeOptions with_log;
  with_log.decisions = log;
  with_log.log = [](const triage::LogRecord&) {};
  triage::Runtime runtime(with_log);
  CHECK_THROWS(runtime.load_source(failing, "failing.lua").run({batch_with_bad_values(4)}));
  triage::set_diagnostics({});
  log->flush();
  const Json line = lines_of(folder / "d.jsonl").at(0);
  CHECK(line["capsule"].get<std::string>().find(folder / "failures") == 0);
  CHECK(triage::replay(line["capsule"]).same);
}

TEST_CASE("a call that is recorded on demand keeps its own capsule, which its decision names") {
  const DecisionsScene scene;
  triage::Runtime runtime(scene.runtime());
  const triage::Policy policy = runtime.load_source(drawing, "p.lua");
  triage::record(policy, {batch_with_bad_values(4)}, {scene.folder / "own.pt"});
  const Json line = scene.lines().at(0);
  CHECK(line["capsule"] == scene.folder / "own.pt");
  CHECK(triage::replay(scene.folder / "own.pt").same);
  CHECK_FALSE(fs::exists(scene.folder / "capsules"));
}
