// `triage export`: programs in files, which other processes run. This test program holds no operator of triage.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <triage/files.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/policy_folder.h"
#include "tests/paths.h"

namespace {

constexpr const char* exported_policy = R"(return policy {
  inputs = { "z" }, outputs = { "z", "f" }, params = { limit = 3.0 },
  run = function(z, p)
    local f = flag_nan_and_inf(z, "features")
    z = err.take_ok_p(f, z)
    local m, s = z:mean(-1, true), z:std(-1, {keepdim = true}) + 1e-6
    local far = (z - m):abs() > p.limit * s
    f = push(f, err.VALUE_CLAMPED, "features", {where = far:any(-1)})
    return torch.where(far, m + p.limit * s * torch.sign(z - m), z), f
  end,
}
)";

struct ExportScene : PolicyFolder {
  ExportScene() : PolicyFolder(exported_policy) {}
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.equal(b) || at::allclose(a.to(at::kDouble), b.to(at::kDouble), 0, 0, /*equal_nan=*/true));
}

}  // namespace

TEST_CASE("E04: triage export prints a policy as a program, and saves it for another process") {
  ExportScene triage;
  Ran ran = triage({"export", "repair.lua", "-i", "z=randn:8x4,seed=1,nan=2", "-o", "repair.program"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  CAPTURE(ran.out);
  CHECK(ran.out.rfind("ExportedProgram:\n    graph repair(z: \"f32[s0, 4]\", limit: \"f64[]\"):\n", 0) == 0);
  CHECK(ran.out.find("z (USER_INPUT), limit (PARAM, default 3.0)") != std::string::npos);
  CHECK(ran.out.find("Range constraints: {s0: VR[0, int_oo]}\n") != std::string::npos);
  // The same in a process of its own, against what the script does.
  write_bytes(triage.folder / "use.lua", R"(
    local program = triage.load_exported("repair.program")
    local file <close> = io.open("text", "w")
    file:write(tostring(program))
    local function repair(z, limit)
      local f = flag_nan_and_inf(z, "features")
      z = err.take_ok_p(f, z)
      local m, s = z:mean(-1, true), z:std(-1, {keepdim = true}) + 1e-6
      local far = (z - m):abs() > limit * s
      f = push(f, err.VALUE_CLAMPED, "features", {where = far:any(-1)})
      return torch.where(far, m + limit * s * torch.sign(z - m), z), f
    end
    for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
      local z = torch.randn({rows, 4})
      if rows > 0 then z[{0, 1}] = 0 / 0 end
      local y, f = program(z)
      local wanted, flagged = repair(z, 3.0)
      assert(torch.equal(y, wanted) and torch.equal(f, flagged))
    end
  )");
  Ran used = triage({"exec", "use.lua"});
  CAPTURE(used.err);
  CHECK(used.status == 0);
  CHECK(read_bytes(triage.folder / "text") + "saved to repair.program\n" == ran.out);
}

TEST_CASE("E04: export --decomposed, --fixed-sizes and --json") {
  ExportScene triage;
  Ran ran = triage({"export", "repair.lua", "-i", "z=randn:8x4", "--decomposed", "--fixed-sizes", "--json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  const std::string text = ran.json()["program"];
  CHECK(text.find("triage::") == std::string::npos);
  CHECK(text.find("z: \"f32[8, 4]\"") != std::string::npos);
  CHECK(ran.json()["ops"].get<int>() > 10);
  CHECK(triage({"export", "repair.lua"}).status == 2);
  CHECK(triage({"export", "repair.lua", "-i", "z=randn:8x4", "-o", "no/such/folder"}).status == 2);
  const std::string source = read_bytes(triage.folder / "repair.lua");
  for (const std::vector<std::string>& files : std::vector<std::vector<std::string>>{
           {"-o", "./repair.lua"}, {"--torchscript", "repair.lua"}, {"-o", "x.out", "--torchscript", "./x.out"}}) {
    std::vector<std::string> arguments = {"export", "repair.lua", "-i", "z=randn:8x4"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    CHECK(triage(arguments).status == 2);
    CHECK(read_bytes(triage.folder / "repair.lua") == source);
    CHECK_FALSE(std::filesystem::exists(triage.folder / "x.out"));
  }
  write_bytes(triage.folder / "breaks.lua", "return function(z) if z:sum():item() > 0 then return z end return -z end");
  Ran broken = triage({"export", "breaks.lua", "-i", "z=randn:8x4"});
  CHECK(broken.status == 1);
  CHECK(broken.err.find("graph break") != std::string::npos);
}

TEST_CASE("E04: TorchScript from a policy runs in C++ without triage, to the same bits") {
  ExportScene triage;
  Ran ran = triage({"export", "repair.lua", "-i", "z=randn:8x4", "--torchscript", "repair.pt"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  torch::jit::Module module = torch::jit::load(triage.folder / "repair.pt");
  for (int64_t rows : {0, 1, 2, 31, 32, 33}) {
    CAPTURE(rows);
    at::Tensor z = at::randn({rows, 4});
    if (rows > 0) z[0][1] = NAN;
    if (rows > 2) z[2][0] = INFINITY;
    triage::save_tensor(triage.folder / "z.pt", z);
    Ran direct =
        triage({"run", "repair.lua", "-i", "z=z.pt", "-p", "limit=1.5", "-o", "z=z_out.pt", "-o", "f=f_out.pt"});
    REQUIRE(direct.status == 0);
    auto outputs = module.forward({z, 1.5}).toTuple();
    CHECK(same_bits(outputs->elements()[0].toTensor(), triage::load_tensor(triage.folder / "z_out.pt")));
    CHECK(same_bits(outputs->elements()[1].toTensor(), triage::load_tensor(triage.folder / "f_out.pt")));
  }
  CHECK_NOTHROW(module.forward({at::randn({3, 4})}));  // the param has its default
}

TEST_CASE("E04: every policy of the library becomes TorchScript") {
  TemporaryFolder folder;
  std::filesystem::create_directory_symlink(std::filesystem::path(triage::test::source_dir()) / "scripts",
                                            folder / "scripts");
  int exported = 0;
  for (const char* name :
       {"clamp", "constant_output", "logits", "repair_mean", "repair_neighbour", "repair_zero", "saturation"}) {
    CAPTURE(name);
    const std::string policy = std::string("scripts/policies/") + name + ".lua";
    Ran ran =
        triage_program(folder, {"export", policy, "-i", "z=randn:8x4x4,seed=3,nan=1", "--torchscript", "module.pt"});
    CAPTURE(ran.err);
    CHECK(ran.status == 0);
    if (ran.status != 0) continue;
    at::Tensor z = at::randn({5, 4, 4});
    z[1][3][0] = NAN;
    triage::save_tensor(folder / "z.pt", z);
    Ran direct = triage_program(folder, {"run", policy, "-i", "z=z.pt", "-o", "z=out.pt:z", "-o", "f=out.pt:f"});
    CAPTURE(direct.err);
    REQUIRE(direct.status == 0);
    auto outputs = torch::jit::load(folder / "module.pt").forward({z}).toTuple();
    CHECK(same_bits(outputs->elements()[0].toTensor(), triage::load_tensor(folder / "out.pt:z")));
    CHECK(same_bits(outputs->elements()[1].toTensor(), triage::load_tensor(folder / "out.pt:f")));
    ++exported;
  }
  CHECK(exported == 7);
}

TEST_CASE("E04: what Lua's math makes of sizes goes to TorchScript with the bits of the script") {
  ExportScene triage;
  write_bytes(triage.folder / "make.lua", R"(
    local function scale(z)
      local n = z:size(0)
      local sum = math.sqrt(n) + n ^ 0.3 + n ^ 2 + 2 ^ (1 / n) + math.exp(1 / n) + math.log(n + 1) + math.log(n + 1, 10)
      sum = sum + math.sin(n) + math.atan(n, 2) + math.fmod(n / 2, 0.3) + math.floor(n / 2) + math.ceil(n / 3)
      return z + sum + math.max(n, 4) + (n >> 1) + (n & 1), z + math.log(n + 1, 2)
    end
    local program = triage.export(scale, {torch.zeros({4}, {dtype = torch.float64})}, {dynamic_shapes = "batch"})
    program:to_torchscript("scale.pt")
    for n = 1, 40 do torch.save({scale(torch.zeros({n}, {dtype = torch.float64}))}, n .. ".pt") end
  )");
  Ran made = triage({"exec", "make.lua"});
  CAPTURE(made.err);
  REQUIRE(made.status == 0);
  torch::jit::Module scale = torch::jit::load(triage.folder / "scale.pt");
  for (int64_t n = 1; n <= 40; ++n) {
    CAPTURE(n);
    const auto got = scale.forward({at::zeros({n}, at::kDouble)}).toTuple()->elements();
    const std::string file = triage.folder / (std::to_string(n) + ".pt");
    CHECK(got[0].toTensor().equal(triage::load_tensor(file + ":0")));
    CHECK(got[1].toTensor().allclose(triage::load_tensor(file + ":1"), 1e-15, 1e-15));  // ATen has its own log2
  }
}

// The seed's programs, whole and in plain ATen: saved by one process, loaded by another, and TorchScript for this one,
// which has no operator of triage.
constexpr const char* escape_hatches = R"(
local get_item = triage.assume_constant_result(function(y) return y:int():item() end)
local function checked(x) local a = x:item() triage.check(a >= 0) triage.check(a <= 5, "at most five") return a end
local programs = {
  constant = triage.export(function(x, y) return x[{{0, get_item(y)}}] end, {torch.randn({6, 2}), torch.tensor(4)}),
  size = triage.export(function(x)
    local a = x:item()
    triage.check_is_size(a)
    triage.check(a <= 5, "at most five")
    return torch.zeros({a, 5})
  end, {torch.tensor(4)}),
  value = triage.export(function(x, y)
    if checked(x) < 6 then return y:sin() end
    return y:cos()
  end, {torch.tensor(4), torch.randn({5, 5})}),
}
for name, program in pairs(programs) do
  for kind, made in pairs({whole = program, plain = program:run_decompositions()}) do
    made:save(name .. "." .. kind)
    made:to_torchscript(name .. "." .. kind .. ".pt")
  end
end
)";

TEST_CASE(
    "E01, E02, E03: the seed's programs go to files and TorchScript whole or in plain ATen, assertions included") {
  ExportScene triage;
  write_bytes(triage.folder / "make.lua", escape_hatches);
  Ran made = triage({"exec", "make.lua"});
  CAPTURE(made.err);
  REQUIRE(made.status == 0);
  write_bytes(triage.folder / "use.lua", R"(
    for _, kind in ipairs({"whole", "plain"}) do
      local constant, size, value = triage.load_exported("constant." .. kind), triage.load_exported("size." .. kind),
        triage.load_exported("value." .. kind)
      assert(tostring(size):find('"f32[u0, 5]"', 1, true) and tostring(size):find("{u0: VR[0, 5]}", 1, true))
      assert(tostring(value):find("{u0: VR[0, 5]}", 1, true))
      local x, y = torch.randn({6, 2}), torch.randn({5, 5})
      assert(torch.equal(constant(x, torch.tensor(1)), x[{{0, 4}}]))
      for n = 0, 5 do
        assert(torch.equal(size(torch.tensor(n)), torch.zeros({n, 5})))
        assert(torch.equal(value(torch.tensor(n), y), y:sin()))
      end
      for _, n in ipairs({-1, 6}) do
        for _, call in ipairs({function() size(torch.tensor(n)) end, function() value(torch.tensor(n), y) end}) do
          local _, message = pcall(call)
          local said = n < 0 and "expression u0 >= 0 on node 'ge'" or "expression u0 <= 5 on node 'le': at most five"
          assert(message:find(said, 1, true) and message:find("make.lua:%d+: "), message)
        end
      end
    end
  )");
  Ran used = triage({"exec", "use.lua"});
  CAPTURE(used.err);
  CHECK(used.status == 0);
  for (const std::string kind : {"whole", "plain"}) {
    CAPTURE(kind);
    torch::jit::Module constant = torch::jit::load(triage.folder / "constant." + kind + ".pt"),
                       size = torch::jit::load(triage.folder / "size." + kind + ".pt"),
                       value = torch::jit::load(triage.folder / "value." + kind + ".pt");
    const at::Tensor x = at::randn({6, 2}), y = at::randn({5, 5});
    CHECK(constant.forward({x, at::scalar_tensor(1, at::kLong)}).toTensor().equal(x.slice(0, 0, 4)));
    for (int64_t n = 0; n <= 5; ++n) {
      CHECK(size.forward({at::scalar_tensor(n, at::kLong)}).toTensor().equal(at::zeros({n, 5})));
      CHECK(value.forward({at::scalar_tensor(n, at::kLong), y}).toTensor().equal(y.sin()));
    }
    for (int64_t n : {-1, 6}) {
      std::string message;
      try {
        size.forward({at::scalar_tensor(n, at::kLong)});
      } catch (const std::exception& error) {
        message = error.what();
      }
      CHECK(message.find(n < 0 ? "expression u0 >= 0" : "u0 <= 5 on node 'le': at most five") != std::string::npos);
    }
    CHECK_THROWS(value.forward({at::scalar_tensor(6, at::kLong), y}));
    CHECK_THROWS(constant.forward({at::randn({5, 2}), at::scalar_tensor(1, at::kLong)}));  // exported for six rows
    CHECK_THROWS(value.forward({at::scalar_tensor(1, at::kLong), y.to(at::kDouble)}));
  }
}

TEST_CASE("E04: TorchScript from a policy runs in Python without triage" * doctest::skip(python() == nullptr)) {
  ExportScene triage;
  REQUIRE(triage({"export", "repair.lua", "-i", "z=randn:8x4", "--torchscript", "repair.pt"}).status == 0);
  write_bytes(triage.folder / "make.lua", escape_hatches);
  REQUIRE(triage({"exec", "make.lua"}).status == 0);
  at::Tensor z = at::randn({33, 4});
  z[0][1] = NAN;
  triage::save_tensor(triage.folder / "z.pt", z);
  REQUIRE(triage({"run", "repair.lua", "-i", "z=z.pt", "-o", "z=z_out.pt", "-o", "f=f_out.pt"}).status == 0);
  const std::string script = write_bytes(triage.folder / "use.py", R"(
import sys, torch
d = sys.argv[1] + '/'
module = torch.jit.load(d + 'repair.pt')
z, f = module(torch.load(d + 'z.pt', weights_only=True))
assert torch.equal(f, torch.load(d + 'f_out.pt', weights_only=True))
expected = torch.load(d + 'z_out.pt', weights_only=True)
assert torch.equal(z, expected), (z, expected)
module(torch.randn(2, 4), limit=1.0)
for kind in ('whole', 'plain'):
    constant, size, value = (torch.jit.load(d + name + '.' + kind + '.pt') for name in ('constant', 'size', 'value'))
    x, y = torch.randn(6, 2), torch.randn(5, 5)
    assert torch.equal(constant(x, torch.tensor(1)), x[:4])
    for n in range(6):
        assert torch.equal(size(torch.tensor(n)), torch.zeros(n, 5)) and torch.equal(value(torch.tensor(n), y), y.sin())
    for call in (lambda: size(torch.tensor(6)), lambda: value(torch.tensor(6), y)):
        try:
            call()
            raise SystemExit('an assertion did not hold')
        except torch.jit.Error as error:
            assert 'u0 <= 5' in str(error) and 'at most five' in str(error), error
)");
  const std::string command = std::string("env -u LD_LIBRARY_PATH '") + python() + "' '" + script + "' '" +
                              triage.folder.path().string() + "' > '" + (triage.folder / "log") + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string log = read_bytes(triage.folder / "log");
  CAPTURE(log);
  CHECK(status == 0);
}
