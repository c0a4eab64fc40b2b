// `triage build`, and hosts without a compiler that run what it made.
#include "tests/cli/program.h"
#include "tests/cli/variable.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace {

namespace fs = std::filesystem;

constexpr const char* scaling_policy = R"(return policy {
  name = "repair", inputs = { "z" }, outputs = { "z", "f" }, params = { scale = 2.5 }, fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "logits")
    return fix((z * p.scale + 1):tanh(), f, "logits")
  end,
  tests = {{ name = "one bad sample",
    args = function() return torch.tensor({{1.0, 2.0, 3.0}, {0 / 0, 1.0, 0.5}}) end,
    check = function(z, f) return err.is_ok(f):equal(torch.tensor({true, false})) end }},
})";

const std::vector<std::string> call = {"run",      "repair.lua", "--input",  "z=randn:33x17,seed=1,nan=2,inf=1",
                                       "--output", "z=z.npy",    "--repeat", "1"};

/// A folder with the policy; the cache is empty, and gone with it.
struct BuildScene {
  TemporaryFolder folder;
  Variable cache{"TRIAGE_KERNEL_CACHE", folder / "kernels"};
  BuildScene() { write_bytes(folder / "repair.lua", scaling_policy); }
  Ran operator()(std::vector<std::string> arguments, const std::vector<std::string>& more = {}) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return triage_program(folder, arguments);
  }
  Ran build(const std::vector<std::string>& more = {}) const {
    return (*this)({"build", "repair.lua", "-o", "repair.so"}, more);
  }
  std::string result() const { return read_bytes(folder / "z.npy"); }
};

/// No compiler is found, on PATH or elsewhere.
struct NoCompiler {
  Variable chosen{"TRIAGE_CXX", "/nowhere/c++"};
};

}  // namespace

TEST_CASE(
    "what build has made runs without a compiler and without a cache, with the bits of code compiled at run time") {
  const BuildScene scene;
  const Ran compiled = scene(call, {"--backend", "fused"});
  REQUIRE(compiled.status == 0);
  const std::string expected = scene.result();
  const Ran built = scene.build({"--json"});
  CAPTURE(built.err);
  REQUIRE(built.status == 0);
  CHECK(built.err.empty());
  const auto json = built.json();
  CHECK(json["policy"] == "repair");
  CHECK(json["file"] == "repair.so");
  CHECK(json["kernels"].size() >= 1);
  CHECK(json["from"] == parse_json(R"(["test \"one bad sample\""])"));
  CHECK(!json["features"].empty());
  fs::remove_all(scene.folder / "kernels");
  fs::remove(scene.folder / "z.npy");
  const NoCompiler none;
  const Ran ran = scene(call, {"--kernels", "repair.so"});
  CHECK(ran.status == 0);
  CHECK(ran.err.empty());  // without kernels the missing compiler would be told of
  CHECK(has(ran.out, "backend fused"));
  CHECK(scene.result() == expected);
  CHECK(!fs::exists(scene.folder / "kernels"));
  for (const char* rows : {"0", "1", "2", "31", "32"}) {
    const Ran other = scene({"run", "repair.lua", "--repeat", "1", "--kernels", "repair.so", "--input",
                             std::string("z=randn:") + rows + "x17"});
    CAPTURE(rows);
    CHECK(other.status == 0);
    CHECK(other.err.empty());
  }
}

TEST_CASE("N01: a policy is captured as it is loaded, for the calls that its kernel file was built for") {
  const BuildScene scene;
  constexpr const char* sized =
      "return policy {inputs = {'z'}, run = function(z)\n"
      "  if z:size(0) > 20 then z = z * 2 end\n"
      "  return (fix((z + 1):tanh(), flag_nan(z, 'z'), 'z')) end}\n";
  write_bytes(scene.folder / "sized.lua", sized);
  const Ran built = scene({"build", "sized.lua", "-o", "sized.so", "--input", "z=randn:33x17,nan=2", "--json"});
  CAPTURE(built.err);
  REQUIRE(built.status == 0);
  const auto calls = built.json()["calls"];
  REQUIRE(calls.size() >= 2);
  CHECK(calls[0] == parse_json(R"(["f32[33, 17]"])"));

  const auto captures = [&](const std::vector<std::string>& more) {
    const Variable logs("TRIAGE_LOGS", "+capture");
    const Ran ran = scene({"run", "sized.lua", "--input", "z=randn:64x17,nan=1"}, more);
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
    size_t count = 0;
    for (size_t at = 0; (at = ran.err.find("Step 1: capture of", at)) != std::string::npos; ++at)
      count += has(ran.err.substr(at, ran.err.find('\n', at) - at), "begins");
    return count;
  };
  const NoCompiler none;
  CHECK(captures({}) == 1);                                    // in the first call
  CHECK(captures({"--kernels", "sized.so"}) == calls.size());  // in the load, and none in the call
  CHECK(captures({"--kernels", "sized.so", "--compiler", "off"}) == calls.size());
  write_bytes(scene.folder / "sized.lua", std::string(sized) + "-- another source\n");
  CHECK(captures({"--kernels", "sized.so"}) == 1);
}

TEST_CASE("N01: a policy that takes no made-up inputs, or fails for them, is loaded as without known calls") {
  const BuildScene scene;
  write_bytes(scene.folder / "picky.lua",
              "local calls = 0\n"
              "return policy {inputs = {'z'}, run = function(z)\n"
              "  assert(z:size(1) < 5 or z[0][0]:item() > 1.5, 'not these')\n"
              "  return (fix((z + 1):tanh(), flag_nan(z, 'z'), 'z')) end}\n");
  const Ran built = scene({"build", "picky.lua", "-o", "picky.so", "--input", "z=randn:8x4"});
  CAPTURE(built.err);
  REQUIRE(built.status == 0);
  const Ran fine = scene({"run", "picky.lua", "--kernels", "picky.so", "--input", "z=randn:8x4"});
  CAPTURE(fine.err);
  CHECK(fine.status == 0);
}

TEST_CASE("build makes kernels for donated inputs, and with --gradients those of training") {
  const BuildScene scene;
  write_bytes(
      scene.folder / "train_policy.lua",
      "return policy {inputs = {'x'}, run = function(x) return (fix(x:tanh() * 2, flag_nan(x, 'x'), 'x')) end}\n");
  const auto made = [&](const std::vector<std::string>& more) {
    const Ran built =
        scene({"build", "train_policy.lua", "-o", "train.so", "--input", "x=randn:8x512", "--json"}, more);
    CAPTURE(built.err);
    REQUIRE(built.status == 0);
    return built.json()["kernels"].size();
  };
  const size_t without = made({}), with = made({"--gradients"});
  CHECK(without >= 2);  // the loops, and others in place (of short rows they are the same)
  CHECK(with > without);
}

TEST_CASE("a policy that the kernels were not built for is told of once, and the usual way serves") {
  const BuildScene scene;
  REQUIRE(scene.build().status == 0);
  write_bytes(scene.folder / "repair.lua", "return function(z) return z:exp() * 3 + 1 end");
  const Ran ran = scene({"run", "repair.lua", "--input", "z=randn:4x4", "--kernels", "repair.so"});
  CHECK(ran.status == 0);
  CHECK(has(ran.err, "has no kernel in \"repair.so\""));
  CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
}

TEST_CASE("kernels that cannot be used: one message, and the usual way serves") {
  const BuildScene scene;
  REQUIRE(scene.build().status == 0);
  const std::string whole = read_bytes(scene.folder / "repair.so");
  const auto message_of = [&](const std::string& bytes) {
    write_bytes(scene.folder / "other.so", bytes);
    const Ran ran = scene(call, {"--kernels", "other.so"});
    CHECK(ran.status == 0);
    CHECK(!scene.result().empty());
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
    return ran.err;
  };
  for (const size_t size : {size_t{0}, size_t{40}, whole.size() / 2, whole.size() - 1})
    CHECK(has(message_of(whole.substr(0, size)), "no file that `triage build` has made, or its end is missing"));
  std::string damaged = whole;
  damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
  CHECK(has(message_of(damaged), "changed or damaged"));
  CHECK(has(message_of(read_bytes(program_path()).substr(0, 4096)), "no file that `triage build` has made"));
}

TEST_CASE("build and --kernels, used wrongly") {
  const BuildScene scene;
  const auto refused = [&](const Ran& ran, int status, const std::string& part) {
    CAPTURE(ran.err);
    CHECK(ran.status == status);
    CHECK(ran.out.empty());
    CHECK(has(ran.err, part));
  };
  refused(scene({"build", "repair.lua"}), 2, "--output is required");
  refused(scene({"build", "nowhere.lua", "-o", "a.so"}), 2, "there is no such file");
  refused(scene({"build", "repair.lua", "-o", "."}), 2, "it is a folder");
  refused(scene({"build", "repair.lua", "-o", "repair.lua"}), 2, "it is the policy itself");
  refused(scene({"build", "repair.lua", "-o", "nowhere/a.so"}), 2, "nowhere/a.so");
  refused(scene.build({"--cpu", "no-such-processor"}), 2, "there is no processor \"no-such-processor\"");
  refused(scene.build({"--cpu", "native -o /tmp/x"}), 2, "there is no processor");
  refused(scene.build({"--input", "y=randn:2x2"}), 2, "has no input \"y\"");
  refused(scene(call, {"--kernels", "nowhere.so"}), 2, "there is no such file");
  refused(scene(call, {"--kernels", "."}), 2, "--kernels .: it is a folder");
  refused(scene(call, {"--kernels", "repair.lua", "--backend", "eager"}), 2, "--kernels needs --backend fused");
  write_bytes(scene.folder / "bare.lua", "return function(z) return z * 2 + 1 end");
  refused(scene({"build", "bare.lua", "-o", "a.so"}), 2, "--input z=randn:32x512");
  write_bytes(scene.folder / "aten.lua", "return function(z) return z:sort() end");
  refused(scene({"build", "aten.lua", "-o", "a.so", "--input", "z=randn:4x4"}), 1, "nothing to build");
  const NoCompiler none;
  refused(scene.build(), 1, "cannot start `/nowhere/c++`");
  CHECK(scene.folder.names() ==
        std::vector<std::string>{"aten.lua", "bare.lua", "repair.lua"});  // nothing half-written
}

TEST_CASE("nothing of a policy reaches the compiler or the manifest as more than text") {
  const BuildScene scene;
  write_bytes(scene.folder / "evil.lua",
              "return policy { name = 'x\\\\\"; $(touch owned) -o y', inputs = { 'z' }, outputs = { 'z', 'f' },\n"
              "  run = function(z)\n"
              "    local f = flag_nan(z, '\"; } int system(const char*); static int s = system(\"touch owned\"); //')\n"
              "    return fix(z * 2 + 1, f, [[)\"\n#include \"/etc/passwd\"\n]])\n  end }\n");
  const Ran built = scene({"build", "evil.lua", "-o", "evil.so", "--json", "--input", "z=randn:4x4"});
  CAPTURE(built.err);
  REQUIRE(built.status == 0);
  CHECK(!built.json()["features"].empty());
  const std::string bytes = read_bytes(scene.folder / "evil.so");
  CHECK(has(bytes, "name x\\x5c\"; $(touch owned) -o y\n"));
  CHECK(!has(bytes, "system("));
  const Ran ran = scene({"run", "evil.lua", "--input", "z=randn:4x4", "--kernels", "evil.so"});
  CHECK(ran.status == 0);
  CHECK(ran.err.empty());
  CHECK(!fs::exists(scene.folder / "owned"));
}

TEST_CASE("a built file takes the place of another, whole") {
  const BuildScene scene;
  write_bytes(scene.folder / "repair.so", "old");
  REQUIRE(scene.build({"--input", "z=randn:4x4"}).status == 0);
  CHECK(read_bytes(scene.folder / "repair.so").size() > 1000);
  CHECK(scene.folder.names() == std::vector<std::string>{"repair.lua", "repair.so"});
}
