// `triage export`: programs in files, which other processes run. This test program holds no operator of triage.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <triage/files.h>

#include <cstdlib>

#include "policy_folder.h"
#include "tests/paths.h"

namespace {

const char* python() {
  const char* path = std::getenv("TRIAGE_PYTHON");
  return path && *path ? path : nullptr;
}

constexpr const char* repair = R"(return policy {
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

struct Scene : PolicyFolder {
  Scene() : PolicyFolder(repair) {}
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.equal(b) || at::allclose(a.to(at::kDouble), b.to(at::kDouble), 0, 0, /*equal_nan=*/true));
}

}  // namespace

TEST_CASE("E04: triage export prints a policy as a program, and saves it for another process") {
  Scene triage;
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
  Scene triage;
  Ran ran = triage({"export", "repair.lua", "-i", "z=randn:8x4", "--decomposed", "--fixed-sizes", "--json"});
  CAPTURE(ran.err);
  REQUIRE(ran.status == 0);
  const std::string text = ran.json()["program"];
  CHECK(text.find("triage::") == std::string::npos);
  CHECK(text.find("z: \"f32[8, 4]\"") != std::string::npos);
  CHECK(ran.json()["ops"].get<int>() > 10);
  CHECK(triage({"export", "repair.lua"}).status == 2);
  CHECK(triage({"export", "repair.lua", "-i", "z=randn:8x4", "-o", "no/such/folder"}).status == 2);
  write_bytes(triage.folder / "breaks.lua", "return function(z) if z:sum():item() > 0 then return z end return -z end");
  Ran broken = triage({"export", "breaks.lua", "-i", "z=randn:8x4"});
  CHECK(broken.status == 1);
  CHECK(broken.err.find("graph break") != std::string::npos);
}

TEST_CASE("E04: TorchScript from a policy runs in C++ without triage, to the same bits") {
  Scene triage;
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

TEST_CASE("E04: TorchScript from a policy runs in Python without triage" * doctest::skip(python() == nullptr)) {
  Scene triage;
  REQUIRE(triage({"export", "repair.lua", "-i", "z=randn:8x4", "--torchscript", "repair.pt"}).status == 0);
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
)");
  const std::string command = std::string("env -u LD_LIBRARY_PATH '") + python() + "' '" + script + "' '" +
                              triage.folder.path().string() + "' > '" + (triage.folder / "log") + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string log = read_bytes(triage.folder / "log");
  CAPTURE(log);
  CHECK(status == 0);
}
