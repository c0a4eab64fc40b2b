// `--limits`, the budgets of a script, in the commands that run one.
#include "tests/cli/scene.h"

#include <map>

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

// At 1/32 of the size: 512x152064 logits, 512x3x224x224 images, 2048x32768 features, 64x8x1536x256 scores, within 4
// GiB.
TEST_CASE("the default budget of memory holds every policy of the library on large batches") {
  const std::filesystem::path library = triage::test::source_dir() + "/scripts/policies";
  const std::map<std::string, std::vector<std::string>> inputs = {
      {"gradients", {"g=randn:16x3x224x224"}},
      {"index_range", {"ids=zeros:16x3x224x224,dtype=int64"}},
      {"masked_attention", {"scores=randn:2x8x1536x256"}},
      {"probabilities", {"z=randn:16x152064"}},
      {"repair_last_good", {"z=randn:16x3x224x224", "last=randn:16x3x224x224"}},
      {"repair_neighbour", {"z=randn:16x672x224"}},
      {"robust_scale", {"z=randn:64x32768"}},
      {"training_loss", {"losses=randn:1048576"}},
      {"zscore_clip", {"z=randn:64x32768"}},
      {"serving/quarantine",
       {"logits=randn:16x152064", "verdict=zeros:16,dtype=int8", "request_ids=zeros:16,dtype=int64"}},
      {"serving/repetition", {"logits=randn:16x152064", "history=zeros:16x64,dtype=int64"}},
      {"serving/temperature_floor", {"logits=randn:16x152064", "temperature=ones:16"}},
      {"serving/token_range", {"ids=zeros:16x152064,dtype=int64"}},
  };
  const PolicyFolder triage(loop);
  size_t ran = 0;
  for (const char* const folder : {"", "serving/"})
    for (const auto& file : std::filesystem::directory_iterator(library / folder)) {
      if (file.path().extension() != ".lua") continue;
      const std::string name = folder + file.path().stem().string();
      std::vector<std::string> arguments{"run", file.path().string(), "--limits", "tensor_bytes=134217728"};
      const auto found = inputs.find(name);
      const std::string plain = *folder ? "logits=randn:16x152064" : "z=randn:16x3x224x224";
      for (const std::string& input : found == inputs.end() ? std::vector{plain} : found->second)
        arguments.insert(arguments.end(), {"--input", input});
      const Ran result = triage(arguments);
      CHECK_MESSAGE(result.status == 0, name << ": " << result.err);
      ++ran;
    }
  CHECK(ran >= 23);
}
