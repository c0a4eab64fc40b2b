// What a script sees of locations on standard error.
#include "tests/cli/program.h"

#include <doctest/doctest.h>

TEST_CASE("T16: modules that were never tracked are Unknown, with one warning in the process") {
  TemporaryFolder folder;
  write_bytes(folder / "script.lua", R"(
    for i = 1, 3 do
      local f = err.from_code(err.NAN, setmetatable({}, {}), 2)
      print(flags.unpack(f, 0)[1].location_name)
    end
  )");
  const Ran ran = triage_program(folder, {"exec", "script.lua"});
  CHECK(ran.status == 0);
  CHECK(ran.out == "Unknown\nUnknown\nUnknown\n");
  const std::string warning = "without a path was given as a location";
  const size_t first = ran.err.find(warning);
  CHECK(first != std::string::npos);
  CHECK(ran.err.find(warning, first + 1) == std::string::npos);
}
