// `triage run --sample` and `triage replay --sample`: what each line of a script makes of one sample.
#include <ATen/ATen.h>
#include <triage/files.h>

#include <limits>

#include "tests/cli/scene.h"

namespace {

constexpr const char* clip = R"(local function scaled(x)
  local big = x * 10
  return big
end
return policy {
  inputs = {"z", "w"}, outputs = {"z", "f"}, params = {limit = 3.0},
  run = function(z, w, p)
    local f = flag_nan_and_inf(z, "features")
    z, f = fix(z, f, "features", {fallback = 0.5})
    for i = 1, 2 do
      z = z + w
    end
    local far = scaled(z) > p.limit
    return torch.where(far, z, 0.0), f
  end,
}
)";

/// A batch of three samples of two numbers, the second with a NaN, and two weights.
struct Clip : PolicyFolder {
  Clip() : PolicyFolder(clip) {
    triage::save_tensor(
        folder / "z.npy",
        at::tensor({1.0F, 2.0F, std::numeric_limits<float>::quiet_NaN(), 4.0F, -9.0F, 0.0F}).view({3, 2}));
    triage::save_tensor(folder / "w.npy", at::tensor({1.0F, -1.0F}));
  }
  Ran with(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"run", "repair.lua", "--input", "z=z.npy", "--input", "w=w.npy"};
    all.insert(all.end(), more.begin(), more.end());
    return (*this)(all);
  }
};

/// The values of the lines with this number, each as {name, operator without overload, values}.
std::vector<nlohmann::json> values_at(const nlohmann::json& sample, int line) {
  std::vector<nlohmann::json> found;
  for (const auto& one : sample["lines"])
    if (one["line"] == line)
      for (const auto& value : one["values"]) found.push_back(value);
  return found;
}

}  // namespace

TEST_CASE("run --sample: each line with its values, under their names") {
  const Clip scene;
  const Ran ran = scene.with({"--sample", "1"});
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.err.empty());
  CHECK(ran.out.rfind("repair, sample 1 of 3\n", 0) == 0);
  CHECK(has(ran.out, "repair.lua:8  local f = flag_nan_and_inf(z, \"features\")\n"));
  CHECK(has(ran.out, "flags: NAN @ features (CRITICAL)\n"));
  CHECK(has(ran.out, "flags: NAN @ features (CRITICAL), FALLBACK_VALUE @ features (WARN)\n"));
  CHECK(has(ran.out, "repair.lua:13  local far = scaled(z) > p.limit\n"));
  CHECK(count_of(ran.out, "repair.lua:11  z = z + w\n") == 2);
  CHECK(has(ran.out, "(the same for all samples)"));
}

TEST_CASE("run --sample --json: the numbers of the sample alone, in the order in which the lines ran") {
  const Clip scene;
  const nlohmann::json json = scene.with({"--sample", "1", "--sample", "2", "--json", "--param", "limit=20"}).json();
  CHECK(json["policy"] == "repair");
  CHECK(json["complete"] == true);
  CHECK(json["error"] == nullptr);
  REQUIRE(json["samples"].size() == 2);
  const nlohmann::json& one = json["samples"][0];
  CHECK(one["sample"] == 1);
  CHECK(one["of"] == 3);
  CHECK(one["given"][0]["name"] == "z");
  CHECK(one["given"][0]["values"] == nlohmann::json({"NaN", 4.0}));
  CHECK(one["given"][0]["nan"] == 1);
  CHECK(one["given"][1]["name"] == "w");
  CHECK(one["given"][1]["has_samples"] == false);
  CHECK(one["given"][1]["values"] == nlohmann::json({1.0, -1.0}));
  CHECK(one["given"][2]["name"] == "p.limit");
  CHECK(one["given"][2]["values"] == nlohmann::json({20.0}));
  const auto sums = values_at(one, 11);
  REQUIRE(sums.size() == 2);  // the loop ran twice
  CHECK(sums[0]["values"] == nlohmann::json({1.5, -0.5}));
  CHECK(sums[1]["values"] == nlohmann::json({2.5, -1.5}));
  CHECK(sums[1]["name"] == "z");
  CHECK(sums[1]["operator"] == "aten::add.Tensor");
  CHECK(sums[1]["shape"] == nlohmann::json({2}));
  CHECK(sums[1]["min"] == -1.5);
  CHECK(sums[1]["max"] == 2.5);
  REQUIRE(values_at(one, 2).size() == 1);  // in a function that the line calls
  CHECK(values_at(one, 2)[0]["name"] == "big");
  REQUIRE(values_at(one, 13).size() == 1);
  CHECK(values_at(one, 13)[0]["name"] == "far");
  CHECK(values_at(one, 13)[0]["values"] == nlohmann::json({true, false}));
  CHECK(one["outputs"][0]["name"] == "z");
  CHECK(one["outputs"][0]["values"] == nlohmann::json({2.5, 0.0}));
  CHECK(one["outputs"][1]["name"] == "f");
  CHECK(one["outputs"][1]["flags"].size() == 2);
  const nlohmann::json& two = json["samples"][1];
  CHECK(two["given"][0]["values"] == nlohmann::json({-9.0, 0.0}));
  CHECK(two["outputs"][1]["flags"].empty());
}

TEST_CASE("run --sample: what breaks graphs is shown, too, and a call that fails up to its end") {
  TemporaryFolder folder;
  write_bytes(folder / "breaks.lua",
              "return function(z)\n  local top = z:max()\n  if top:item() > 1 then\n    z = z / 2\n  end\n"
              "  local bad = z:matmul(torch.ones({7}))\n  return bad\nend\n");
  const Ran ran = triage_program(folder, {"run", "breaks.lua", "--input", "z=arange:2x3", "--sample", "0", "--json"});
  CAPTURE(ran.err);
  CHECK(ran.status == 1);
  const nlohmann::json json = ran.json();
  CHECK(has(json["error"], "breaks.lua:6"));
  CHECK(values_at(json["samples"][0], 2)[0]["has_samples"] == false);
  CHECK(values_at(json["samples"][0], 4)[0]["values"] == nlohmann::json({0.0, 0.5, 1.0}));
  CHECK(json["samples"][0]["outputs"].empty());
  const Ran text = triage_program(folder, {"run", "breaks.lua", "--input", "z=arange:2x3", "--sample", "0"});
  CHECK(text.status == 1);
  CHECK(has(text.out, "the call failed here: "));
}

TEST_CASE("run --sample: state of earlier calls") {
  TemporaryFolder folder;
  write_bytes(folder / "count.lua",
              "return policy {\n  inputs = {\"z\"}, outputs = {\"z\"},\n"
              "  state = {seen = {shape = {\"N\"}}},\n"
              "  run = function(z, s)\n    local seen = s.seen + 1\n    return z + seen:unsqueeze(1), {seen = seen}\n"
              "  end,\n}\n");
  const Ran ran = triage_program(
      folder, {"run", "count.lua", "--input", "z=zeros:2x1", "--input", "z=ones:2x1", "--sample", "0", "--json"});
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  const nlohmann::json sample = ran.json()["samples"][0];
  CHECK(sample["given"][1]["name"] == "s.seen");
  CHECK(sample["given"][1]["values"] == nlohmann::json({1.0}));
  CHECK(sample["outputs"][0]["values"] == nlohmann::json({3.0}));
}

TEST_CASE("run --sample: a script needs no more memory of its budget than in a call") {
  TemporaryFolder folder;
  write_bytes(folder / "chain.lua", "return function(z)\n  for i = 1, 40 do z = z + 1 end\n  return z\nend\n");
  const std::vector<std::string> run{"run", "chain.lua", "--input", "z=zeros:256x1024", "--limits", "tensor_bytes=8e6"};
  CHECK(triage_program(folder, run).status == 0);
  std::vector<std::string> by_line = run;
  by_line.insert(by_line.end(), {"--sample", "0", "--json"});
  const Ran ran = triage_program(folder, by_line);
  CAPTURE(ran.out);
  CHECK(ran.status == 0);
  CHECK(ran.json()["samples"][0]["lines"].size() == 40);
  CHECK(ran.json()["samples"][0]["outputs"][0]["max"] == 40.0);
}

TEST_CASE("run --sample: wrong use") {
  const Clip scene;
  check_message(scene.with({"--sample", "3"}), 2, "triage run", {"--sample 3", "3 samples", "from 0 to 2"});
  check_message(scene.with({"--sample", "-1"}), 2, "triage run", {"--sample -1", "from 0 to 2"});
  check_message(scene.with({"--sample", "one"}), 2, "triage run", {"--sample"});
  check_message(scene.with({"--sample", "0", "--backend", "eager"}), 2, "triage run", {"--sample", "--backend"});
  check_message(scene.with({"--sample", "0", "--output", "z=a.pt"}), 2, "triage run", {"--sample", "--output"});
  TemporaryFolder folder;
  write_bytes(folder / "number.lua", "return function(x) return x + 1 end\n");
  triage::save_tensor(folder / "x.npy", at::scalar_tensor(1.0));
  check_message(triage_program(folder, {"run", "number.lua", "--input", "x=x.npy", "--sample", "0"}), 2, "triage run",
                {"--sample", "no batch"});
  check_message(triage_program(folder, {"run", "number.lua", "--input", "x=ones:0x2", "--sample", "0"}), 2,
                "triage run", {"--sample 0", "no samples"});
  write_bytes(folder / "typed.lua",
              "return policy {\n  inputs = {\"z\"}, signature = {z = Tensor(float32_t, {\"N\", 4})},\n"
              "  run = function(z) return z end,\n}\n");
  check_message(triage_program(folder, {"run", "typed.lua", "--input", "z=ones:2x3", "--sample", "0"}), 2, "triage run",
                {"input 'z': dimension 1: expected 4, got 3"});
}

TEST_CASE("replay --sample: a sample of a capsule") {
  const Clip scene;
  REQUIRE(scene.with({"--capsule", "all.pt"}).status == 0);
  const Ran ran = scene({"replay", "all.pt", "--sample", "1", "--json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  const nlohmann::json json = ran.json();
  CHECK(json["same"] == true);
  CHECK(values_at(json["samples"][0], 11)[0]["values"] == nlohmann::json({1.5, -0.5}));
  CHECK(values_at(json["samples"][0], 11)[0]["name"] == "z");
  const Ran text = scene({"replay", "all.pt", "--sample", "1"});
  CHECK(has(text.out, "\nrepair, sample 1 of 3\n"));
  check_message(scene({"replay", "all.pt", "--sample", "7"}), 2, "triage replay", {"--sample 7", "from 0 to 2"});
}

TEST_CASE("replay --sample: of bad rows alone, with the number that a sample had in the batch") {
  TemporaryFolder folder;
  write_bytes(folder / "repair.lua", repair);
  REQUIRE(triage_program(
              folder, {"run", "repair.lua", "--input", "z=randn:8x4,seed=1,nan=1", "--capsule", "bad.pt", "--bad-rows"})
              .status == 0);
  const Ran ran = triage_program(folder, {"replay", "bad.pt", "--sample", "0"});
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(has(ran.out, "sample 0 of 1\n"));
  CHECK(has(ran.out, "of the recorded batch\n"));
  const nlohmann::json json = triage_program(folder, {"replay", "bad.pt", "--sample", "0", "--json"}).json();
  const std::string number = std::to_string(json["samples"][0]["recorded_sample"].get<int64_t>());
  CHECK(has(ran.out, "  it was sample " + number + " of the recorded batch\n"));
}
