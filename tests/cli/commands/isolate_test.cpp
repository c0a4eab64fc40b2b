// `triage isolate`: whether a bad sample changes another, as text, as JSON and as an exit status.
#include "tests/cli/scene.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>

#include <nlohmann/json.hpp>

namespace {

constexpr const char* centred = R"(return policy {
  name = "centred", inputs = {"z"}, outputs = {"z", "f"}, params = {scale = 2.0},
  run = function(z, p)
    local f = flag_nan_and_inf(z, "features")
    local y = z * p.scale
    return y - y:mean(0), f
  end,
}
)";

Ran isolated(const std::string& policy, const std::vector<std::string>& more = {"--input", "z=randn:8x4"}) {
  std::vector<std::string> call = {"isolate", "repair.lua"};
  call.insert(call.end(), more.begin(), more.end());
  return PolicyFolder(policy)(call);
}

bool says(const Ran& ran, const std::string& part) { return ran.out.find(part) != std::string::npos; }

void save_model(const TemporaryFolder& folder, const std::string& forward) {
  torch::jit::Module block("Block"), net("Net");
  block.define(forward);
  net.register_module("block", block);
  net.define(R"(
    def forward(self, x, scale: float = 1.0):
        return (x * scale, {"logits": self.block.forward(x.relu())})
  )");
  net.save(folder / "model.pt");
}

}  // namespace

TEST_CASE("isolate names the first operator that lets a bad sample through, and its line") {
  const Ran ran = isolated(centred);
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 1);
  CHECK(says(ran, "centred, backend fused\n  input z (float32): made bad with NaN, one NaN, Inf, -Inf, 3.40282e+38\n"));
  CHECK(says(ran, "  NOT isolated: the inputs given; 8 of 8 samples made bad in turn, "));
  CHECK(says(ran,
             "    z (float32 8x4): NOT isolated\n      NaN, one NaN, Inf, -Inf, 3.40282e+38 in z, 8 of 8 samples: "
             "sample 0 changes 7 others: 1, 2, 3, 4, 5, 6, 7\n"));
  CHECK(says(ran, "    f (int64 8x4): isolated\n"));
  CHECK(says(ran, "    first operator that lets it through: aten::mean.dim  repair.lua:6\n"));
  CHECK(says(ran, "= aten::mean.dim(%"));
  CHECK(says(ran, ", samples 0 and 4 bad before; 8 of 8"));

  const Ran fine = isolated(repair);
  CAPTURE(fine.out);
  CHECK(fine.status == 0);
  CHECK(says(fine, "  isolated: the inputs given; 8 of 8 samples made bad in turn, "));
  CHECK_FALSE(says(fine, "NOT"));
}

TEST_CASE("isolate --json") {
  const Ran ran = isolated(centred, {"--input", "z=randn:8x4", "--backend", "eager", "--json", "--rows", "3"});
  REQUIRE(ran.status == 1);
  const auto json = ran.json();
  CHECK(json["policy"] == "centred");
  CHECK(json["ok"] == false);
  CHECK(json["backend"] == "eager");
  CHECK(json["operators_are_from"].is_null());
  REQUIRE(json["batches"].size() == 2);
  const auto& batch = json["batches"][0];
  CHECK(batch["samples"] == 8);
  CHECK(batch["rows"] == 3);
  CHECK(batch["restarted"] == false);
  CHECK(batch["inputs"][0]["poisons"] == nlohmann::json({"nan", "one_nan", "inf", "minus_inf", "largest"}));
  CHECK(batch["outputs"][1]["isolated"] == true);
  CHECK(batch["outputs"][0]["leaks"][0]["rows"] == 3);
  CHECK(batch["outputs"][0]["leaks"][0]["changed"] == 7);
  CHECK(batch["operators"][0]["operator"] == "aten::mean.dim");
  CHECK(batch["operators"][0]["line"] == 6);
  CHECK(batch["operators"][0]["why_unnamed"].is_null());
}

TEST_CASE("isolate makes its own batches: of the tests, and of the declared types") {
  const Ran ran = isolated(R"(return policy {
  inputs = {"z"}, signature = {z = Tensor(floating_t, {"N", 3})}, outputs = {"z"},
  run = function(z) return z:relu() end,
  tests = {{name = "two", args = function() return torch.tensor({{1.0, 2.0, 0/0}, {3.0, 4.0, 5.0}}) end,
            check = function() return true end},
           {name = "one", args = function() return torch.tensor({{1.0, 2.0, 3.0}}) end,
            check = function() return true end}},
})",
                           {});
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(says(ran, "isolated: test \"two\", bad samples made good; 2 of 2"));
  CHECK(says(ran, "isolated: test \"two\"; 2 of 2"));
  CHECK(says(ran, "left out: test \"one\": isolate: expected a batch of at least 2 samples"));
  CHECK(says(ran, "isolated: its declared types; 32 of 32"));
}

TEST_CASE("isolate: --rows, --shared, and policies that are no graph") {
  const Ran some = isolated(repair, {"--input", "z=randn:500x4", "--rows", "5"});
  CHECK(says(some, "5 of 500 samples made bad in turn"));
  CHECK(says(isolated(repair, {"--input", "z=randn:500x4"}), "64 of 500 samples made bad in turn"));
  const char* weights = "return policy { inputs = {'z', 'w'}, run = function(z, w) return z:matmul(w) end }";
  CHECK(isolated(weights, {"--input", "z=randn:4x4", "--input", "w=randn:4x4"}).status == 1);
  const Ran shared = isolated(weights, {"--input", "z=randn:4x4", "--input", "w=randn:4x4", "--shared", "w"});
  CHECK(shared.status == 0);
  CHECK(says(shared, "input w (float32): as it is, because it has no samples"));
  const Ran broken =
      isolated("return function(z)\n  local y = z * 2\n  triage.graph_break()\n  return y - y:mean(0)\nend");
  CAPTURE(broken.out);
  CHECK(broken.status == 1);
  CHECK(says(broken, "aten::mean.dim  repair.lua:4\n"));
  CHECK(says(broken, "the policy is not one captured graph, so the operators are those that its script calls"));
}

TEST_CASE("isolate takes policies that require modules, as every command that reads a file") {
  PolicyFolder triage("local scale = require 'scale'\nreturn function(z) return z * scale end\n");
  std::filesystem::create_directories(triage.folder.path() / "lib");
  write_bytes(triage.folder / "lib/scale.lua", "return 2\n");
  const Ran ran = triage({"isolate", "repair.lua", "--input", "z=randn:8x4"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(says(ran, "  isolated: the inputs given; 8 of 8 samples made bad in turn, "));
}

TEST_CASE("isolate: integers, and a sample that costs all their answer") {
  const Ran ran = isolated("local t = torch.ones({10, 3})\nreturn function(ids)\n  return torch.embedding(t, ids)\nend",
                           {"--input", "ids=randint:6,high=9"});
  CAPTURE(ran.out);
  CHECK(ran.status == 1);
  CHECK(says(ran, "9223372036854775807, -9223372036854775808"));
  CHECK(says(ran, "index out of range"));
  CHECK(says(ran, "first operator that lets it through: aten::embedding  repair.lua:3\n"));
}

TEST_CASE("isolate: a policy that fails for a batch with a bad sample is reported, not given up") {
  const Ran ran =
      isolated("return function(z)\n  if z:isnan():any():item() then error('bad batch') end\n  return z\nend");
  CAPTURE(ran.out);
  CHECK(ran.status == 1);
  CHECK(says(ran, "NOT isolated: the inputs given; 8 of 8"));
  CHECK(says(ran, "sample 0: repair.lua:2: bad batch"));
  CHECK(says(ran, "aten::any  repair.lua:2\n"));
  CHECK(says(ran, "left out: the inputs given, samples 0 and 4 bad before: "));
}

TEST_CASE("isolate: a TorchScript model") {
  TemporaryFolder folder;
  save_model(folder, R"(
    def forward(self, x):
        h = torch.exp(x)
        return h / h.sum(0)
  )");
  const std::vector<std::string> call = {"isolate", "model.pt", "--input", "x=randn:6x3", "--param", "scale=2"};
  const Ran ran = triage_program(folder, call);
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 1);
  CHECK(says(ran, "    output.0 (float32 6x3): isolated\n    output.1.logits (float32 6x3): NOT isolated\n"));
  CHECK(says(ran, "first operator that lets it through: aten::sum  block"));
  CHECK_FALSE(says(ran, "aten::div"));  // where only one feature of the sum changes
  save_model(folder, R"(
    def forward(self, x):
        x.add_(1.0)
        return torch.softmax(x, -1)
  )");
  const Ran fine = triage_program(folder, call);
  CAPTURE(fine.out);
  CHECK(fine.status == 0);
  save_model(folder, R"(
    def forward(self, x):
        assert not bool(x.gt(1e30).any()), "too large"
        return x
  )");
  const Ran raised = triage_program(folder, call);
  CAPTURE(raised.out);
  CHECK(raised.status == 1);
  CHECK(says(raised, "too large"));
  CHECK(says(raised, "aten::any  block"));
}

TEST_CASE("isolate: wrong use, and policies that fail by themselves") {
  check_message(isolated(repair, {}), 2, "triage isolate", {"give --input z=FILE"});
  check_message(isolated(repair, {"--input", "z=randn:1x4"}), 2, "triage isolate", {"at least 2 samples", "has 1"});
  check_message(isolated(repair, {"--input", "z=randn:0x4"}), 2, "triage isolate", {"at least 2 samples", "has 0"});
  check_message(isolated(repair, {"--input", "y=randn:2x4"}), 2, "triage isolate", {"has no input \"y\""});
  check_message(isolated(repair, {"--input", "z=randn:4x4", "--shared", "zz"}), 2, "triage isolate",
                {"--shared zz", "did you mean \"z\"?"});
  check_message(isolated(repair, {"--input", "z=randn:4x4", "--backend", "fusd"}), 2, "triage isolate",
                {"there is no backend \"fusd\""});
  CHECK(isolated(repair, {"--input", "z=randn:4x4", "--rows", "0"}).status == 2);
  CHECK(isolated("return function(z) error('never') end").status == 1);
  CHECK(isolated("return function(z) while true do end end").status == 1);
  CHECK(isolated("syntax error").status == 1);
  const TemporaryFolder folder;
  write_bytes(folder / "broken.pt", "PK\x03\x04 no model");
  check_message(triage_program(folder, {"isolate", "broken.pt", "--input", "x=ones:2x4"}), 2, "triage isolate",
                {"cannot be read as a TorchScript model"});
  const Ran json = isolated(repair, {"--input", "z=randn:1x4", "--json"});
  CHECK(json.status == 2);
  CHECK(json.json()["error"]["kind"] == "usage");
}

TEST_CASE("isolate: what a script says and names cannot forge the report") {
  const Ran ran = isolated(
      "return policy { name = 'a\\n  isolated: all\\27[2J', inputs = {'z'}, outputs = {'o\\n'},\n"
      "  run = function(z) print('isolated') ; if z:isnan():any():item() then error('x\\n  isolated') end\n"
      "  return z end }");
  CAPTURE(ran.out);
  CHECK(ran.status != 0);
  CHECK(ran.out.find('\x1b') == std::string::npos);
  CHECK(ran.out.find("\n  isolated: all") == std::string::npos);
  CHECK(ran.out.find("\nisolated") == std::string::npos);
}
