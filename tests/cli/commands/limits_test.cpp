// `--limits`, the budgets of a script, in the commands that run one.
#include "tests/cli/scene.h"

namespace {

constexpr const char* loop = R"(return policy {
  inputs = {"z"}, outputs = {"z"},
  run = function(z)
    local n = 0
    for i = 1, 100000 do n = n + i end
    return z + n
  end,
  tests = {{args = function() return torch.ones({2, 2}) end, check = function() end}},
}
)";

}  // namespace

TEST_CASE("--limits are the budgets of the script, in each command that runs it") {
  const PolicyFolder triage(loop);
  const std::vector<std::string> input{"--input", "z=ones:2x2"};
  const auto run = [&](std::vector<std::string> command, const std::string& limits) {
    if (command[0] != "test" && command[0] != "check") command.insert(command.end(), input.begin(), input.end());
    if (!limits.empty()) command.insert(command.end(), {"--limits", limits});
    return triage(command);
  };
  for (const std::vector<std::string>& command : {std::vector<std::string>{"run", "repair.lua"},
                                                  {"run", "repair.lua", "--sample", "0"},
                                                  {"test", "repair.lua"},
                                                  {"verify", "repair.lua", "--law", "answers", "--search", "0"}}) {
    CAPTURE(command[0]);
    const Ran fine = run(command, "");
    CAPTURE(fine.err);
    CHECK(fine.status == 0);
    CHECK(run(command, "instructions=1e6,seconds=100").status == 0);
    CHECK(run(command, "instructions=0").status == 0);
    const Ran stopped = run(command, "instructions=20000");
    CAPTURE(stopped.out);
    CHECK(stopped.status == 1);
    CHECK(has(stopped.out + stopped.err, "instructions"));
  }
  CHECK(run({"run", "repair.lua"}, "tensor_bytes=8").status == 1);
  CHECK(run({"run", "repair.lua"}, "script_bytes=1000").status == 1);
  for (const char* limit : {"tensor_bytes=8", "instructions=5"})  // in its calls, at its load
    CHECK(run({"verify", "repair.lua"}, limit).status == 1);
}

TEST_CASE("--limits of check hold for the load") {
  const PolicyFolder triage("local n = 0\nfor i = 1, 100000 do n = n + i end\nreturn function(z) return z + n end\n");
  CHECK(triage({"check", "repair.lua"}).status == 0);
  const Ran stopped = triage({"check", "repair.lua", "--limits", "instructions=20000"});
  CHECK(stopped.status == 1);
  CHECK(has(stopped.out, "instructions"));
}

TEST_CASE("--limits: wrong use") {
  const PolicyFolder triage(loop);
  const auto refused = [&](const std::string& limits, std::initializer_list<const char*> parts) {
    CAPTURE(limits);
    check_message(triage({"run", "repair.lua", "--input", "z=ones:2x2", "--limits", limits}), 2, "triage run", parts);
  };
  refused("second=1", {"--limits second=1", "no limit \"second\"", "did you mean \"seconds\""});
  refused("seconds", {"--limits seconds", "seconds=NUMBER"});
  refused("seconds=-1", {"--limits seconds=-1", "0 (no limit) or more"});
  refused("seconds=nan", {"--limits seconds=nan"});
  refused("instructions=1.5", {"--limits instructions=1.5", "whole number"});
  refused("instructions=ten", {"--limits instructions=ten"});
  refused("seconds=1,tensor_bites=2", {"--limits tensor_bites=2", "did you mean \"tensor_bytes\""});
  check_message(triage({"test", "repair.lua", "--limits", "x=1"}), 2, "triage test", {"--limits x=1"});
  check_message(triage({"check", "repair.lua", "--limits", "x=1"}), 2, "triage check", {"--limits x=1"});
  check_message(triage({"verify", "repair.lua", "--limits", "x=1"}), 2, "triage verify", {"--limits x=1"});
}
