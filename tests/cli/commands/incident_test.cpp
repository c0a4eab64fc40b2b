// `triage incident`: what changed, who is affected and what to do, as text, JSON and a page.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "runtime/files/checksum.h"
#include "tests/cli/browser.h"
#include "tests/cli/program.h"

namespace {

using Json = nlohmann::json;

const std::string careful_source =
    "-- repair.lua\n"
    "return policy {\n"
    "  name = 'repair',\n"
    "  params = {limit = 10},\n"
    "  run = function(z, p)\n"
    "    local f = flag_nan(z, 'logits')\n"
    "    return fix(z, f, 'logits'), f\n"
    "  end,\n"
    "}\n";
const std::string strict_source =
    "-- repair.lua\n"
    "return policy {\n"
    "  name = 'repair',\n"
    "  params = {limit = 10},\n"
    "  run = function(z, p)\n"
    "    local f = flag_nan_and_inf(z + torch.where(z:abs() > 1, math.huge, 0.0), 'logits')\n"
    "    return z, f\n"
    "  end,\n"
    "}\n";

std::string hash_of(const std::string& source) { return triage::files::checksum_text(triage::files::checksum(source)); }

std::string time_at(int minute, const std::string& second = "00.000000") {
  return "2026-05-04T03:" + std::string(minute < 10 ? "0" : "") + std::to_string(minute) + ":" + second + "Z";
}

std::string event_line(int minute, const std::string& kind, Json more) {
  more["time"] = time_at(minute);
  more["event"] = kind;
  if (!more.contains("policy") && !more.contains("bundle")) more["policy"] = "repair";
  if (!more.contains("path")) more["path"] = "policies/repair.lua";
  return more.dump() + "\n";
}

/// Of `batch` samples the first `flagged` have `code`; `totals`: samples and flagged ones of the version by then.
std::string call_line(int minute, int version, const std::string& source, int batch, int flagged,
                      const std::string& code, std::pair<int, int> totals) {
  Json line = {{"time", time_at(minute, "30.000000")},
               {"decision_id", "order-" + std::to_string(minute)},
               {"policy", "repair"},
               {"version", version},
               {"hash", hash_of(source)},
               {"answered", "live"},
               {"batch", batch},
               {"flagged", flagged},
               {"repaired", version == 1 ? flagged : 0},
               {"totals", {{"samples", totals.first}, {"flagged", totals.second}, {"repaired", 0}}}};
  for (int i = 0; i < flagged; ++i)
    line["samples"].push_back({{"sample", i},
                               {"sample_id", "user-" + std::to_string(i)},
                               {"errors", {{{"location", "logits"}, {"code", code}, {"severity", "CRITICAL"}}}},
                               {"done", version == 1 ? "repaired" : "kept"}});
  return line.dump() + "\n";
}

const std::string loaded_line =
    event_line(0, "live", {{"version", 1}, {"hash", hash_of(careful_source)}, {"by", "load"}});
const std::string first_calls =
    call_line(1, 1, careful_source, 8, 1, "NAN", {800, 1}) + call_line(4, 1, careful_source, 8, 1, "NAN", {3200, 2});
const std::string swapped_line =
    event_line(10, "live",
               {{"version", 2},
                {"hash", hash_of(strict_source)},
                {"by", "disk"},
                {"previous_version", 1},
                {"previous_hash", hash_of(careful_source)},
                {"previous_totals", {{"samples", 8000}, {"flagged", 2}, {"repaired", 2}}}});
const std::string bad_calls =
    call_line(11, 2, strict_source, 8, 6, "INF", {8, 6}) + call_line(14, 2, strict_source, 8, 5, "INF", {24, 11});
const std::string refused =
    event_line(15, "refused", {{"version", 2}, {"by", "disk"}, {"reason", "repair.lua:3: no such name"}});

/// A log with a bad version, and the cache that its Runtime kept.
struct IncidentScene {
  IncidentScene() {
    write_bytes(folder / "d.jsonl", loaded_line + first_calls + swapped_line + bad_calls + refused);
    std::filesystem::create_directories(folder / "cache/sources");
    for (const std::string& source : {careful_source, strict_source})
      write_bytes(folder / "cache/sources/repair-" + hash_of(source) + ".lua", source);
    std::filesystem::create_directories(folder / "policies");
    write_bytes(folder / "policies/repair.lua", strict_source);
  }
  /// As commands name it, which work in any folder.
  std::string absolute(const std::string& name) const { return std::filesystem::canonical(folder / name).string(); }
  /// The command that puts the careful source back.
  std::string restoring() const {
    return "cp " + absolute("cache/sources/repair-" + hash_of(careful_source) + ".lua") + " " +
           absolute("policies/repair.lua");
  }
  Ran operator()(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "incident");
    return triage_program(folder, arguments);
  }
  Json json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Ran ran = (*this)(arguments);
    CHECK_MESSAGE(ran.status == 0, ran.err);
    return ran.json();
  }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("incident tells what changed, who is affected and what to do") {
  const IncidentScene triage;
  const Ran ran = triage({"d.jsonl", "--cache", "cache"});
  CHECK(ran.status == 0);
  CHECK(ran.err.empty());
  CHECK(ran.out ==
        "4 decisions, 3 events, 2026-05-04T03:00:00.000000Z to 2026-05-04T03:15:00.000000Z\n"
        "\n"
        "policy repair, policies/repair.lua\n"
        "What changed\n"
        "  2026-05-04T03:00:00.000000Z  version 1 (be99a7f0) went live: it was loaded\n"
        "  2026-05-04T03:10:00.000000Z  version 2 (4d42ae31) went live: the file on the disk changed\n"
        "    --- repair.lua (version 1 (be99a7f0))\n"
        "    +++ repair.lua (version 2 (4d42ae31))\n"
        "    @@ -3,7 +3,7 @@\n"
        "       name = 'repair',\n"
        "       params = {limit = 10},\n"
        "       run = function(z, p)\n"
        "    -    local f = flag_nan(z, 'logits')\n"
        "    -    return fix(z, f, 'logits'), f\n"
        "    +    local f = flag_nan_and_inf(z + torch.where(z:abs() > 1, math.huge, 0.0), 'logits')\n"
        "    +    return z, f\n"
        "       end,\n"
        "     }\n"
        "  2026-05-04T03:15:00.000000Z  what is on the disk was refused, and version 2 stays live: repair.lua:3: "
        "no such name\n"
        "Who is affected\n"
        "  13 samples flagged in 4 calls, 2 of them repaired\n"
        "    version                     samples  flagged  repaired  failed        share  flagged over time\n"
        "    version 1 (be99a7f0)           8000        2         2       0  under 0.1 %  ▂...▂................\n"
        "    version 2 (4d42ae31), live       24       11         0       0         46 %  ...............▇....▆\n"
        "    location  samples  share  over time\n"
        "    logits         13  100 %  ▂...▂..........▇....▆\n"
        "    code  samples  share  over time\n"
        "    INF        11   85 %  ...............▇....▆\n"
        "    NAN         2   15 %  ▂...▂................\n"
        "What to do\n"
        "  version 2 (4d42ae31) flagged 46 % of its 24 samples, version 1 (be99a7f0) under 0.1 %; go back to version 1 "
        "(be99a7f0). The call acts at once, and holds until the file changes:\n"
        "    policy.rollback(1)\n"
        "    " +
            triage.restoring() + "\n");
}

TEST_CASE("incident --json has the same in one object") {
  const IncidentScene triage;
  const Json json = triage.json({"d.jsonl", "--cache", "cache"});
  CHECK(json["decisions"] == 4);
  CHECK(json["events"] == 3);
  REQUIRE(json["policies"].size() == 1);
  const Json& policy = json["policies"][0];
  CHECK(policy["policy"] == "repair");
  CHECK(policy["changes"].size() == 3);
  CHECK(policy["changes"][1]["diff"].size() == 12);
  CHECK(policy["affected"] ==
        Json({{"calls", 4}, {"flagged_calls", 4}, {"samples", 13}, {"repaired", 2}, {"failed_calls", 0}}));
  REQUIRE(policy["versions"].size() == 2);
  CHECK(policy["versions"][0]["samples"] == 8000);  // also those of calls without a line
  CHECK(policy["versions"][0]["of"] == "all calls");
  CHECK(policy["versions"][1]["live"] == true);
  CHECK(policy["versions"][1]["share"].get<double>() == doctest::Approx(11.0 / 24));
  CHECK(policy["codes"][0] == Json({{"code", "INF"}, {"samples", 11}}));
  CHECK(policy["advice"]["do"] == "rollback");
  CHECK(policy["advice"]["commands"] == Json({"policy.rollback(1)", triage.restoring()}));
  CHECK_FALSE(policy.contains("samples"));
  const Json ids = triage.json({"d.jsonl", "--ids"})["policies"][0]["samples"];
  REQUIRE(ids.size() == 13);
  CHECK(ids[12]["sample_id"] == "user-4");
  CHECK(ids[12]["version"] == 2);
  CHECK(ids[12]["title"] == "version 2 (" + hash_of(strict_source).substr(0, 8) + ")");
  CHECK(std::regex_search(triage({"d.jsonl", "--ids"}).out,
                          std::regex("\n    user-4 +version 2 \\(4d42ae31\\) +kept  INF @ logits\n")));
}

TEST_CASE("a time leaves out what was before, but not which version was live") {
  const IncidentScene triage;
  const Json json = triage.json({"d.jsonl", "--since", "2026-05-04T03:12"});
  const Json& policy = json["policies"][0];
  CHECK(json["first"] == time_at(14, "30.000000"));
  CHECK(policy["changes"].size() == 1);
  CHECK(policy["live"] == "version 2 (" + hash_of(strict_source).substr(0, 8) + ")");
  CHECK(policy["affected"]["samples"] == 5);
  CHECK(policy["versions"][1]["samples"] == 16);  // since the line before
  CHECK(triage.json({"d.jsonl", "--until", "2026-05-04T03:05"})["policies"][0]["live"] ==
        "version 1 (" + hash_of(careful_source).substr(0, 8) + ")");
  const Ran none = triage({"d.jsonl", "--since", "10m"});
  CHECK(none.status == 0);
  CHECK(none.out == "0 decisions, 0 events\n  the log has no line of this time\n");
}

TEST_CASE("where a source is not kept, the reason is told") {
  const IncidentScene triage;
  const auto told = [&](const std::vector<std::string>& arguments) {
    return triage.json(arguments)["policies"][0]["changes"][1].value("no_diff", "");
  };
  CHECK(has(told({"d.jsonl"}), "is not kept: the Runtime that wrote the log had no cache_dir"));
  CHECK(has(told({"d.jsonl", "--cache", "none"}), "\"none\" does not have it"));
  CHECK(has(triage({"d.jsonl", "--cache", "none"}).out,
            "\"none\" has no kept sources: No such file or directory; "
            "expected the folder that RuntimeOptions::cache_dir names\n"));
  write_bytes(triage.folder / ("cache/sources/repair-" + hash_of(strict_source) + ".lua"), "other");
  CHECK(has(told({"d.jsonl", "--cache", "cache"}), "is damaged: its content has another hash"));
  // What a log names is not opened, unless its name is that of a kept source.
  std::string named = swapped_line;
  named.insert(1, R"("kept":"/etc/passwd",)");
  write_bytes(
      triage.folder / "named.jsonl",
      event_line(0, "live",
                 {{"version", 1}, {"hash", hash_of(careful_source)}, {"by", "load"}, {"kept", "/etc/hostname"}}) +
          named);
  CHECK(has(told({"named.jsonl"}), "\"/etc/hostname\", which is no name of a kept source"));
}

TEST_CASE("the kept files that a log names are found without --cache") {
  const IncidentScene triage;
  const auto kept = [&](const std::string& source) {
    return triage.folder / ("cache/sources/repair-" + hash_of(source) + ".lua");
  };
  Json load = Json::parse(loaded_line), swap = Json::parse(swapped_line);
  load["kept"] = kept(careful_source);
  swap["kept"] = kept(strict_source);
  write_bytes(triage.folder / "k.jsonl", load.dump() + "\n" + swap.dump() + "\n" + bad_calls);
  const Json policy = triage.json({"k.jsonl"})["policies"][0];
  CHECK(policy["changes"][1]["diff"].size() == 12);
  CHECK(policy["versions"][0]["flagged"] == 2);  // no call of version 1 is in the log, but its totals are
  CHECK(policy["advice"]["do"] == "rollback");
}

TEST_CASE("logs that say little are read for what they say") {
  const IncidentScene triage;
  const auto out = [&](const std::string& log) {
    write_bytes(triage.folder / "x.jsonl", log);
    const Ran ran = triage({"x.jsonl"});
    CHECK(ran.status == 0);
    return ran.out;
  };
  CHECK(out("") == "0 decisions, 0 events\n  the log is empty\n");
  const std::string only_events = out(loaded_line + swapped_line);
  CHECK(has(only_events, "0 samples flagged in 0 calls"));
  CHECK(has(only_events, "  no call in the log flagged a sample or failed\n"));
  // Written before there were events: which version is live is what calls say, and samples are those of their lines.
  std::string old = first_calls + bad_calls;
  old = std::regex_replace(old, std::regex(R"("totals":\{[^}]*\})"), R"("form":"graph")");
  const std::string without = out(old);
  CHECK(has(without,
            "What changed\n  2026-05-04T03:11:30.000000Z  version 2 (4d42ae31) has the calls from here on; the log "
            "does not say how it went live\n"));
  CHECK(has(without, "* only of the calls in the log"));
  CHECK(has(without, "    policy.rollback(1)\n"));
  const std::string damaged = out("{\n" + loaded_line + first_calls + "nonsense\n");
  CHECK(has(damaged, "  x.jsonl: 2 lines that could not be read\n"));
  CHECK(has(out(loaded_line + first_calls),
            "and no other version in the log did better: look at what the policy gets\n"));
}

TEST_CASE("rotated files are read in the order of time, and each policy has a report") {
  const IncidentScene triage;
  write_bytes(triage.folder / "d.1.jsonl", loaded_line + first_calls);
  write_bytes(triage.folder / "d.jsonl",
              swapped_line + bad_calls + event_line(16, "live", {{"policy", "other"}, {"version", 1}}));
  const Json json = triage.json({"d.jsonl", "d.1.jsonl"});
  REQUIRE(json["policies"].size() == 2);
  CHECK(json["policies"][1]["advice"]["do"] == "rollback");
  CHECK(triage.json({"d.jsonl", "d.1.jsonl", "--policy", "other"})["policies"].size() == 1);
  const Ran wrong = triage({"d.jsonl", "d.1.jsonl", "--policy", "repiar"});
  CHECK(wrong.status == 0);
  CHECK(has(wrong.out, "the log has no policy \"repiar\"; it has other, repair\n"));
  CHECK(triage({"none.jsonl"}).status == 2);
  CHECK(has(triage({"d.jsonl", "--since", "soon"}).err, "or how long ago: 90s, 10m, 2h, 3d"));
}

TEST_CASE("the way back is what the log says") {
  const IncidentScene triage;
  const auto advice = [&](const std::string& log) {
    write_bytes(triage.folder / "x.jsonl", log);
    return triage.json({"x.jsonl", "--cache", "cache"})["policies"][0]["advice"];
  };
  const std::string all = loaded_line + first_calls + swapped_line + bad_calls;
  // It has been gone back already.
  const Json gone = advice(all + event_line(20, "live",
                                            {{"version", 1},
                                             {"hash", hash_of(careful_source)},
                                             {"by", "failures"},
                                             {"previous_version", 2},
                                             {"previous_hash", hash_of(strict_source)}}));
  CHECK(gone["do"] == "nothing");
  CHECK(has(gone["text"],
            "version 2 (" + hash_of(strict_source).substr(0, 8) + ") flagged 46 % of its 24 samples; version 1 ("));
  // The bad source came with a start: its number is 1, too, and no version is there to roll back to.
  const std::string restarted =
      event_line(10, "live", {{"version", 1}, {"hash", hash_of(strict_source)}, {"by", "load"}}) +
      call_line(11, 1, strict_source, 8, 6, "INF", {8, 6});
  const Json file = advice(loaded_line + first_calls + restarted);
  CHECK(file["do"] == "restore");
  CHECK(file["commands"] == Json({triage.restoring()}));
  // A param was set, and the version is the same.
  const Json param = advice(loaded_line + first_calls +
                            event_line(9, "param", {{"param", "limit"}, {"value", "1"}, {"previous_value", "10"}}));
  CHECK(param["commands"] == Json({"policy.set_param(\"limit\", 10)"}));
  // A version that fails its calls flags nothing.
  Json failing = Json::parse(call_line(11, 2, strict_source, 8, 0, "INF", {8, 0}));
  failing.erase("totals");
  failing["answered"] = "failed";
  failing["failure"] = "repair.lua:5: no";
  CHECK(has(advice(loaded_line + first_calls + swapped_line + failing.dump() + "\n")["text"],
            "flagged or failed 100 % of its 8 samples"));
  // The version before answered in its place, and the line of that comes behind the event.
  Json answered = Json::parse(call_line(11, 1, careful_source, 8, 0, "INF", {8, 0}));
  answered["answered"] = "previous";
  answered["live_version"] = 2;
  answered["failure"] = "repair.lua:5: no";
  const std::string back = event_line(
      11, "live",
      {{"version", 1}, {"hash", hash_of(careful_source)}, {"by", "failures"}, {"reason", "repair.lua:5: no"}});
  CHECK(has(
      advice(loaded_line + first_calls + swapped_line + back + answered.dump() + "\n")["text"],
      "version 2 (" + hash_of(strict_source).substr(0, 8) + ") flagged or failed 100 % of its 8 samples; version 1"));
  // What another version takes is no mistake of the host, but one of this version.
  answered["failure_kind"] = "input";
  CHECK(advice(loaded_line + first_calls + swapped_line + answered.dump() + "\n")["do"] == "rollback");
  failing["failure_kind"] = "input";
  CHECK(has(advice(loaded_line + first_calls + swapped_line + failing.dump() + "\n")["text"], "with 0 %"));
  // Of a bundle, all policies go back.
  std::string bundle =
      std::regex_replace(all, std::regex(R"("event":"live")"), R"("event":"live","bundle":"pair","bundle_version":4)");
  CHECK(advice(bundle)["commands"] == Json({"bundle.rollback(4)"}));
}

namespace {

/// Of a call that version 2 failed, and version 1 answered; one sample of it is flagged.
std::string stand_in_line(int minute, int batch, std::pair<int, int> totals) {
  Json line = Json::parse(call_line(minute, 1, careful_source, batch, 1, "NAN", totals));
  line["answered"] = "last_good";
  line["live_version"] = 2;
  line["failure"] = "repair.lua:5: too large";
  line["failure_kind"] = "policy";
  return line.dump() + "\n";
}

}  // namespace

TEST_CASE("a call that another version answered is a failure of the one that should have, whatever its samples are") {
  const IncidentScene triage;
  const std::string log = loaded_line + call_line(1, 1, careful_source, 8, 1, "NAN", {8, 1}) + swapped_line +
                          call_line(11, 2, strict_source, 8, 1, "NAN", {8, 1}) + stand_in_line(12, 8, {16, 2}) +
                          stand_in_line(13, 8, {24, 3});
  write_bytes(triage.folder / "s.jsonl", std::regex_replace(log, std::regex("8000"), "8"));
  const Json policy = triage.json({"s.jsonl", "--cache", "cache"})["policies"][0];
  const Json &first = policy["versions"][0], &second = policy["versions"][1];
  CHECK(first["samples"] == 24);  // 16 of them for version 2
  CHECK(first["flagged"] == 3);
  CHECK(first["failed_samples"] == 0);
  CHECK(second["samples"] == 24);
  CHECK(second["flagged"] == 1);
  CHECK(second["failed_calls"] == 2);
  CHECK(second["failed_samples"] == 16);
  CHECK(second["share"].get<double>() == doctest::Approx(17.0 / 24));
  CHECK(policy["advice"]["commands"] == Json({"policy.rollback(1)", triage.restoring()}));
  // After a rollback to the version that failed, nothing leads away from the one that did less harm.
  write_bytes(triage.folder / "s.jsonl",
              log + event_line(14, "live", {{"version", 1}, {"hash", hash_of(careful_source)}, {"by", "rollback"}}));
  CHECK(triage.json({"s.jsonl"})["policies"][0]["advice"]["do"] == "nothing");
}

TEST_CASE("where lines are missing from the log, totals say how many samples were flagged") {
  const TemporaryFolder folder;
  // 1,000 samples of version 2, 375 flagged; of its calls the log has the first and the last.
  write_bytes(folder / "d.jsonl", loaded_line + first_calls + swapped_line +
                                      call_line(11, 2, strict_source, 8, 1, "INF", {8, 1}) +
                                      call_line(20, 2, strict_source, 8, 2, "INF", {1000, 375}));
  const Json policy = triage_program(folder, {"incident", "d.jsonl", "--json"}).json()["policies"][0];
  const auto version = std::find_if(policy["versions"].begin(), policy["versions"].end(),
                                    [](const Json& one) { return one["version"] == 2; });
  REQUIRE(version != policy["versions"].end());
  CHECK((*version)["samples"] == 1000);
  CHECK((*version)["flagged"] == 375);
  CHECK(has(triage_program(folder, {"incident", "d.jsonl"}).out, "flagged 38 % of its 1000 samples"));
}

TEST_CASE("a canary that fails leaves the shares of the live version below all of its samples") {
  const IncidentScene triage;
  std::string log = loaded_line + call_line(1, 1, careful_source, 8, 1, "NAN", {8, 1}) +
                    event_line(2, "candidate_started", {{"version", 2}, {"hash", hash_of(strict_source)}});
  for (int call = 1; call <= 5; call++) log += stand_in_line(2 + call, 8, {8 * call, call});
  write_bytes(triage.folder / "c.jsonl", log);
  const Json versions = triage.json({"c.jsonl"})["policies"][0]["versions"];
  CHECK(versions[0]["samples"] == 48);
  CHECK(versions[0]["share"] == 0.125);
  CHECK(versions[1]["hash"] == hash_of(strict_source));
  CHECK(versions[1]["failed_samples"] == 40);
  CHECK(versions[1]["share"] == 1.0);
}

TEST_CASE("runs of several processes, each with a version 1, are told by their hashes") {
  const IncidentScene triage;
  Json failed = Json::parse(call_line(3, 1, strict_source, 8, 0, "NAN", {0, 0}));
  failed.erase("totals");
  failed["answered"] = "failed";
  failed["failure"] = "repair.lua:5: no";
  write_bytes(triage.folder / "r.jsonl", call_line(1, 1, careful_source, 8, 1, "NAN", {8, 1}) + failed.dump() + "\n");
  const Json policy = triage.json({"r.jsonl", "--cache", "cache"})["policies"][0];
  CHECK(policy["live"] == "version 1 (" + hash_of(strict_source).substr(0, 8) + ")");
  REQUIRE(policy["changes"].size() == 1);
  CHECK(policy["changes"][0]["event"] == "answers");
  CHECK(policy["changes"][0]["previous_hash"] == hash_of(careful_source));
  CHECK(policy["advice"]["do"] == "restore");  // no rollback leads to another process
}

TEST_CASE("where the folder of the service is not known, the command makes no new file in another one") {
  const IncidentScene triage;
  std::filesystem::remove(triage.folder / "policies/repair.lua");
  const Json advice = triage.json({"d.jsonl", "--cache", "cache"})["policies"][0]["advice"];
  const std::string kept = triage.absolute("cache/sources/repair-" + hash_of(careful_source) + ".lua");
  CHECK(advice["commands"][1] == "test -f policies/repair.lua && cp " + kept + " policies/repair.lua");
  CHECK(has(advice["text"], "does not say in which folder \"policies/repair.lua\" begins"));
  // A log names it from where it lies.
  std::filesystem::create_directories(triage.folder / "service/policies");
  write_bytes(triage.folder / "service/policies/repair.lua", strict_source);
  std::filesystem::copy(triage.folder / "d.jsonl", triage.folder / "service/d.jsonl");
  const Json found = triage.json({"service/d.jsonl", "--cache", "cache"})["policies"][0]["advice"];
  CHECK(found["commands"][1] == "cp " + kept + " " + triage.absolute("service/policies/repair.lua"));
}

TEST_CASE("text in a log does nothing to a terminal or a page, and every line of events is read or counted") {
  const IncidentScene triage;
  const std::string hostile = "</script><script>document.title='owned'</script>\\u001b[2J\\n2026 all is well";
  write_bytes(triage.folder / "x.jsonl",
              loaded_line + R"({"time":")" + time_at(3) + R"(","event":"refused","policy":"repair","reason":")" +
                  hostile + "\"}\n" + R"({"time":")" + time_at(4) + R"(","event":")" + hostile +
                  R"(","policy":"repair"})" + "\n" + R"({"time":")" + time_at(4) + R"(","event":3,"policy":"repair"})" +
                  "\n" + R"({"time":")" + time_at(4) + R"(","event":"live","policy":"repair","version":-1})" + "\n" +
                  R"({"time":")" + time_at(4) + R"(","event":"live","policy":"repair","previous_totals":[1]})" + "\n" +
                  R"({"time":"2026-99-99T99:99:99.000000Z","policy":"repair","answered":"live","batch":1})" + "\n");
  const Ran ran = triage({"x.jsonl", "--html", "page.html"});
  CHECK(ran.status == 0);
  CHECK_FALSE(has(ran.out, "\x1b"));
  CHECK_FALSE(has(ran.out, "\n2026 all"));
  CHECK(has(ran.out, "x.jsonl: 3 lines that could not be read\n"));
  CHECK_FALSE(has(read_bytes(triage.folder / "page.html"), "</script><script>document"));
}

TEST_CASE("incident --html writes a page with a chart, marks, the diff and the way back") {
  const IncidentScene triage;
  const Ran ran = triage({"d.jsonl", "--cache", "cache", "--ids", "--html", "page.html"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.out, "\npage written to page.html\n"));
  const std::string page = read_bytes(triage.folder / "page.html");
  CHECK(has(page, "<title>triage incident</title>"));
  CHECK(has(page, "prefers-color-scheme: dark"));
  if (!has_browser()) return;
  const Shown shown = show_with(triage.folder, page, "",
                                "setTimeout(() => { document.title = ['rect', 'line.mark', '.diff .added', '.diff "
                                ".removed', 'table'].map(what => "
                                "document.querySelectorAll('#policy-1 ' + what).length).join(' '); }, 500)");
  CHECK(shown.complaints.empty());
  CHECK(has(shown.document, "policy.rollback(1)"));
  CHECK(has(shown.document, "user-4"));
  std::smatch counts;
  REQUIRE(std::regex_search(shown.document, counts, std::regex("<title>(\\d+) (\\d+) (\\d+) (\\d+) (\\d+)</title>")));
  CHECK(std::stoi(counts[1]) >= 4);  // bars
  CHECK(counts[2] == "3");
  CHECK(counts[3] == "2");
  CHECK(counts[4] == "2");
  CHECK(counts[5] == "4");
}

TEST_CASE("incident reads the log that watch --canary wrote") {
  const IncidentScene triage;
  write_bytes(triage.folder / "repair.lua", careful_source);
  write_bytes(triage.folder / "strict.lua", strict_source);
  const Ran watched = triage_program(
      triage.folder, {"watch", "repair.lua", "--canary", "strict.lua", "--input", "z=randn:8x4,seed=1,nan=1", "--share",
                      "0.5", "--promote-after", "20", "--flagged-ratio", "0", "--p99-ratio", "0", "--decisions",
                      "w.jsonl", "--cache", "kept", "--json"});
  REQUIRE_MESSAGE(watched.status == 0, watched.err);
  const Json policy = triage.json({"w.jsonl"})["policies"][0];
  std::vector<std::string> events;
  for (const Json& change : policy["changes"]) events.push_back(change["event"]);
  CHECK(events == std::vector<std::string>{"live", "candidate_started", "live", "candidate_promoted"});
  CHECK(policy["changes"][2]["diff"].size() == 12);
  CHECK(policy["advice"]["do"] == "rollback");
  CHECK(policy["advice"]["commands"][0] == "policy.rollback(1)");
  CHECK(policy["versions"][0]["share"] == 0.125);
  const Ran refused = triage_program(triage.folder, {"watch", ".", "--decisions", "w.jsonl"});
  CHECK(refused.status == 2);
  CHECK(has(refused.err, "--decisions and --cache are for a candidate"));
}
