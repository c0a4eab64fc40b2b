// Flags from one run of the program to the next: `--output f=FILE`, `--input f=FILE`.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/files.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/scene.h"

namespace {

/// Flags what is NaN, at `location` and with the code `code`; then adds a note of its own, at the place that was named
/// last before.
std::string marks(const std::string& codes, const std::string& code, const std::string& location) {
  return "return policy {outputs = {'z', 'f'}, codes = {" + codes + "}, run = function(z)\n" +
         "  return z, push(err.new(z), " + code + ", '" + location + "', {where = z:isnan():any(-1)}) end}";
}

/// Takes flags, and adds a note of its own.
std::string adds(const std::string& more, const std::string& code, const std::string& location) {
  return "return policy {inputs = {'z', 'f'}, outputs = {'z', 'f'}, " + more + " run = function(z, f)\n" +
         "  return z, push(f, " + code + ", '" + location + "') end}";
}
const std::string typed = "signature = {f = Tensor(error_t)}, ";

struct TwoRuns : Scene {
  TwoRuns() {
    write_bytes(folder / "first.lua", marks("MISSING = 4", "err.MISSING", "sensor"));
    write_bytes(folder / "second.lua", adds("", "err.SATURATED", "gate"));
    write_bytes(folder / "typed.lua", adds(typed, "err.SATURATED", "gate"));
    const Ran ran = (*this)({"run", "first.lua", "--input", "z=randn:3x2,nan=1", "--output", "z=z.pt", "--output",
                             "f=f.pt", "--repeat", "1"});
    CHECK_MESSAGE(ran.status == 0, ran.err);
    triage::save_tensor(folder / "f.npy", triage::load_tensor(folder / "f.pt"));
  }
  Ran second(const std::string& policy, const std::string& f, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"run",     policy,   "--input",  "z=zeros:3x2",
                                          "--input", "f=" + f, "--repeat", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return (*this)(arguments);
  }
};

}  // namespace

TEST_CASE("flags of an earlier run keep the names of their file, beside those of the policy") {
  TwoRuns triage;
  for (const char* policy : {"second.lua", "typed.lua"}) {
    CAPTURE(policy);
    const Ran ran = triage.second(policy, "f.pt", {"--output", "f=g.pt:f", "--output", "z=g.pt:z", "--json"});
    CAPTURE(ran.err);
    REQUIRE(ran.status == 0);
    CHECK(ran.json()["flags"]["summary"] == parse_json(R"({"gate": {"SATURATED": 3}, "sensor": {"MISSING": 1}})"));
    const Ran third = triage.second(policy, "g.pt:f");  // through two files
    CHECK(has(third.out, "3xSATURATED, 1xMISSING @ gate, sensor)"));
  }
}

TEST_CASE("flags of a file without names are shown as ids, never with the names of this policy") {
  TwoRuns triage;
  for (const char* policy : {"second.lua", "typed.lua"}) {
    CAPTURE(policy);
    const Ran ran = triage.second(policy, "f.npy", {"--json"});
    CAPTURE(ran.err);
    REQUIRE(ran.status == 0);
    CHECK(ran.err.empty());
    CHECK(ran.json()["flags"]["summary"] == parse_json(R"({"gate": {"SATURATED": 3}, "Location_1": {"CODE_4": 1}})"));
  }
  // A policy that names its place while it is loaded has id 1 before the file is read.
  const std::string early = "local gate = ErrorLocation.register('gate')\n";
  write_bytes(triage.folder / "typed.lua", early + adds(typed, "err.SATURATED", "gate"));
  CHECK(triage.second("typed.lua", "f.npy", {"--json"}).json()["flags"]["summary"] ==
        parse_json(R"({"gate": {"SATURATED": 3}, "Location_1": {"CODE_4": 1}})"));
  write_bytes(triage.folder / "second.lua", early + adds("", "err.SATURATED", "gate"));
  CHECK(triage.second("second.lua", "f.pt", {"--json"}).json()["flags"]["summary"] ==
        parse_json(R"({"gate": {"SATURATED": 3}, "sensor": {"MISSING": 1}})"));
  CHECK(
      has(triage.second("second.lua", "f.npy").err,
          "triage: --input f=f.npy: if these are flags, location ids 1 in it are other places of this policy, for the "
          "file has no names. Declare them as flags: signature = { f = Tensor(error_t) }"));
}

TEST_CASE("a code that the file and the policy call differently is an error with both names") {
  TwoRuns triage;
  write_bytes(triage.folder / "stale.lua", adds("codes = {STALE = 4},", "err.STALE", "gate"));
  check_message(triage.second("stale.lua", "f.pt"), 2, "triage run",
                {"--input f=f.pt: the file calls code 4 MISSING, and the policy, or an input before, calls it STALE",
                 "Give one of them another of the free codes 4, 8 and 12"});
  write_bytes(triage.folder / "stale.lua", adds("codes = {STALE = 8},", "err.STALE", "gate"));
  CHECK(has(triage.second("stale.lua", "f.pt").out, "3xSTALE, 1xMISSING @ gate, sensor)"));
}

TEST_CASE("data of the form of flags stays as it is") {
  Scene triage;
  write_bytes(triage.folder / "same.lua", "return function(z) return z end");
  const at::Tensor z = at::full({2, 4}, int64_t{0x1234567812345678}, at::kLong);
  triage::save_tensor(triage.folder / "z.pt", z);
  CHECK(triage({"run", "same.lua", "--input", "z=z.pt", "--output", "out0=o.pt"}).status == 0);
  CHECK(triage::load_tensor(triage.folder / "o.pt").equal(z));
}

TEST_CASE("scripts read and write flags with their names") {
  TwoRuns triage;
  write_bytes(triage.folder / "read.lua",
              "push(err.new(torch.zeros({1, 1})), err.NAN, 'mine')\n"
              "local f, codes = flags.load('f.pt')\n"
              "print(flags.repr(f, {codes = codes}))\n"
              "print(flags.repr(torch.load('f.pt')))\n"
              "print(flags.repr(flags.load('f.npy')))\n"
              "flags.save(push(f, err.NAN, 'mine'), 'g.pt', {codes = codes})\n");
  const Ran ran = triage({"exec", "read.lua"});
  CAPTURE(ran.err);
  CHECK(ran.out ==
        "ErrorFlags(3 samples, 1 errors: 1xMISSING @ sensor)\n"
        "ErrorFlags(3 samples, 1 errors: 1xCODE_4 @ sensor)\n"
        "ErrorFlags(3 samples, 1 errors: 1xCODE_4 @ Location_1)\n");
  write_bytes(triage.folder / "again.lua",
              "local f, codes = flags.load('g.pt')\nprint(flags.repr(f, {codes = codes}), codes.MISSING)\n"
              "print(pcall(flags.repr, f, {codes = {A = 16}}))\nprint(pcall(flags.repr, f, {codes = 4}))\n"
              "print(flags.load('f.pt', {cfg = 1}))\n");
  const Ran again = triage({"exec", "again.lua"});
  CHECK(has(again.out, "ErrorFlags(3 samples, 4 errors: 3xNAN, 1xMISSING @ mine, sensor)\t4\n"));
  CHECK(has(again.out, "flags.repr: expected names, and codes of 0 to 15, in `codes`, got string \"A\" = "));
  CHECK(has(again.out, "flags.repr: expected a table of names and codes such as {MISSING = 4} as `codes`, got "));
  CHECK(has(again.err, "flags.load: the only option is config, got string \"cfg\""));
  write_bytes(triage.folder / "policy.lua", "return function(z)\n  return flags.load('f.pt')\nend\n");
  CHECK(has(triage({"check", "policy.lua"}).out, "policies have no 'flags.load': flags come to a policy as an input"));
}

TEST_CASE("a sample by line has the names of the policy's codes, and those that flags of a file bring") {
  TwoRuns triage;
  write_bytes(triage.folder / "stale.lua", adds("codes = {STALE = 8},", "err.STALE", "gate"));
  const Ran ran = triage({"run", "stale.lua", "--input", "z=zeros:3x2", "--input", "f=f.pt", "--sample", "0",
                          "--sample", "1", "--sample", "2"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(has(ran.out, "flags: MISSING @ sensor (WARN)\n"));
  CHECK(has(ran.out, "flags: MISSING @ sensor (WARN), STALE @ gate (WARN)\n"));
  CHECK_FALSE(has(ran.out, "CODE_"));
}
