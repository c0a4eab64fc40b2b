// `triage watch POLICY --shadow FILE` and `--canary FILE`.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/scene.h"

namespace {

std::string policy(const std::string& body) {
  return "return policy { name = 'repair', inputs = {'z'}, outputs = {'z', 'f'}, run = function(z)\n" + body +
         "\nend }\n";
}

const std::string live =
    policy("local f = flag_nan_and_inf(z, 'logits'); return fix(z, f, 'logits', {fallback = 0.0})");
const std::string other =
    policy("local f = flag_nan_and_inf(z, 'logits'); return fix(z, f, 'logits', {fallback = 0.5})");
const std::string strict =
    policy("local f = flag_nan_and_inf(z + torch.where(z:abs() > 1, math.huge, 0.0), 'logits'); return z, f");
const std::string failing = policy(
    "if z:max():item() > -100 and z:min():item() < -1 then error('on purpose') end\n"
    "return z, flag_nan_and_inf(z, 'logits')");

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

struct Rollouts : Scene {
  Rollouts() {
    write_bytes(folder / "live.lua", live);
    write_bytes(folder / "other.lua", other);
    write_bytes(folder / "strict.lua", strict);
    write_bytes(folder / "failing.lua", failing);
  }
};

}  // namespace

TEST_CASE("watch --shadow compares a new version on calls, and prints a report") {
  Rollouts triage;
  const Ran ran =
      triage({"watch", "live.lua", "--shadow", "other.lua", "--input", "z=randn:8x4,nan=1", "--calls", "20", "--json"});
  CHECK(ran.status == 0);
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  const auto lines = lines_of(ran.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0]["event"] == "loaded");
  CHECK(lines[0]["version"] == 1);
  CHECK(lines[1]["event"] == "shadow");
  CHECK(lines[1]["version"] == 2);
  CHECK(lines[1]["path"] == "other.lua");
  const auto& report = lines[2];
  CHECK(report["event"] == "report");
  CHECK(report["state"] == "ended");
  CHECK(report["shadow"]["compared"] == 20);
  CHECK(report["shadow"]["dropped"] == 0);
  CHECK(report["shadow"]["different"] == 20);  // one sample of each batch
  CHECK(report["shadow"]["different_unflagged"] == 0);
  CHECK(report["shadow"]["max_difference"] == 0.5);
  CHECK(report["shadow"]["only_candidate"] == 0);

  const Ran text = triage(
      {"watch", "live.lua", "--shadow", "strict.lua", "--input", "z=randn:8x4", "--calls", "20", "--share", "0.5"});
  CHECK(text.status == 0);
  CHECK(text.out.find("repair: shadow of strict.lua, version 2 (source ") != std::string::npos);
  CHECK(text.out.find("  compared   10 calls, 80 samples; 0 failed, 0 dropped, 0 not comparable\n") !=
        std::string::npos);
  CHECK(text.out.find("             INF @ logits: 0 only live, ") != std::string::npos);
}

TEST_CASE("watch --canary promotes a new version, or takes it back") {
  Rollouts triage;
  const std::vector<std::string> rules = {"--p99-ratio", "0"};  // of a machine with other work
  const Ran good = triage({"watch", "live.lua", "--canary", "other.lua", "--input", "z=randn:8x4,nan=1", "--share",
                           "0.5", "--promote-after", "200", "--p99-ratio", "0", "--json"});
  CAPTURE(good.out);
  CAPTURE(good.err);
  CHECK(good.status == 0);
  const auto lines = lines_of(good.out);
  REQUIRE(lines.size() == 4);
  CHECK(lines[1]["event"] == "canary");
  CHECK(lines[2]["event"] == "promoted");
  CHECK(lines[2]["version"] == 2);
  CHECK(lines[3]["state"] == "promoted");
  CHECK(lines[3]["reason"] == "it answered 200 calls, and no rule was broken");
  CHECK(lines[3]["candidate"]["flagged"].get<int>() >= 200);

  const Ran fails = triage({"watch", "live.lua", "--canary", "failing.lua", "--input", "z=randn:8x4", "--json"});
  CAPTURE(fails.out);
  CHECK(fails.status == 1);
  const auto events = lines_of(fails.out);
  REQUIRE(events.size() == 4);
  CHECK(events[2]["event"] == "candidate_reverted");
  CHECK(events[2]["version"] == 1);
  CHECK(events[2]["message"].get<std::string>().find("on purpose") != std::string::npos);
  CHECK(events[3]["state"] == "reverted");
  CHECK(events[3]["candidate"]["failures"] == 1);

  const Ran flags = triage({"watch", "live.lua", "--canary", "strict.lua", "--input", "z=randn:64x8,nan=1", "--share",
                            "0.5", "--p99-ratio", "0"});
  CHECK(flags.status == 1);
  CHECK(flags.out.find("reverted: flagged_ratio: the candidate flagged ") != std::string::npos);
}

TEST_CASE("watch with a candidate says what is wrong") {
  Rollouts triage;
  std::filesystem::create_directory(triage.folder / "folder");
  const std::string input = "z=randn:8x4";
  check_message(triage({"watch", "live.lua", "--canary", "none.lua", "--input", input}), 2, "triage watch",
                {"none.lua", "there is no such file"});
  check_message(triage({"watch", "folder", "--canary", "other.lua", "--input", input}), 2, "triage watch",
                {"need one policy", "is a folder"});
  check_message(triage({"watch", "live.lua", "--canary", "other.lua"}), 2, "triage watch", {"z"});
  check_message(triage({"watch", ".", "--input", input}), 2, "triage watch", {"--canary FILE"});
  check_message(triage({"watch", "live.lua", "--canary", "other.lua", "--shadow", "other.lua", "--input", input}), 2,
                "triage watch", {"--shadow"});
  check_message(triage({"watch", "live.lua", "--canary", "live.lua", "--input", input}), 2, "triage watch",
                {"has the source of version 1, which is live"});
  write_bytes(triage.folder / "broken.lua", "return function(z) return z +\n");
  check_message(triage({"watch", "live.lua", "--canary", "broken.lua", "--input", input}), 1, "triage watch",
                {"broken.lua:"});
  write_bytes(triage.folder / "renamed.lua",
              "return policy { inputs = {'a', 'b'}, run = function(a, b) return a, b end }");
  check_message(triage({"watch", "live.lua", "--shadow", "renamed.lua", "--input", input}), 1, "triage watch",
                {"the new source changes the inputs from (z) to (a, b)"});
}
