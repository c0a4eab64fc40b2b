// `triage bench`: what it reports, not how long things take.
#include "tests/cli/program.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace {

constexpr const char* benched_policy = R"(return policy {
  inputs = { "z" }, outputs = { "z", "f" },
  run = function(z) local f = flag_nan(z, "x") return fix(z, f, "x") end,
  tests = {{ name = "small", args = function() return torch.ones({2, 3}) end, check = function() return true end },
           { name = "larger", args = function() return torch.ones({6, 3}) end, check = function() return true end }},
})";

struct BenchScene {
  TemporaryFolder folder;
  BenchScene() { write_bytes(folder / "repair.lua", benched_policy); }
  Ran operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--seconds", "0"});
    return triage_program(folder, arguments);
  }
};

std::vector<int64_t> rows_of(const nlohmann::json& json) {
  std::vector<int64_t> rows;
  for (const auto& batch : json["batches"]) rows.push_back(batch["rows"].get<int64_t>());
  return rows;
}

}  // namespace

TEST_CASE("an input as large as a row is no batch, even where there are as many rows as values in one") {
  const BenchScene scene;
  write_bytes(scene.folder / "scale.lua",
              "return policy {inputs = {'z', 'w'}, run = function(z, w) return z * w end}\n");
  const std::pair<const char*, const char*> inputs[] = {{"z=randn:8x8", "w=randn:8"}, {"z=randn:4x4x8", "w=randn:4x8"}};
  for (const auto& [z, w] : inputs) {
    const Ran ran = scene({"scale.lua", "--input", z, "--input", w, "--batches", "2,16", "--json"});
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
  }
}

TEST_CASE("bench --json: a line for each batch size, the first call, and what bounds it") {
  const BenchScene scene;
  const Ran ran = scene({"repair.lua", "--input", "z=randn:8x16,nan=2", "--batches", "4,1,8,4", "--json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  CHECK(ran.err.empty());
  const auto json = ran.json();
  CHECK(json["policy"] == "repair");
  CHECK(json["inputs"] == parse_json(R"(["z float32 8x16"])"));
  CHECK(json["from"] == "the inputs given");
  CHECK(json["threads"] == 1);
  CHECK(json["graphs"].get<int>() >= 1);
  CHECK(json["graph_breaks"].empty());
  CHECK(rows_of(json) == std::vector<int64_t>{1, 4, 8});
  for (const auto& batch : json["batches"]) {
    CHECK(batch["bytes"] == batch["rows"].get<int64_t>() * 16 * 4);
    for (const char* field : {"read_us", "copy_us", "script_us", "eager_us", "fused_us", "ratio"})
      CHECK(batch[field].get<double>() > 0);
    CHECK(batch["limit"] == "copy");  // it gives data, not flags alone
    const std::string bound = batch["bound"];
    CHECK((bound == "overhead" || bound == "memory" || bound == "compute"));
    CHECK(has(json["bounds"], ": " + bound + " ("));
  }
  CHECK(json["call_us"].get<double>() >= 0);
  CHECK(json["first_call"]["script_ms"].get<double>() > 0);
  CHECK(json["first_call"]["first_ms"].get<double>() > 0);
}

TEST_CASE("bench for people: a table, and a closing sentence with the figures it follows from") {
  const BenchScene scene;
  const Ran ran = scene({"repair.lua", "--batches", "1,6"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  for (const char* part : {"repair\n", "input     z float32 6x3\n", "from      test \"larger\"\n", "fused / copy",
                           "first call ", "Bottleneck of the fused code: 1 "})
    CHECK_MESSAGE(has(ran.out, part), ran.out);
  CHECK(has(ran.out.substr(ran.out.find("Bottleneck")), " us"));
}

TEST_CASE("bench takes declared types for inputs, and the read as the limit of what only looks") {
  const BenchScene scene;
  write_bytes(scene.folder / "typed.lua",
              "return policy { inputs = {'z', 'w'}, outputs = {'f'}, params = {limit = 2.0},\n"
              "  signature = { z = Tensor(float32_t, {'N', 24}), w = Tensor(int64_t, {'N'}) },\n"
              "  run = function(z, w, p)\n"
              "    return push(flag_nan(z, 'x'), err.SATURATED, 'x', {where = w:gt(p.limit)})\n  end }\n");
  const Ran ran = scene({"typed.lua", "--json", "--batches", "2,40", "--param", "limit=0.5"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  const auto json = ran.json();
  CHECK(json["from"] == "its declared types");
  CHECK(json["inputs"] == parse_json(R"(["z float32 32x24", "w int64 32"])"));
  CHECK(rows_of(json) == std::vector<int64_t>{2, 40});
  CHECK(json["batches"][0]["bytes"] == 2 * (24 * 4 + 8));
}

TEST_CASE("bench of a policy that is no single graph says so") {
  const BenchScene scene;
  write_bytes(scene.folder / "breaks.lua",
              "return function(z) if has_err(flag_nan(z, 'x')) then return z * 0 end return z * 2 end");
  const Ran ran = scene({"breaks.lua", "--input", "z=randn:4x4", "--batches", "4", "--json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  CHECK(ran.json()["graph_breaks"].size() >= 1);
}

TEST_CASE("bench, used wrongly, and with a policy that fails") {
  const BenchScene scene;
  const auto refused = [&](const Ran& ran, int status, const std::string& part) {
    CAPTURE(ran.err);
    CHECK(ran.status == status);
    CHECK(ran.out.empty());
    CHECK(has(ran.err, part));
  };
  refused(scene({"nowhere.lua"}), 2, "there is no such file");
  refused(scene({"repair.lua", "--batches", "0"}), 2, "--batches");
  refused(scene({"repair.lua", "--batches", "many"}), 2, "--batches");
  refused(scene({"repair.lua", "--input", "y=ones:2"}), 2, "has no input \"y\"");
  write_bytes(scene.folder / "bare.lua", "return function(z) return z * 2 end");
  refused(scene({"bare.lua"}), 2, "give --input z=FILE");
  refused(scene({"bare.lua", "--input", "z=ones:", "--batches", "2"}), 2, "has no rows");
  write_bytes(scene.folder / "fails.lua", "return function(z) error('no') end");
  refused(scene({"fails.lua", "--input", "z=ones:2x2"}), 1, "no");
}
