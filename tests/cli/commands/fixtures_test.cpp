// Tables and files in a policy's tests, in the place of functions.
#include <ATen/ATen.h>
#include <triage/files.h>

#include <filesystem>
#include <limits>

#include "tests/cli/scene.h"

namespace {

std::string with_tests(const std::string& tests, const std::string& more = "") {
  return "return policy {\n  inputs = {\"z\"}, outputs = {\"z\", \"f\"},\n" + more +
         "  run = function(z)\n    local f = flag_nan_and_inf(z, \"x\")\n    return fix(z, f, \"x\", {fallback = "
         "0.5})\n"
         "  end,\n  tests = {" +
         tests + "},\n}\n";
}

struct Fixtures {
  TemporaryFolder folder;
  Fixtures() {
    std::filesystem::create_directory(folder / "inner");
    std::filesystem::create_directory(folder / "inner/rows");
    const at::Tensor rows = at::tensor({1.0F, 2.0F, std::numeric_limits<float>::quiet_NaN(), 4.0F}).view({2, 2});
    triage::save_tensor(folder / "inner/rows/bad.npy", rows);
    triage::save_tensor(folder / "outside.npy", rows);
    triage::save_tensor(folder / "inner/fixed.pt", at::tensor({1.0F, 2.0F, 0.5F, 0.5F}).view({2, 2}));
  }
  Ran test(const std::string& tests, const std::string& more = "") const {
    write_bytes(folder / "inner/repair.lua", with_tests(tests, more));
    return triage_program(folder, {"test", "inner/repair.lua"});
  }
};

}  // namespace

TEST_CASE("a test with tables and files: what goes in, and what comes out") {
  const Fixtures scene;
  const Ran ran = scene.test(R"(
    {name = "a table", args = {z = {{1.0, 0/0}, {2.0, 3.0}}}, expect = {z = {{0.5, 0.5}, {2, 3}}, f = {{"NAN", "FALLBACK_VALUE"}, {}}}},
    {name = "files", args = {z = "rows/bad.npy"}, expect = {z = "fixed.pt"}},
    {name = "a tensor and a function", args = {z = torch.ones({2, 2})}, expect = {z = torch.ones({2, 2})},
     check = function(z, f) return err.is_ok(f):all() end},
    {name = "as before", args = function() return torch.ones({1, 2}) end, check = function(z, f) return z:eq(1):all() end},
  )");
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(has(ran.out, "4 passed, 0 failed"));
}

TEST_CASE("a test with tables expects codes by the names that the policy gives them") {
  const TemporaryFolder folder;
  write_bytes(folder / "own.lua",
              "return policy {inputs = {'z'}, outputs = {'f'}, codes = {MISSING = 4}, run = function(z)\n"
              "  return push(err.new(z), err.MISSING, 'x', {where = z:isnan():any(-1)}) end,\n"
              "  tests = {{name = 'own', args = {z = {{0/0}, {1.0}}}, expect = {f = {{'MISSING'}, {}}}},\n"
              "    {name = 'number', args = {z = {{0/0}}}, expect = {f = {{'CODE_4'}}}}}}");
  const Ran ran = triage_program(folder, {"test", "own.lua"});
  CAPTURE(ran.out);
  CHECK(has(ran.out, "1 passed, 1 failed"));
  CHECK(has(ran.out, "'f' differs in sample 0: the codes are MISSING, expected CODE_4"));
}

TEST_CASE("numbers of a table that the dtype of an output cannot hold are an error of the test") {
  const TemporaryFolder folder;
  const auto test = [&](const std::string& expected) {
    write_bytes(folder / "own.lua",
                "return policy {inputs = {'z'}, outputs = {'z', 'm', 'h'}, run = function(z) return z:to(torch.int64), "
                "z:gt(1), "
                "z:to(torch.float16) end,\n  tests = {{name = 't', args = {z = {{1, 2}}}, expect = {" +
                    expected + "}}}}");
    return triage_program(folder, {"test", "own.lua"});
  };
  CHECK(has(test("z = {{1.9, 2}}").out, "1.9 is no int64"));
  CHECK(has(test("z = {{0/0, 2}}").out, "nan is no int64"));
  CHECK(has(test("m = {{0, 7}}").out, "7 is no bool"));
  CHECK(has(test("h = {{70000, 2}}").out, "70000 is no float16"));
  CHECK(has(test("z = {{1, 2}}, m = {{0, 1}}, h = {{1.0, 2.0}}").out, "1 passed, 0 failed"));
  CHECK(has(test("m = {{false, true}}, h = {{1.0005, 2}}").out, "1 passed, 0 failed"));
}

TEST_CASE("a test with tables fails with the sample that differs") {
  const Fixtures scene;
  const auto fails = [&](const std::string& test, const std::string& with) {
    const Ran ran = scene.test(test);
    CAPTURE(test);
    CAPTURE(ran.out);
    CAPTURE(ran.err);
    CHECK(ran.status == 1);
    CHECK(has(ran.out + ran.err, with));
  };
  fails("{args = {z = {{1.0, 0/0}, {2.0, 3.0}}}, expect = {z = {{0.5, 0.5}, {2.0, 4.0}}}}",
        "'z' differs in sample 1: 3, expected 4");
  fails("{args = {z = {{1.0, 0/0}, {2.0, 3.0}}}, expect = {z = {{0.5, 0.5}}}}",
        "'z' is Float[2, 2] on cpu, expected Float[1, 2]");
  fails("{args = {z = {{1.0, 0/0}, {2.0, 3.0}}}, expect = {f = {{\"INF\"}, {}}}}",
        "'f' differs in sample 0: the codes are FALLBACK_VALUE, NAN, expected INF");
  fails("{args = {z = {{1.0}}}, expect = {f = {{}, {}}}}", "'f' has 1 samples, expected 2");
  fails("{args = {z = {{1.0}}}, expect = {f = {0}}}", "expected a list of code names for each sample");
  fails("{args = {z = {{1.0}}}, expect = {z = {{1.0}}}, check = function() return false end}", "check returned false");
  fails("{args = {z = {{1.0}, {2.0, 3.0}}}, expect = {z = {{1.0}}}}", "ragged");
}

TEST_CASE("numbers of a table have the declared dtype of their input") {
  const Fixtures scene;
  const std::string test = R"({args = {z = {{1, 2}}}, check = function(z) return z.dtype == torch.float64 end})";
  CHECK(scene.test(test, "  signature = {z = Tensor(float64_t, {\"N\", 2})},\n").status == 0);
  CHECK(scene.test(test).status == 1);  // those of torch.tensor: int64
}

TEST_CASE("fixtures that are none are errors of the file, which name the test and the field") {
  const Fixtures scene;
  const auto refused = [&](const std::string& test, const std::string& with) {
    const Ran ran = scene.test(test);
    CAPTURE(test);
    CAPTURE(ran.out);
    CHECK(ran.status == 1);
    CHECK(has(ran.out + ran.err, with));
  };
  const std::string check = ", check = function() end}";
  refused("{args = {y = {{1.0}}, z = {{1.0}}}" + check, "test 1: field 'args': the policy has no input 'y'");
  refused("{args = {}" + check, "test 1: field 'args': the table has no entries");
  refused("{args = {{{1.0}}}" + check, "expected entries by name");
  refused("{args = {z = true}" + check,
          "field 'args': 'z': expected a table of numbers, a tensor, or the name of a file");
  refused("{args = 1" + check, "field 'args': expected a function, or a table");
  refused("{args = {z = {{1.0}}}}", "field 'check': expected a function, or the field 'expect'");
  refused("{args = {z = {{1.0}}}, expect = {}}", "field 'expect': the table has no entries");
  refused("{args = {z = {{1.0}}}, expect = {g = {{1.0}}}}", "has no output 'g'");
  refused("{args = {z = {{1.0}}}, expect = 3}", "field 'expect': expected a table");
  refused("{args = {z = {{1.0}}}, expects = {z = {{1.0}}}}", "there is no field 'expects'; did you mean 'expect'?");
  refused("{args = {z = \"none.npy\"}" + check, "test 1: field 'args'");
  refused("{args = {z = \"repair.lua\"}" + check, "expected a .pt, .pth, .npy or .safetensors file");
}

TEST_CASE("fixtures lie in the folder of the policy, and a policy that runs reads no file") {
  const Fixtures scene;
  const std::string check = ", check = function() end}";
  for (const std::string& path : {std::string("../outside.npy"), scene.folder / "outside.npy"}) {
    const Ran ran = scene.test("{args = {z = \"" + path + "\"}" + check);
    CAPTURE(ran.out);
    CHECK(ran.status == 1);
    CHECK(has(ran.out + ran.err, "outside.npy"));
    CHECK_FALSE(has(ran.out, "1 passed"));
  }
  const Ran ran = scene.test("{args = function() return torch.load(\"fixed.pt\") end" + check);
  CHECK(ran.status == 1);
  CHECK(has(ran.out, "a policy reads files only while it is loaded"));
}
