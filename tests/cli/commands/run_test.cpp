// `triage run`: inputs, params, outputs, and what it says of bad samples and of its backend.
#include "tests/cli/scene.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/files.h>

#include <nlohmann/json.hpp>
#include <regex>

namespace {

std::string without_numbers_that_vary(const std::string& text) {
  return std::regex_replace(std::regex_replace(text, std::regex("[0-9.]+ us per call"), "T us per call"),
                            std::regex("took [0-9.]+ ms"), "took T ms");
}

}  // namespace

TEST_CASE("D04: run with a backend that fails on purpose") {
  Scene triage;
  const auto run = [&](const std::string& backend, bool fullgraph) {
    std::vector<std::string> call = {"run", "repair.lua", "--input", "z=ones:2x2", "--backend", backend};
    if (fullgraph) call.emplace_back("--fullgraph");
    return triage(call);
  };
  for (const char* backend : {"faulty_compile:fix", "faulty_run:fix"}) {
    const Ran ran = run(backend, true);
    CAPTURE(ran.err);
    CHECK(ran.status == 1);
    CHECK(ran.err.find("on purpose") != std::string::npos);
  }
  CHECK(run("faulty_compile:fix", false).status == 0);  // the interpreter serves
  CHECK(run("faulty_run:relu", true).status == 0);
}

TEST_CASE("run prints what was flagged and repaired") {
  Scene triage;
  Ran ran = triage(
      {"run", "repair.lua", "--input", "z=randn:32x512,seed=1,nan=3,inf=2", "--output", "z=clean.pt", "--repeat", "3"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.err.empty());
  std::string text = std::regex_replace(without_numbers_that_vary(ran.out), std::regex("\\([0-9]+ ops\\)"), "(K ops)");
  CHECK(text == R"(repair
  inputs   z        float32 32x512     randn:32x512,seed=1,nan=3,inf=2
  outputs  z        float32 32x512     5 of 32 samples changed, written to clean.pt
           f        int64 32x4         flags
  flags    ErrorFlags(32 samples, 10 errors: 5xFALLBACK_VALUE, 3xNAN, 2xINF @ logits)
           location  FALLBACK_VALUE     INF     NAN
           logits                 5       2       3
  bad      5      INF, FALLBACK_VALUE @ logits  z: 512 of 512 values changed
           6      NAN, FALLBACK_VALUE @ logits  z: 512 of 512 values changed
           12     INF, FALLBACK_VALUE @ logits  z: 512 of 512 values changed
           19     NAN, FALLBACK_VALUE @ logits  z: 512 of 512 values changed
           25     NAN, FALLBACK_VALUE @ logits  z: 512 of 512 values changed
  graphs   1 (K ops), 0 graph breaks, backend fused
  loops    1 fused: 1 tape
  time     T us per call (median of 3 warm calls; the first took T ms)
)");
  at::Tensor clean = triage::load_tensor(triage.folder / "clean.pt");
  CHECK(clean.isfinite().all().item<bool>());
  CHECK(clean.eq(0).all(-1).sum().item<int64_t>() == 5);
}

TEST_CASE("run --json has exactly the fields it promises") {
  Scene triage;
  Ran ran = triage({"run", "repair.lua", "--input", "z=randn:8x4,seed=1,nan=2", "--output", "f=flags.npy", "--json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  nlohmann::json json = ran.json();
  CHECK(keys_of(json) == std::vector<std::string>{"backend", "bad_samples", "call_us", "decision", "first_us", "flags",
                                                  "fused_loops", "graph_breaks", "graphs", "inputs", "ops", "outputs",
                                                  "policy"});
  CHECK(json["policy"] == "repair");
  CHECK(json["backend"] == "fused");
  CHECK(json["fused_loops"] == parse_json(R"({"kernels": 0, "tapes": 1, "neither": 0})"));
  CHECK(json["inputs"] == parse_json(R"json([{"name": "z", "dtype": "float32", "shape": [8, 4]}])json"));
  CHECK(json["outputs"] == parse_json(R"json([
      {"name": "z", "dtype": "float32", "shape": [8, 4]},
      {"name": "f", "dtype": "int64", "shape": [8, 4], "file": "flags.npy"}])json"));
  CHECK(json["flags"] == parse_json(R"json({
      "samples": 8, "errors": 4, "summary": {"logits": {"NAN": 2, "FALLBACK_VALUE": 2}},
      "repr": "ErrorFlags(8 samples, 4 errors: 2xNAN, 2xFALLBACK_VALUE @ logits)"})json"));
  CHECK(json["bad_samples"]["count"] == 2);
  REQUIRE(json["bad_samples"]["listed"].size() == 2);
  for (const auto& sample : json["bad_samples"]["listed"]) {
    CHECK(sample["sample"].is_number());
    CHECK(sample["errors"] == parse_json(R"json([
        {"code": "NAN", "location": "logits", "severity": "CRITICAL"},
        {"code": "FALLBACK_VALUE", "location": "logits", "severity": "WARN"}])json"));
    CHECK(sample["outputs"] ==
          parse_json(R"json([{"name": "z", "input": "z", "changed": 4, "values": 4, "not_finite": 0}])json"));
  }
  CHECK(json["graphs"] == 1);
  CHECK(json["graph_breaks"] == 0);
  CHECK(json["ops"].get<int>() >= 2);
  CHECK(json["call_us"].get<double>() > 0);
}

TEST_CASE("run and explain show the names that the policy has for codes") {
  Scene triage;
  write_bytes(triage.folder / "own.lua",
              "return policy {outputs = {'z', 'f'}, codes = {MISSING = 4, STALE = 12}, run = function(z)\n"
              "  local f = push(err.new(z), err.MISSING, 'rows', {where = z:isnan():any(-1)})\n"
              "  return fix(z, f, 'rows') end}");
  const std::vector<std::string> call = {"own.lua", "--input", "z=randn:4x2,nan=1", "--repeat", "1"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, call.begin(), call.end());
    if (arguments[0] != "run") arguments.erase(arguments.begin() + 4, arguments.begin() + 6);
    return triage(arguments);
  };
  const Ran ran = with({"run", "--decisions", "d.jsonl"});
  CAPTURE(ran.out);
  CHECK(ran.status == 0);
  CHECK(has(ran.out, "1xMISSING, 1xFALLBACK_VALUE @ rows)"));
  CHECK(count_of(ran.out, "MISSING") == 3);  // the line of the flags, the head of the table, the sample
  CHECK_FALSE(has(ran.out, "CODE_4"));
  CHECK(has(read_bytes(triage.folder / "d.jsonl"), R"("code":"MISSING")"));
  const nlohmann::json json = with({"run", "--json"}).json();
  CHECK(json["flags"]["summary"]["rows"]["MISSING"] == 1);
  CHECK(json["bad_samples"]["listed"][0]["errors"][0]["code"] == "MISSING");
  CHECK(has(with({"explain"}).out, "  code          MISSING = 4\n  code          STALE = 12\n"));
  CHECK(with({"explain", "--json"}).json()["codes"] == parse_json(R"({"MISSING": 4, "STALE": 12})"));
}

TEST_CASE("run reads and writes every format, several outputs in one file") {
  Scene triage;
  at::Tensor z = at::arange(6.0, at::kFloat).reshape({3, 2});
  z[1][0] = NAN;
  for (std::string ending : {".pt", ".npy", ".safetensors"}) {
    CAPTURE(ending);
    triage::save_tensor(triage.folder / ("in" + ending), z);
    Ran ran = triage({"run", "repair.lua", "--input", "z=in" + ending, "--output", "z=out" + ending});
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
    at::Tensor expected = z.clone();
    expected[1].zero_();
    CHECK(triage::load_tensor(triage.folder / ("out" + ending)).equal(expected));
  }
  CHECK(triage(
            {"run", "repair.lua", "--input", "z=in.pt", "-o", "z=both.safetensors:z", "-o", "f=both.safetensors:flags"})
            .status == 0);
  CHECK((triage::load_tensor(triage.folder / "both.safetensors:flags").scalar_type() == at::kLong));
  CHECK(triage({"run", "repair.lua", "--input", "z=both.safetensors:z"}).status == 0);
}

TEST_CASE("params change a run") {
  Scene triage;
  write_bytes(triage.folder / "scale.lua",
              "return policy { inputs = {'z'}, params = {k = 2.0}, run = function(z, p) return z * p.k end }");
  CHECK(triage({"run", "scale.lua", "--input", "z=ones:4", "--param", "k=3", "--output", "out0=o.npy"}).status == 0);
  CHECK(triage::load_tensor(triage.folder / "o.npy").eq(3).all().item<bool>());
  check_message(triage({"run", "scale.lua", "--input", "z=ones:4", "--param", "kk=3"}), 2, "triage run",
                {"no param \"kk\"", "did you mean \"k\""});
  check_message(triage({"run", "scale.lua", "--input", "z=ones:4", "--param", "k=high"}), 2, "triage run",
                {"k=high", "a number"});
}

TEST_CASE("a param that its policy does not allow is wrong use, in every command") {
  Scene triage;
  write_bytes(triage.folder / "scale.lua",
              "return policy { inputs = {'z'}, params = {k = {default = 2.0, min = 0, max = 9, help = 'the scale'}, on "
              "= true},\n"
              "run = function(z, p) if p.on then return z * p.k end return z end }");
  for (const std::string command : {"run", "explain", "export", "bench", "isolate"}) {
    CAPTURE(command);
    check_message(triage({command, "scale.lua", "--input", "z=ones:4x2", "--param", "k=-1"}), 2, "triage " + command,
                  {"policy 'scale.lua': param 'k' must lie between 0 and 9, got -1 (the scale)"});
  }
  check_message(triage({"run", "scale.lua", "--input", "z=ones:4", "--param", "on=1"}), 2, "triage run",
                {"policy 'scale.lua': param 'on' is a boolean, and the given value is not: got 1"});
  const auto refused = [&](const std::string& value, const std::string& message) {
    check_message(triage({"run", "scale.lua", "--input", "z=ones:4", "--param", value}), 2, "triage run",
                  {message.c_str()});
  };
  refused("k=true", "param 'k' is a number, and the given value is not: got true; it takes 0 to 9 (the scale)");
  refused("k=0.1,,0.2", "--param k=0.1,,0.2: expected a number");
  refused("k=0.1,,0.2", "got \"\" as an item; nothing stands between two commas");
  refused("k=,", "--param k=,: expected a number");
  refused("on=False", "--param on=False: expected");
  refused("on=False", "; write false");
  refused("k=0x10", "; write 16");
  CHECK(triage({"run", "scale.lua", "--input", "z=ones:4", "--param", "on=false", "--output", "out0=o.npy"}).status ==
        0);
  CHECK(triage::load_tensor(triage.folder / "o.npy").equal(at::ones({4})));
  const Ran shown = triage({"explain", "scale.lua", "--input", "z=ones:4"});
  CHECK(has(shown.out, "  param         k = 2, 0 to 9: the scale\n  param         on = true\n"));
  CHECK(has(shown.out, "graph breaks  0"));
  const nlohmann::json params = triage({"explain", "scale.lua", "--input", "z=ones:4", "--json"}).json()["params"];
  CHECK(params["k"]["default"] == 2.0);
  CHECK(params["k"]["max"] == 9);
  CHECK(params["k"]["finite"] == true);
  CHECK(params["k"]["help"] == "the scale");
  CHECK(params["on"]["default"] == true);
  CHECK(params["on"]["min"].is_null());
}

TEST_CASE("params are lists and tensors, too") {
  Scene triage;
  write_bytes(triage.folder / "scale.lua",
              "return policy { inputs = {'z'}, params = {k = {1.0, 2.0}, t = torch.ones({2})}, "
              "run = function(z, p) return z * p.k + p.t end }");
  triage::save_tensor(triage.folder / "t.npy", at::tensor({10.0F, 20.0F}));
  const auto run = [&](const std::string& k) {
    return triage({"run", "scale.lua", "--input", "z=ones:3x2", "--param", "k=" + k, "--param", "t=@t.npy", "--output",
                   "out0=o.npy", "--repeat", "1"});
  };
  CHECK(run("3,4.5").status == 0);
  CHECK(triage::load_tensor(triage.folder / "o.npy").equal(at::tensor({13.0F, 24.5F}).expand({3, 2})));
  CHECK(run("3,").status == 0);
  CHECK(triage::load_tensor(triage.folder / "o.npy").equal(at::tensor({13.0F, 23.0F}).expand({3, 2})));
  check_message(run("1,x"), 2, "triage run", {"--param k=1,x", "expected a number"});
  check_message(run("1,true"), 2, "triage run", {"k=1,true", "a list holds numbers"});
  check_message(run("7"), 2, "triage run", {"param 'k' is a list of numbers", "got 7"});
}

TEST_CASE("every command that loads a policy gives it tensors and modules of a host") {
  Scene triage;
  write_bytes(triage.folder / "given.lua",
              "return policy { inputs = {'z'}, fullgraph = true, run = function(z) return small(z - means) end, "
              "tests = {{name = 'doubles', args = function() return torch.ones({2, 2}) end, "
              "check = function(y) return y:equal(torch.zeros({2, 2})) end}} }");
  triage::save_tensor(triage.folder / "means.npy", at::ones({2}));
  torch::jit::Module small("Small");
  small.define("def forward(self, x):\n    return x * 2\n");
  small.save(triage.folder / "small.pt");
  const auto call = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--define", "small=small.pt", "--define", "means=means.npy"});
    return triage(words);
  };
  const Ran ran = call({"run", "given.lua", "--input", "z=zeros:3x2", "--output", "out0=o.npy", "--repeat", "1"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(triage::load_tensor(triage.folder / "o.npy").eq(-2).all().item<bool>());
  CHECK(call({"explain", "given.lua", "--input", "z=zeros:3x2"}).out.find("call_module") != std::string::npos);
  CHECK(call({"test", "given.lua"}).status == 0);
  CHECK(call({"check", "given.lua"}).status == 0);
  CHECK(call({"isolate", "given.lua", "--input", "z=zeros:3x2"}).status == 0);
  CHECK(call({"bench", "given.lua", "--input", "z=zeros:3x2", "--seconds", "0"}).status == 0);
  CHECK(call({"export", "given.lua", "--input", "z=zeros:3x2"}).err.find("small") != std::string::npos);
  REQUIRE(triage({"bundle", "pack", ".", "--name", "given"}).status == 0);
  CHECK(call({"bundle", "check", "."}).status == 0);
  CHECK(triage({"bundle", "check", "."}).status != 0);
  CHECK(triage({"check", "given.lua"}).status != 0);
  CHECK(triage({"test", "given.lua", "--define", "small=none.pt"}).status != 0);
}

TEST_CASE("generators give the same tensor again, and say what is wrong with theirs") {
  Scene triage;
  write_bytes(triage.folder / "id.lua", "return function(z) return z end");
  auto generate = [&](const std::string& text) {
    return triage({"run", "id.lua", "--input", "z=" + text, "--output", "out0=o.pt", "--repeat", "1"});
  };
  REQUIRE(generate("randn:3x4,seed=7,dtype=f16").status == 0);
  at::Tensor first = triage::load_tensor(triage.folder / "o.pt");
  CHECK((first.scalar_type() == at::kHalf));
  REQUIRE(generate("randn:3x4,seed=7,dtype=float16").status == 0);
  CHECK(triage::load_tensor(triage.folder / "o.pt").equal(first));
  REQUIRE(generate("randint:50,low=2,high=4").status == 0);
  at::Tensor integers = triage::load_tensor(triage.folder / "o.pt");
  CHECK((integers.min().item<int64_t>() == 2 && integers.max().item<int64_t>() == 3));
  CHECK(generate("arange:2x3").status == 0);
  CHECK(triage::load_tensor(triage.folder / "o.pt").equal(at::arange(6.0, at::kFloat).reshape({2, 3})));
  check_message(generate("randn:3xq"), 2, "triage run", {"randn:3xq", "integer"});
  check_message(generate("randn:3,sed=1"), 2, "triage run", {"did you mean \"seed\""});
  check_message(generate("randn:3,dtype=flaot32"), 2, "triage run", {"did you mean \"float32\""});
  check_message(generate("randn:3x4,nan=4"), 2, "triage run", {"4 bad samples, but the batch has 3"});
  check_message(generate("arange:3,dtype=i64,nan=1"), 2, "triage run", {"only floating-point"});
}

TEST_CASE("run lists bad samples: those left as they are, at most ten, and outputs that belong to no input") {
  Scene triage;
  write_bytes(triage.folder / "look.lua",
              "return policy { inputs = {'z', 'w'}, outputs = {'w', 'sum', 'f'}, run = function(z, w)\n"
              "  return w:nan_to_num(0.0), (z + w):sum({dim = -1}), flag_nan(w, 'w')\nend }\n");
  const auto run = [&](const std::string& w, bool json) {
    std::vector<std::string> arguments = {"run", "look.lua", "--input", "z=ones:16x4", "--input", "w=" + w};
    if (json) arguments.emplace_back("--json");
    return triage(arguments);
  };
  const Ran few = run("randn:16x4,seed=1,nan=1", false);
  CAPTURE(few.out);
  CHECK(std::regex_search(few.out, std::regex("\n  bad      [0-9]+ +NAN @ w  w: 1 of 4 values changed\n  graphs")));
  const Ran many = run("randn:16x4,seed=1,nan=13", false);
  CAPTURE(many.out);
  CHECK(many.out.find("\n           and 3 more bad samples; --json lists up to 1000\n") != std::string::npos);
  const nlohmann::json bad = run("randn:16x4,seed=1,nan=13", true).json()["bad_samples"];
  CHECK(bad["count"] == 13);
  CHECK(bad["listed"].size() == 13);
  CHECK(bad["listed"][0]["outputs"].size() == 1);  // `sum` has the sizes of no input
  CHECK(run("ones:16x4", true).json()["bad_samples"] == parse_json(R"({"count": 0, "listed": []})"));
}

TEST_CASE("run calls a policy with batches of several sizes in turn, and says which of them captured it again") {
  const Scene triage;
  write_bytes(
      triage.folder / "sized.lua",
      "return policy {\n  inputs = {\"z\", \"w\"}, outputs = {\"z\", \"f\"},\n  run = function(z, w)\n"
      "    local f = flag_nan(z, \"x\")\n    if #z % 2 == 0 then z = z * 2 end\n    return z + w, f\n  end,\n}\n");
  const std::vector<std::string> run = {"run",      "sized.lua",  "-i", "z=randn:4x2,nan=1", "-i",       "z=ones:6x2",
                                        "-i",       "z=ones:3x2", "-i", "w=ones:2",          "--output", "z=last.npy",
                                        "--repeat", "2"};
  const Ran ran = triage(run);
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  CHECK(has(ran.out, "sized (the last of 3 calls)\n"));
  CHECK(has(ran.out, "  calls    1        z float32 4x2, w float32 2; 1 of 4 samples flagged; captured\n"));
  CHECK(has(ran.out, "           2        z float32 6x2, w float32 2; 0 of 6 samples flagged; no new graph\n"));
  CHECK(has(ran.out, "           3        z float32 3x2, w float32 2; 0 of 3 samples flagged; recompiled: "));
  CHECK(triage::load_tensor(triage.folder / "last.npy").sizes() == at::IntArrayRef({3, 2}));
  std::vector<std::string> with_json = run;
  with_json.emplace_back("--json");
  const nlohmann::json json = triage(with_json).json();
  CHECK(json["calls"] == 3);
  REQUIRE(json["each_call"].size() == 3);
  CHECK(json["each_call"][0]["captured"] == true);
  CHECK(json["each_call"][0]["recompiled"] == nullptr);
  CHECK(json["each_call"][0]["flagged"] == 1);
  CHECK(json["each_call"][1]["captured"] == false);
  CHECK(json["each_call"][1]["inputs"][0]["shape"] == nlohmann::json({6, 2}));
  CHECK(json["each_call"][2]["recompiled"].is_string());
  check_message(triage({"run", "sized.lua", "-i", "z=ones:2x2", "-i", "z=ones:2x2", "-i", "z=ones:2x2", "-i",
                        "w=ones:2", "-i", "w=ones:2"}),
                2, "triage run", {"--input w is given 2 times", "--input z 3 times"});
  CHECK_FALSE(has(triage({"run", "sized.lua", "-i", "z=ones:2x2", "-i", "w=ones:2", "--repeat", "1"}).out, "calls "));
}

TEST_CASE("run calls a policy with several inputs in turn, keeps its state, and goes on from a file") {
  Scene triage;
  std::ofstream(triage.folder / "total.lua") << R"(
return policy {
  outputs = {"y"},
  state = {total = {shape = {}, init = 1}, calls = {shape = {}, dtype = torch.int64}},
  run = function(z, k, s) return z * k + s.total, {total = s.total + z:sum(), calls = s.calls + 1} end,
})";
  const std::vector<std::string> run = {"run",        "total.lua", "-i",       "z=ones:2x2", "-i",
                                        "z=ones:3x2", "-i",        "k=ones:2", "--state",    "total.pt",
                                        "--output",   "y=y.npy",   "--repeat", "2"};
  const auto first_of = [&] { return triage::load_tensor(triage.folder / "y.npy").flatten()[0].item<float>(); };
  Ran ran = triage(run);
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  CHECK(ran.out.find("total (the last of 2 calls)") == 0);
  CHECK(ran.out.find("state    calls    int64 0-dim        2\n           total    float32 0-dim      11\n") !=
        std::string::npos);
  CHECK(first_of() == 6);
  ran = triage(run);
  REQUIRE(ran.status == 0);
  CHECK(first_of() == 16);
  std::vector<std::string> with_json = run;
  with_json.emplace_back("--json");
  const nlohmann::json json = triage(with_json).json();
  CHECK(json["calls"] == 2);
  CHECK(json["state"].size() == 2);
  CHECK(json["state"][0]["name"] == "calls");
  ran = triage({"run", "total.lua", "-i", "z=ones:2x2", "-i", "z=ones:2x2", "-i", "z=ones:2x2", "-i", "k=ones:2", "-i",
                "k=ones:2"});
  CHECK(ran.status == 2);
  CHECK(ran.err.find("--input k is given 2 times, and --input z 3 times") != std::string::npos);
  write_bytes(triage.folder / "total.pt", "nothing");
  CHECK(triage(run).status == 2);
}

TEST_CASE("run says where a fallback makes floats of integers, once") {
  const PolicyFolder folder(
      "return function(z)\n  local f = push(err.new(z), err.NAN, 'ids')\n  z = fix(z, f, 'ids', {fallback = 0.0})\n"
      "  return z, f\nend\n");
  const Ran ran = folder({"run", "repair.lua", "--input", "z=ones:2x2,dtype=int64"});
  CHECK(ran.status == 0);
  const std::string told = "fix: 'ids' is of integers";
  const size_t first = ran.err.find(told);
  REQUIRE(first != std::string::npos);
  CHECK(ran.err.find("write 0 to keep integers") != std::string::npos);
  CHECK(ran.err.find(told, first + 1) == std::string::npos);
  CHECK(folder({"run", "repair.lua", "--input", "z=ones:2x2"}).err.find(told) == std::string::npos);
}
