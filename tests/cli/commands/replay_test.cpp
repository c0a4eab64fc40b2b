// `triage replay`, `triage run --capsule`, and capsules of scripts that `triage exec` runs (D10).
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/cli/variable.h"

namespace {

namespace fs = std::filesystem;

void write(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder / name) << text;
}

std::string only_capsule(const TemporaryFolder& folder, const std::string& name) {
  REQUIRE(fs::exists(folder / name));
  std::vector<fs::path> files(fs::directory_iterator(folder / name), fs::directory_iterator{});
  REQUIRE(files.size() == 1);
  return files.front().string();
}

constexpr const char* limiting_policy = R"(local limit = 3
return function(z)
  local f = flag_nan(z, "encoder")
  return fix(z * limit, f, "encoder"), f
end
)";

/// Modules, a table that closures share, a guarded tensor, a global, an integer, a graph break, random numbers.
constexpr const char* replayed_script = R"(-- script.lua
local model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
local state = {scale = 2.5, history = {}}
offset = torch.ones({3})
local SHIFT <const>, rows = 0.5, guard(torch.ones({2, 3}), flag_nan(torch.full({2, 3}, 0 / 0), "rows"))
local function helper(x) return x * state.scale + offset + SHIFT end
local function note(y) state.history[#state.history + 1] = y:size(0) end
local f = triage.compile(function(x, n, tag)
  local y = helper(model(x)) * n + torch.rand({3}) + err.count_errors(rows * 2):unsqueeze(1)
  if y:sum():item() > 1e9 then y = y * 0 end
  note(y)
  if tag == "fail" then return y:reshape({5, 5}) end
  return y, #state.history
end, {name = "f", warn = false})
f(torch.ones({2, 4}), 3, "warm")
if arg[1] == "record" then
  triage.record(f, {torch.ones({2, 4}), 3, "warm"}, {file = "call.pt"})
else
  f(torch.ones({2, 4}), 3, "fail")
end
)";

}  // namespace

TEST_CASE("D10: run --capsule writes the call, and replay repeats it to the same bits in another process") {
  const TemporaryFolder folder;
  write(folder, "repair.lua", limiting_policy);
  const Ran ran =
      triage_program(folder, {"run", "repair.lua", "--input", "z=randn:8x4,seed=1,nan=2", "--capsule", "call.pt"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  Ran replayed = triage_program(folder, {"replay", "call.pt"});
  CHECK(replayed.status == 0);
  CHECK(replayed.out == "repair\n  recorded  2 outputs\n  replayed  the same\n");
  fs::remove(folder / "repair.lua");
  replayed = triage_program(folder, {"replay", "call.pt", "--json", "--extract", "parts"});
  CHECK(replayed.json()["same"] == true);
  std::ifstream extracted(folder / "parts/script.lua");
  CHECK(std::string(std::istreambuf_iterator<char>(extracted), {}) == limiting_policy);
  CHECK(triage_program(folder, {"replay", "call.pt", "--backend", "eager"}).status == 0);
}

TEST_CASE("D10: a backend that gives other bits is told by replay, and minified when asked for") {
  const TemporaryFolder folder;
  write(folder, "repair.lua", limiting_policy);
  triage_program(folder, {"run", "repair.lua", "--input", "z=randn:8x4,seed=1,nan=2", "--capsule", "call.pt"});
  const Ran replayed = triage_program(folder, {"replay", "call.pt", "--backend", "faulty_result:mul", "--minify"});
  CHECK(replayed.status == 1);
  CHECK_MESSAGE(has(replayed.out, "repro.lua"), replayed.out << replayed.err);
  // What an earlier replay found is not taken for what this one did.
  const Ran again = triage_program(folder, {"minify", "call.pt"});
  CHECK(again.status == 2);
  CHECK_FALSE(has(again.out, "repro.lua"));
  CHECK_MESSAGE(has(again.err, "no graph of it fails"), again.err);
}

TEST_CASE("D10: TRIAGE_REPLAY_RECORD keeps calls that fail, and only the function concerned runs again") {
  const TemporaryFolder folder;
  write(folder, "script.lua", replayed_script);
  {
    const Variable record("TRIAGE_REPLAY_RECORD", "capsules");
    const Ran ran = triage_program(folder, {"exec", "script.lua"});
    CHECK(ran.status == 1);
    CHECK_MESSAGE(has(ran.err, "`triage replay capsules/f-pid_"), ran.err);
  }
  const std::string capsule = only_capsule(folder, "capsules");
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{}, {"--trusted"}}) {
    std::vector<std::string> words = {"replay", capsule};
    words.insert(words.end(), more.begin(), more.end());
    const Ran replayed = triage_program(folder, words);
    CHECK_MESSAGE(replayed.status == 0, replayed.out << replayed.err);
    CHECK_MESSAGE(has(replayed.out, "script.lua:12: "), replayed.out);
    CHECK_MESSAGE(has(replayed.out, "shape '[5, 5]' is invalid for input of size 6"), replayed.out);
    CHECK(has(replayed.out, "replayed  the same"));
  }
}

TEST_CASE("D10: triage.record keeps modules, shared variables, guarded tensors, globals and random numbers") {
  const TemporaryFolder folder;
  write(folder, "script.lua", replayed_script);
  const Ran ran = triage_program(folder, {"exec", "script.lua", "record"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Ran replayed = triage_program(folder, {"replay", "call.pt"});
  CHECK_MESSAGE(replayed.status == 0, replayed.out << replayed.err);
  CHECK(has(replayed.out, "replayed  the same"));
}

TEST_CASE("D10: functions that the library made of others are made again") {
  const TemporaryFolder folder;
  write(folder, "script.lua", R"(local offset = 0.5
local function add(x) return x + offset end
local disabled, region = triage.disable(add, {reason = "by hand"}), triage.nested_compile_region(add, {name = "add"})
local strict, noted = triage.error_on_graph_break(false, add), triage.allow_in_graph(add)
local caught, constant = as_result(add), triage.assume_constant_result(function() return offset * 2 end)
local checked = tensorcheck(function(x) return x * 2 end)
local countdown
countdown = triage.nested_compile_region(function(x, n) return n == 0 and x or countdown(x * 1.5, n - 1) end)
local f = triage.compile(function(x)
  local y = checked(noted(strict(region(region(x)))))
  return countdown(disabled(y), 3) * constant(), caught(y):unwrap()
end, {name = "f", warn = false})
triage.record(f, {torch.arange(6):reshape({2, 3}) * 0.25}, {file = "f.pt"})
)");
  const Ran ran = triage_program(folder, {"exec", "script.lua"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK_MESSAGE(ran.err.empty(), ran.err);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"replay", "f.pt"}, {"replay", "f.pt", "--trusted"}}) {
    const Ran replayed = triage_program(folder, words);
    CHECK_MESSAGE(replayed.status == 0, replayed.out << replayed.err);
    CHECK(has(replayed.out, "replayed  the same"));
  }
}

TEST_CASE("D10: what a capsule cannot hold is noted, and an error where the function uses it") {
  const TemporaryFolder folder;
  write(folder, "script.lua", R"(local file = io.open("script.lua")
local f = triage.compile(function(x) if file then return x * 2 end end, {name = "f", warn = false})
local g = triage.compile(function(x) return x * #file:read("l") end, {name = "g", warn = false})
triage.record(f, {torch.ones({2})}, {file = "f.pt"})
triage.record(g, {torch.ones({2})}, {file = "g.pt"})
)");
  REQUIRE(triage_program(folder, {"exec", "script.lua"}).status == 0);
  const Ran unused = triage_program(folder, {"replay", "f.pt"});
  CHECK_MESSAGE(unused.status == 0, unused.out);
  CHECK(has(unused.out, "'file' is not in it"));
  const Ran used = triage_program(folder, {"replay", "g.pt"});
  CHECK(used.status == 1);
  CHECK_MESSAGE(has(used.out, "the capsule does not hold it"), used.out);
}

TEST_CASE("D10: wrong use of replay is said, with status 2") {
  const TemporaryFolder folder;
  write(folder, "text.pt", "no capsule");
  write(folder, "repair.lua", limiting_policy);
  CHECK(triage_program(folder, {"replay", "nothing.pt"}).status == 2);
  const Ran damaged = triage_program(folder, {"replay", "text.pt"});
  CHECK(damaged.status == 2);
  CHECK(has(damaged.err, "text.pt"));
  const Ran no_file = triage_program(folder, {"replay", "."});
  CHECK(no_file.status == 2);
  CHECK(has(no_file.err, "cannot read \".\": it is a folder; name a file in it"));
  CHECK(triage_program(folder, {"run", "repair.lua", "--input", "z=ones:2x2", "--capsule", "call.zip"}).status == 2);
  CHECK(triage_program(folder, {"run", "repair.lua", "--input", "z=ones:2x2", "--bad-rows"}).status == 2);
}
