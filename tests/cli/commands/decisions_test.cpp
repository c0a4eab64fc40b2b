// `triage decisions`, and `triage run --decisions`.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program.h"

namespace {

using Json = nlohmann::json;

/// A line as DecisionLog writes it.
std::string line(const std::string& time, const std::string& decision, const std::string& policy,
                 const std::string& code, const std::string& more = "") {
  return R"({"time":")" + time + R"(","decision_id":")" + decision + R"(","policy":")" + policy +
         R"(","version":1,"answered":"live","batch":4,"flagged":1,"repaired":1,"samples":[{"sample":2,"sample_id":"user-)" +
         decision + R"(","errors":[{"location":"encoder.)" + policy + R"(","code":")" + code +
         R"(","severity":"CRITICAL"}],"done":"repaired"}])" + more + "}\n";
}

const std::string first = line("2026-05-04T03:02:01.000001Z", "1", "a", "NAN");
const std::string second = line("2026-05-04T03:02:02.000000Z", "2", "a", "INF");
const std::string third = line("2026-05-05T00:00:00.000000Z", "3", "b", "NAN", R"(,"capsule":"c/3.pt")");
const std::string failure =
    R"({"time":"2026-05-05T00:00:01.000000Z","policy":"b","version":2,"answered":"failed","batch":4,"flagged":0,"repaired":0,"failure":"b.lua:3: no","failure_kind":"policy"})"
    "\n";
const std::string dropped =
    R"({"time":"2026-05-05T00:00:02.000000Z","dropped":7,"since":"2026-05-05T00:00:01.000000Z"})"
    "\n";

Json summary(const TemporaryFolder& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "decisions");
  arguments.emplace_back("--json");
  const Ran ran = triage_program(folder, arguments);
  CHECK_MESSAGE(ran.status == 0, ran.err);
  return ran.json();
}

}  // namespace

TEST_CASE("decisions are asked for by a policy's own name of a code, which the log has") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl", first + line("2026-05-06T00:00:00.000000Z", "4", "a", "MISSING"));
  for (const char* code : {"MISSING", "missing"})
    CHECK(summary(folder, {"d.jsonl", "--code", code})["flagged"]["samples"] == 1);
  const Ran misspelt = triage_program(folder, {"decisions", "d.jsonl", "--code", "MISING"});
  CHECK(misspelt.status == 2);
  CHECK(misspelt.out.empty());
  CHECK(has(misspelt.err, "UNKNOWN, MISSING; did you mean \"MISSING\"?"));
}

TEST_CASE("decisions are summarised over rotated files, in whatever order they are given") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl", third + failure + dropped);
  write_bytes(folder / "d.1.jsonl", first + second);
  const Ran ran = triage_program(folder, {"decisions", "d.jsonl", "d.1.jsonl"});
  CHECK(ran.status == 0);
  CHECK(ran.out ==
        "4 decisions\n"
        "  time     2026-05-04T03:02:01.000001Z to 2026-05-05T00:00:01.000000Z\n"
        "  answered 3 live, 1 failed\n"
        "  flagged  3 samples in 3 calls: 3 repaired\n"
        "           policy  location   code  samples\n"
        "           a       encoder.a  INF         1\n"
        "           a       encoder.a  NAN         1\n"
        "           b       encoder.b  NAN         1\n"
        "  failures 1  b: b.lua:3: no\n"
        "  dropped  7 decisions not in the log: too many waited\n");
  const Ran list = triage_program(folder, {"decisions", "d.jsonl", "d.1.jsonl", "--list"});
  CHECK(list.out ==
        "2026-05-04T03:02:01.000001Z  a v1  live  decision 1  1 of 4 flagged: 2 (user-1) NAN @ encoder.a repaired\n"
        "2026-05-04T03:02:02.000000Z  a v1  live  decision 2  1 of 4 flagged: 2 (user-2) INF @ encoder.a repaired\n"
        "2026-05-05T00:00:00.000000Z  b v1  live  decision 3  1 of 4 flagged: 2 (user-3) NAN @ encoder.b repaired"
        "  capsule c/3.pt\n"
        "2026-05-05T00:00:01.000000Z  b v2  failed  0 of 4 flagged  failure: b.lua:3: no\n");
  const Json json = summary(folder, {"d.1.jsonl", "d.jsonl"});
  CHECK(json["decisions"] == 4);
  CHECK(json["answered"] == Json({{"live", 3}, {"failed", 1}}));
  CHECK(json["errors"].size() == 3);
  CHECK(json["dropped"] == 7);
  CHECK(json["damaged"].empty());
  CHECK(json["failures"][0] == Json({{"policy", "b"}, {"failure", "b.lua:3: no"}, {"calls", 1}}));
  CHECK(triage_program(folder, {"decisions", "d.1.jsonl", "--list", "--json"}).out == first + second);
}

TEST_CASE("decisions are chosen by policy, code, location, names, time, and how they were answered") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl", first + second + third + failure + dropped);
  const auto count = [&](const std::string& option, const std::string& value) {
    return summary(folder, {"d.jsonl", option, value})["decisions"].get<int>();
  };
  CHECK(count("--policy", "b") == 2);
  CHECK(count("--code", "NAN") == 2);
  CHECK(count("--code", "nan") == 2);
  CHECK(count("--location", "encoder.a") == 2);
  CHECK(count("--location", "enc*") == 3);
  CHECK(count("--sample", "user-2") == 1);
  CHECK(count("--decision", "3") == 1);
  CHECK(count("--decision", "4") == 0);
  CHECK(count("--since", "2026-05-05") == 2);
  CHECK(count("--since", "2026-05-04T03:02:02Z") == 3);
  CHECK(count("--until", "2026-05-04") == 2);
  CHECK(count("--until", "2026-05-04T03:02:01") == 1);
  CHECK(count("--answered", "failed") == 1);
  CHECK(count("--version", "1") == 3);
  CHECK(count("--version", "2") == 1);
  CHECK(count("--version", "05ad") == 0);
  CHECK(count("--since", "10m") == 0);
  CHECK(count("--until", "10m") == 4);
  CHECK(summary(folder, {"d.jsonl", "--policy", "a", "--code", "NAN"})["flagged"]["samples"] == 1);
  CHECK(summary(folder, {"d.jsonl", "--until", "2026-05-04"})["dropped"] == 0);
}

TEST_CASE("a name that the log has only as a hash is found by the name") {
  const TemporaryFolder folder;
  std::string masked = first;
  masked.replace(masked.find("user-1"), 6, "masked:1b86a9d5b5a4a4c1a1d6a4a3a0f4e2b1");
  // sha256("abc")
  std::string known = second;
  known.replace(known.find("user-2"), 6, "masked:ba7816bf8f01cfea414140de5dae2223");
  write_bytes(folder / "d.jsonl", masked + known);
  CHECK(summary(folder, {"d.jsonl", "--sample", "abc"})["decisions"] == 1);
  CHECK(summary(folder, {"d.jsonl", "--sample", "user-1"})["decisions"] == 0);
}

TEST_CASE("damaged lines are counted and named, and the rest is used") {
  const TemporaryFolder folder;
  std::string deep(100'000, '[');
  const std::string hostile[] = {"nonsense\n",
                                 "{\"time\":\"yesterday\",\"policy\":\"a\"}\n",
                                 "[]\n",
                                 "null\n",
                                 deep + "\n",
                                 R"({"time":"2026-05-04T03:02:01.000001Z"})"
                                 "\n",
                                 R"({"time":"2026-05-04T03:02:01.000001Z","policy":1})"
                                 "\n",
                                 R"({"time":"2026-05-04T03:02:01.000001Z","policy":"a","samples":[3]})"
                                 "\n",
                                 R"({"time":"2026-05-04T03:02:01.000001Z","policy":"a","flagged":-3})"
                                 "\n",
                                 R"({"time":"2026-05-04T03:02:01.000001Z","dropped":"x"})"
                                 "\n",
                                 std::string("\0\xff\xfe\n", 4),
                                 std::string(65 << 20, 'x') + "\n"};
  std::string text = first + "\n";  // an empty line is none
  for (const std::string& bad : hostile) text += bad;
  text += second + third.substr(0, 40);  // killed amid a line
  write_bytes(folder / "d.jsonl", text);
  const Json json = summary(folder, {"d.jsonl"});
  CHECK(json["decisions"] == 2);
  REQUIRE(json["damaged"].size() == 1);
  CHECK(json["damaged"][0]["lines"] == std::size(hostile) + 1);
  CHECK(json["damaged"][0]["first"] == Json({3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  const Ran ran = triage_program(folder, {"decisions", "d.jsonl"});
  CHECK(has(ran.out, "  damaged  d.jsonl: 13 lines that could not be read: 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ...\n"));
  const Ran list = triage_program(folder, {"decisions", "d.jsonl", "--list"});
  CHECK_FALSE(has(list.out, "damaged"));
  CHECK(has(list.err, "13 lines that could not be read"));
}

TEST_CASE("text in a log does nothing to a terminal") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl",
              line("2026-05-04T03:02:01.000001Z", "\\u001b[2J\\u202e\\n", "p\\u001b]0;x\\u0007", "NAN"));
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"decisions", "d.jsonl"},
                                                    {"decisions", "d.jsonl", "--list"},
                                                    {"decisions", "d.jsonl", "--json"}}) {
    const Ran ran = triage_program(folder, arguments);
    CHECK(ran.status == 0);
    CHECK_FALSE(has(ran.out, "\x1b"));
    CHECK_FALSE(has(ran.out, "\xe2\x80\xae"));
  }
}

TEST_CASE("wrong use of decisions is told with what would be right") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl", first);
  const auto complaint = [&](const std::vector<std::string>& arguments) {
    const Ran ran = triage_program(folder, arguments);
    CHECK(ran.status == 2);
    return ran.err;
  };
  CHECK(has(complaint({"decisions"}), "FILES"));
  CHECK(has(complaint({"decisions", "none.jsonl"}), "cannot read \"none.jsonl\": No such file"));
  CHECK(has(complaint({"decisions", "."}), "this is a folder"));
  CHECK(has(complaint({"decisions", "-", "-"}), "- is given twice"));
  CHECK(has(complaint({"decisions", "d.jsonl", "--answered", "lively"}), "did you mean \"live\"?"));
  for (const char* time : {"yesterday", "2026-5-4", "2026-05-0", "2026-05-04 03:02", "2026-05-04T03:02:01.0000001Z"})
    CHECK(has(complaint({"decisions", "d.jsonl", "--since", time}), "expected a time in UTC"));
  for (const char* time : {"2026-13", "2026-00", "2026-02-29", "2026-04-31", "2026-05-04T24", "2026-05-04T03:60"})
    CHECK(has(complaint({"decisions", "d.jsonl", "--until", time}), "there is no such time"));
  CHECK(triage_program(folder, {"decisions", "d.jsonl", "--since", "2024-02-29"}).status == 0);
  for (const char* version : {"v2", "05ad!", "abc", "12345678901234567"})
    CHECK(has(complaint({"decisions", "d.jsonl", "--version", version}),
              "expected the number of a version, such as 3, or"));
  CHECK(has(complaint({"decisions", "d.jsonl", "--code", "NOPE"}), "expected one of NAN, INF, OVERFLOW, CODE_4, "));
  CHECK(has(complaint({"decisions", "d.jsonl", "--code", "nann"}), "did you mean \"NAN\"?"));
  CHECK(has(complaint({"decisions", "d.jsonl", "--list", "--code", "nann"}), "did you mean \"NAN\"?"));
  for (const char* option :
       {"--policy", "--code", "--location", "--sample", "--decision", "--since", "--until", "--answered"})
    CHECK(has(complaint({"decisions", "d.jsonl", option, ""}), std::string(option) + ": its value is empty"));
}

TEST_CASE("a file that is no decision log is told, and is an error where there is no other") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl", first);
  write_bytes(folder / "d.jsonl.gz", std::string("\x1f\x8b\x08\x00\n\xff\xfe", 7));
  const Ran refused = triage_program(folder, {"decisions", "d.jsonl.gz"});
  CHECK(refused.status == 2);
  CHECK(refused.out.empty());
  CHECK(has(refused.err, "triage decisions: \"d.jsonl.gz\" is no decision log: none of its lines (2) is a decision"));
  const Ran beside = triage_program(folder, {"decisions", "d.jsonl.gz", "d.jsonl"});
  CHECK(beside.status == 0);
  CHECK(has(beside.out, "1 decision\n"));
  CHECK(has(beside.err, "\"d.jsonl.gz\" is no decision log"));
  CHECK(triage_program(folder, {"decisions", "/dev/null"}).status == 0);  // a log in which nothing has happened yet
}

TEST_CASE("lines of what happens to policies are no decisions") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl",
              R"({"time":"2026-05-04T03:02:00.000000Z","event":"live","policy":"a","version":1,"by":"load"})"
              "\n" +
                  first);
  CHECK(summary(folder, {"d.jsonl"})["decisions"] == 1);
  CHECK(summary(folder, {"d.jsonl"})["damaged"].empty());
  CHECK(triage_program(folder, {"decisions", "d.jsonl", "--list", "--json"}).out == first);
}

TEST_CASE("a file that is named twice counts once") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl", first + second);
  std::filesystem::create_symlink("d.jsonl", folder / "link.jsonl");
  CHECK(summary(folder, {"d.jsonl", "./d.jsonl", "link.jsonl", folder / "d.jsonl"})["decisions"] == 2);
}

TEST_CASE("where no decision matches, standard error has what the log is about") {
  const TemporaryFolder folder;
  write_bytes(folder / "d.jsonl", first + second + third);
  const Ran none = triage_program(folder, {"decisions", "d.jsonl", "--policy", "c"});
  CHECK(none.status == 0);
  CHECK(none.out == "0 decisions\n");
  CHECK(none.err ==
        "triage decisions: no decision matches; the log has 3, from 2026-05-04T03:02:01.000001Z to "
        "2026-05-05T00:00:00.000000Z; by policy: 2 a, 1 b\n");
  CHECK(triage_program(folder, {"decisions", "d.jsonl", "--policy", "a"}).err.empty());
}

TEST_CASE("a list has the beginning of the version's hash where the log has it") {
  const TemporaryFolder folder;
  std::string masked = second;
  write_bytes(folder / "d.jsonl",
              line("2026-05-04T03:02:01.000001Z", "1", "a", "NAN").insert(1, R"("hash":"05adcc29d2b3c284",)") +
                  masked.insert(1, R"("hash":"masked:ba7816bf8f01cfea414140de5dae2223",)") + third);
  const Ran list = triage_program(folder, {"decisions", "d.jsonl", "--list"});
  CHECK(has(list.out, "  a v1 05adcc29  live  "));
  CHECK(has(list.out, "  a v1 masked:ba7816bf  live  "));
  CHECK(has(list.out, "  b v1  live  "));
}

TEST_CASE("run --decisions writes the line of its call, which decisions reads and replay repeats") {
  const TemporaryFolder folder;
  write_bytes(folder / "windows.lua",
              "return function(z)\n  local f = flag_nan(z, 'windows')\n  return fix(z, f, 'windows'), f\nend\n");
  const Ran ran = triage_program(folder, {"run", "windows.lua", "--input", "z=randn:6x4,seed=1,nan=2", "--decisions",
                                          "d.jsonl", "--capsule", "call.pt"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.out, "  decision written to d.jsonl\n"));
  const Json line = Json::parse(read_bytes(folder / "d.jsonl"));
  CHECK(line["policy"] == "windows");
  CHECK(line["batch"] == 6);
  CHECK(line["flagged"] == 2);
  CHECK(line["samples"].size() == 2);
  CHECK(line["samples"][0]["done"] == "repaired");
  REQUIRE(line["capsule"] == "call.pt");
  CHECK(has(triage_program(folder, {"replay", "call.pt"}).out, "replayed  the same"));

  const Ran clean =
      triage_program(folder, {"run", "windows.lua", "--input", "z=ones:2x4", "--decisions", "d.jsonl", "--json"});
  REQUIRE_MESSAGE(clean.status == 0, clean.err);
  CHECK(clean.json()["decision"].is_null());
  const Ran failed =
      triage_program(folder, {"run", "windows.lua", "--input", "z=zeros:2x4,dtype=int64", "--decisions", "d.jsonl"});
  const Json all = summary(folder, {"d.jsonl"});
  CHECK(all["decisions"] == (failed.status == 0 ? 1 : 2));
  CHECK(triage_program(folder, {"run", "windows.lua", "--input", "z=ones:2x4", "--decisions", "."}).status == 2);
  CHECK(triage_program(folder, {"run", "windows.lua", "--input", "z=ones:2x4", "--decisions", "windows.lua"}).status ==
        2);
}
