// The commands on policies that read files beside them: examples/shared.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/files.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/paths.h"

namespace {

namespace fs = std::filesystem;

struct Shared {
  Shared() { fs::copy(triage::test::source_dir() + "/examples/shared", folder / "p", fs::copy_options::recursive); }
  Ran operator()(const std::vector<std::string>& arguments) const { return triage_program(folder, arguments); }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("check, test, run, export and bench of policies with modules and tables") {
  const Shared triage;
  const Ran checked = triage({"check", "p"});
  CHECK_MESSAGE(checked.status == 0, (checked.out + checked.err));
  CHECK(has(checked.out, "p/lib/ranges.lua: ok"));
  const Ran tested = triage({"test", "p", "--batches", "0,1,33"});
  CHECK_MESSAGE(tested.status == 0, (tested.out + tested.err));
  CHECK(has(tested.out, "2 passed, 0 failed"));
  CHECK_FALSE(has(tested.out, "ranges.lua"));  // a module is no policy
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run", "p/classes.lua", "--input", "z=rand:3x4", "--repeat", "1", "--output",
                                 "z=z.npy"},
        {"run", "p/features.lua", "--input", "z=rand:3x5", "--compare", "eager,fused"},
        {"export", "p/features.lua", "--input", "z=rand:3x5", "-o", "features.pt"}}) {
    const Ran ran = triage(arguments);
    CHECK_MESSAGE(ran.status == 0, (ran.out + ran.err));
  }
}

TEST_CASE("a module's errors, and a policy from standard input") {
  const Shared triage;
  write_bytes(triage.folder / "p/lib/ranges.lua", "return {\n  clip = function(z) return flag_nann(z) end}");
  const Ran checked = triage({"check", "p"});
  CHECK(checked.status == 1);
  CHECK(has(checked.out, "p/lib/ranges.lua:2:29: error: there is no 'flag_nann' in a policy"));
  fs::remove(triage.folder / "p/lib/ranges.lua");
  const Ran gone = triage({"check", "p/features.lua"});
  CHECK(gone.status == 1);
  CHECK(has(gone.out,
            "p/features.lua:2: error: require: cannot read 'lib/ranges.lua' in the folder of the policy: there is "
            "no such file"));
}
