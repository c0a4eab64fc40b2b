// `triage explain --provenance`: of policies and of TorchScript models.
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/files.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

#include <doctest/doctest.h>

namespace {

constexpr const char* logarithm_policy = R"(return policy {
  inputs = { "z" }, outputs = { "y", "f" }, params = { shift = 0.0 },
  run = function(z, p)
    local y = (z + p.shift):log() * 2.0
    local f = flag_nan_and_inf(y, "logits")
    return y, f
  end,
}
)";

/// Rows 1 and 3 have a negative number, row 4 a NaN.
void write_batch(const TemporaryFolder& folder) {
  at::Tensor z = at::ones({6, 4});
  z[1][0] = -1.0;
  z[3][2] = -2.0;
  z[4][0] = std::numeric_limits<float>::quiet_NaN();
  triage::save_tensor(folder / "z.npy", z);
}

torch::jit::Module model() {
  torch::jit::Module block("Block"), net("Net");
  block.register_parameter("scale", at::ones({4}), /*is_buffer=*/false);
  block.define(R"(
    def forward(self, x):
        return (x * self.scale).sqrt()
  )");
  net.register_module("block", block);
  net.define(R"(
    def forward(self, x, times: float = 1.0, rounds: int = 1):
        return self.block.forward(x * times) + 1.0
  )");
  return net;
}

}  // namespace

TEST_CASE("explain --provenance: a policy") {
  TemporaryFolder folder;
  write_bytes(folder / "policy.lua", logarithm_policy);
  write_batch(folder);
  const Ran ran = triage_program(folder, {"explain", "--provenance", "policy.lua", "--input", "z=z.npy"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.out ==
        "policy, 6 samples, 3 operations\n"
        "  NAN  input z                  1 row: 4\n"
        "  NAN  aten::log  policy.lua:4  2 rows: 1, 3\n"
        "propagated by 2 other operations\n"
        "y is bad in 3 rows: 1, 3, 4\n");
  const Ran shifted =
      triage_program(folder, {"explain", "--provenance", "policy.lua", "--input", "z=z.npy", "--param", "shift=1"});
  CHECK(shifted.out.find("aten::log  policy.lua:4  1 row: 3") != std::string::npos);
  CHECK(shifted.out.find("INF  aten::log  policy.lua:4  1 row: 1") != std::string::npos);
  const nlohmann::json json =
      triage_program(folder, {"explain", "--provenance", "policy.lua", "--input", "z=z.npy", "--json"}).json();
  CHECK(json["policy"] == "policy");
  CHECK(json["samples"] == 6);
  CHECK(json["producers"][1]["name"] == "aten::log");
  CHECK(json["producers"][1]["line"] == 4);
  CHECK(json["producers"][1]["rows"] == nlohmann::json({1, 3}));
  CHECK(json["outputs"][0]["name"] == "y");
  const Ran fine = triage_program(folder, {"explain", "--provenance", "policy.lua", "--input", "z=ones:40x3"});
  CHECK(fine.out == "policy, 40 samples, 3 operations\n  no NaN and no Inf\n");
}

TEST_CASE("explain --provenance: a TorchScript model") {
  TemporaryFolder folder;
  write_batch(folder);
  model().save(folder / "model.pt");
  const Ran ran = triage_program(folder, {"explain", "--provenance", "model.pt", "--input", "x=z.npy"});
  CAPTURE(ran.err);
  CAPTURE(ran.out);
  CHECK(ran.status == 0);
  CHECK(ran.out.rfind("model.pt, 6 samples, 4 operations\n", 0) == 0);
  CHECK(ran.out.find("NAN  input x ") != std::string::npos);
  CHECK(ran.out.find("NAN  aten::sqrt  block") != std::string::npos);
  CHECK(ran.out.find("2 rows: 1, 3\n") != std::string::npos);
  const nlohmann::json json = triage_program(folder, {"explain", "--provenance", "model.pt", "--input", "x=z.npy",
                                                      "--param", "times=-1", "--json"})
                                  .json();
  CHECK(json["model"] == "model.pt");
  CHECK(json["producers"][1]["location"] == "block");
  CHECK(json["producers"][1]["count"] == 5);
}

TEST_CASE("explain --provenance: a NaN made out of an Inf, and an Inf that is meant") {
  TemporaryFolder folder;
  write_bytes(folder / "mask.lua",
              "return function(scores, m)\n  local masked = scores:masked_fill(m, -math.huge)\n"
              "  return masked:softmax(-1)\nend\n");
  at::Tensor m = at::zeros({3, 4}, at::kBool);
  m[0][1] = true;
  m[2].fill_(true);
  triage::save_tensor(folder / "m.npy", m);
  const std::vector<std::string> call{"explain",         "--provenance", "mask.lua", "--input",
                                      "scores=ones:3x4", "--input",      "m=m.npy"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = call;
    all.insert(all.end(), more.begin(), more.end());
    return triage_program(folder, all);
  };
  const Ran ran = with({});
  CAPTURE(ran.err);
  CHECK(ran.out ==
        "mask, 3 samples, 2 operations\n"
        "  INF  aten::masked_fill  mask.lua:2  2 rows: 0, 2\n"
        "  NAN  aten::softmax      mask.lua:3  1 row: 2  from INF of aten::masked_fill mask.lua:2\n"
        "propagated by 0 other operations\n"
        "out0 is bad in 1 row: 2\n");
  const Ran benign = with({"--benign", "*masked_fill"});
  CHECK(benign.out.find("INF  ") == std::string::npos);
  CHECK(benign.out.find("NAN  aten::softmax") != std::string::npos);
  triage::save_tensor(folder / "one.npy", m.slice(0, 0, 1));
  const Ran meant = triage_program(folder, {"explain", "--provenance", "mask.lua", "--benign", "aten::masked_fill",
                                            "--input", "scores=ones:1x4", "--input", "m=one.npy"});
  CHECK(meant.out == "mask, 1 samples, 2 operations\n  no NaN, and no Inf except benign ones\n");
  const nlohmann::json json = with({"--json"}).json();
  CHECK(json["producers"][1]["from_inf"] == nlohmann::json({"aten::masked_fill mask.lua:2"}));
  CHECK(triage_program(folder, {"explain", "mask.lua", "--benign", "x", "--input", "scores=ones:3x4"}).status == 2);
}

TEST_CASE("explain --provenance: wrong use") {
  TemporaryFolder folder;
  write_batch(folder);
  model().save(folder / "model.pt");
  write_bytes(folder / "broken.pt", "no model");
  write_bytes(folder / "breaks.lua", "return function(z) if z:sum():item() > 0 then return z end return z + 1 end");
  const auto failure = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"explain", "--provenance"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ran ran = triage_program(folder, all);
    CHECK(ran.out.empty());
    return std::to_string(ran.status) + ' ' + ran.err;
  };
  CHECK(failure({"model.pt"}).find("2 triage explain: model.pt needs the input \"x\"") == 0);
  CHECK(failure({"model.pt", "--input", "y=ones:2x4"}).find("model.pt has no input \"y\"") != std::string::npos);
  CHECK(failure({"broken.pt", "--input", "x=ones:2x4"}).find("cannot be read as a TorchScript model") !=
        std::string::npos);
  CHECK(failure({"missing.pt", "--input", "x=ones:2x4"}).find("2 triage explain: there is no file missing.pt") == 0);
  CHECK(failure({"breaks.lua", "--input", "z=ones:2x4"}).find("1 triage explain: breaks.lua is not one graph") == 0);
  CHECK(triage_program(folder, {"explain", "model.pt", "--input", "x=ones:2x4"}).status == 2);
}

constexpr const char* distance_policy = R"(return function(a, b)
  local d = (a - b):pow(2):sum(1)
  return torch.where(d > 0, d:sqrt(), d)
end
)";

TEST_CASE("explain --provenance --backward: a policy") {
  TemporaryFolder folder;
  write_bytes(folder / "distance.lua", distance_policy);
  at::Tensor b = at::zeros({4, 2});
  b[2].fill_(1.0);
  triage::save_tensor(folder / "b.npy", b);
  const std::vector<std::string> command = {"explain", "--provenance", "--backward", "distance.lua",
                                            "--input", "a=ones:4x2",   "--input",    "b=b.npy"};
  const Ran ran = triage_program(folder, command);
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.out ==
        "distance, 4 samples, 5 operations\n"
        "  no NaN and no Inf\n"
        "backward, 5 derivatives\n"
        "  NAN  derivative of aten::sqrt  distance.lua:3  1 row: 2\n"
        "propagated by 3 other derivatives\n"
        "the gradient of a is bad in 1 row: 2\n"
        "the gradient of b is bad in 1 row: 2\n");
  std::vector<std::string> json = command;
  json.insert(json.end(), {"--json"});
  const auto found = nlohmann::json::parse(triage_program(folder, json).out).at("backward");
  CHECK(found.at("operations") == 5);
  CHECK(found.at("producers").at(0).at("kind") == "operation");
  CHECK(found.at("producers").at(0).at("line") == 3);
  CHECK(found.at("producers").at(0).at("rows") == std::vector<int>{2});
  CHECK(found.at("outputs").at(0).at("name") == "a");
}

TEST_CASE("explain --provenance --backward: given gradients, and a model") {
  TemporaryFolder folder;
  write_bytes(folder / "twice.lua",
              "return policy {inputs = {'z'}, outputs = {'y'}, run = function(z) return z * 2.0 end}");
  triage::save_tensor(folder / "g.npy", at::full({4, 2}, std::numeric_limits<float>::infinity()));
  const Ran ran = triage_program(
      folder, {"explain", "--provenance", "--backward", "twice.lua", "--input", "z=ones:4x2", "--gradient", "y=g.npy"});
  CAPTURE(ran.err);
  CHECK(ran.out.find("INF  gradient of y    4 rows: 0, 1, 2, 3") != std::string::npos);
  model().save(folder / "net.pt");
  const Ran of_model =
      triage_program(folder, {"explain", "--provenance", "--backward", "net.pt", "--input", "x=zeros:3x4"});
  CAPTURE(of_model.err);
  CHECK(of_model.out.find("INF  derivative of aten::sqrt  block") != std::string::npos);
  CHECK(of_model.out.find("the gradient of x is bad in 3 rows: 0, 1, 2") != std::string::npos);
}

TEST_CASE("explain --backward: what does not fit") {
  TemporaryFolder folder;
  write_bytes(folder / "distance.lua", distance_policy);
  const std::vector<std::string> inputs = {"--input", "a=ones:4x2", "--input", "b=zeros:4x2"};
  const auto error = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), inputs.begin(), inputs.end());
    const Ran ran = triage_program(folder, arguments);
    CHECK(ran.status != 0);
    return ran.err;
  };
  CHECK(error({"explain", "--backward", "distance.lua"}).find("--backward needs --provenance") != std::string::npos);
  CHECK(error({"explain", "--provenance", "--backward", "distance.lua", "--gradient", "q=ones:4"})
            .find("--gradient q: distance.lua has no such output; it has out0") != std::string::npos);
  CHECK(error({"explain", "--provenance", "--backward", "distance.lua", "--gradient", "out0=ones:3"})
            .find("the gradient of out0 has the shape [3], and that output the shape [4]") != std::string::npos);
  CHECK(error({"explain", "--provenance", "distance.lua", "--gradient", "out0=ones:4"}).find("--backward") !=
        std::string::npos);
}
