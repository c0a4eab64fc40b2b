// `triage doctor` on this machine, and on worse ones.
#include "tests/cli/policy_folder.h"
#include "tests/cli/variable.h"

#include <triage/version.h>

#include <doctest/doctest.h>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

namespace {

namespace fs = std::filesystem;

struct DoctorScene {
  TemporaryFolder folder;
  Variable threads{"OMP_NUM_THREADS", "1"};
};

struct Report {
  int status = 0;
  std::string worst;
  std::map<std::string, nlohmann::json> findings;
  const nlohmann::json& operator[](const std::string& name) const {
    INFO("the finding ", name);
    REQUIRE(findings.count(name) == 1);
    return findings.at(name);
  }
  std::string severity(const std::string& name) const { return (*this)[name]["severity"]; }
  /// Names of what is not fine. The machine's own oddities (few processors, no watches left, a slow BLAS) are not what
  /// is tested.
  std::set<std::string> troubles() const {
    std::set<std::string> names;
    for (const auto& [name, finding] : findings)
      if ((finding["severity"] == "warning" || finding["severity"] == "error") && name != "watches" &&
          name != "OpenMP" && name != "BLAS")
        names.insert(name);
    return names;
  }
};

Report report_of(const Ran& ran) {
  CAPTURE(ran.err);
  const nlohmann::json json = ran.json();
  Report report;
  report.status = ran.status;
  report.worst = json["worst"];
  CHECK(json["ok"] == (report.worst == "ok" || report.worst == "note"));
  CHECK(report.status == (report.worst == "error" ? 3 : report.worst == "warning" ? 1 : 0));
  std::map<std::string, int> rank = {{"ok", 0}, {"note", 1}, {"warning", 2}, {"error", 3}};
  std::string worst = "ok";
  for (const auto& finding : json["findings"]) {
    const std::string name = finding["name"], severity = finding["severity"];
    CAPTURE(name);
    CHECK(report.findings.emplace(name, finding).second);
    CHECK_FALSE(finding["text"].get<std::string>().empty());
    CHECK(finding["facts"].is_object());
    if (rank.at(severity) >= 2) CHECK(finding["advice"].is_string());
    if (rank.at(severity) == 0) CHECK(finding["advice"].is_null());
    if (rank.at(severity) > rank.at(worst)) worst = severity;
  }
  CHECK(worst == report.worst);
  return report;
}

Report doctor(const DoctorScene& scene) { return report_of(triage_program(scene.folder, {"doctor", "--json"})); }

bool mentions(const nlohmann::json& finding, const std::string& part) {
  return finding.dump().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("D21: doctor looks at everything that triage runs on") {
  const DoctorScene scene;
  const Report report = doctor(scene);
  CHECK(report.troubles().empty());
  CHECK(report["triage"]["facts"]["version"] == TRIAGE_VERSION);
  CHECK(report["LibTorch"]["facts"]["version"] == report["LibTorch"]["facts"]["headers"]);
  CHECK(fs::exists(report["LibTorch"]["facts"]["library"].get<std::string>()));
  CHECK(fs::exists(report["Lua"]["facts"]["library"].get<std::string>()));
  CHECK(report["Lua"]["facts"]["errors_unwind"] == true);
  CHECK(report["OpenMP"]["facts"]["libraries"].size() >= 1);
  CHECK(report["processor"]["facts"]["instruction_set"] == report["processor"]["facts"]["instruction_sets"][0]);
  CHECK(report["threads"]["facts"]["threads"] == 1);
  CHECK(report["GPU"]["facts"]["libtorch_has_cuda"].is_boolean());
  CHECK(mentions(report["environment"], "OMP_NUM_THREADS=1"));
}

TEST_CASE("D21: doctor for people: a line each, what to do below it, and a last sentence") {
  const DoctorScene scene;
  const Variable set("TRIAGE_INSTRUCTION_SET", "avx9");
  const Ran ran = triage_program(scene.folder, {"doctor"});
  CAPTURE(ran.out);
  CHECK(ran.status == 1);
  CHECK(ran.err.empty());
  CHECK(ran.out.rfind(std::string("  ok       triage      ") + TRIAGE_VERSION, 0) == 0);
  CHECK(std::regex_search(ran.out, std::regex("\n  warning  processor .*(\n .*)+\n +-> set it to one of ")));
  CHECK(std::regex_search(ran.out, std::regex("\n0 errors, [0-9]+ warnings?; `->` says what to do\n$")));
}

TEST_CASE("D21: doctor names settings that harm") {
  const DoctorScene scene;
  const Variable set("TRIAGE_INSTRUCTION_SET", "avx9"), threads("OMP_NUM_THREADS", "4000");
  const Report report = doctor(scene);
  CHECK(mentions(report["processor"], "avx9"));
  CHECK(mentions(report["processor"]["advice"], "baseline"));
  // Newer versions of LibTorch use no more threads than there are processors, whatever they are told.
  const auto& facts = report["threads"]["facts"];
  if (facts["threads"] > facts["processors"])
    CHECK(mentions(report["threads"]["advice"], "set OMP_NUM_THREADS="));
  else
    CHECK(report["threads"]["advice"].is_null());
}

namespace {

/// The members of a zip archive that are stored as they are, by name without the one folder.
std::map<std::string, std::string> members_of(const std::string& zip) {
  std::map<std::string, std::string> members;
  const auto number = [&](size_t at, size_t bytes) {
    size_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(zip.at(at + i));
    return value;
  };
  size_t at = zip.rfind(std::string("PK\5\6", 4));
  REQUIRE(at != std::string::npos);
  const size_t count = number(at + 10, 2);
  at = number(at + 16, 4);
  for (size_t i = 0; i < count; ++i) {
    REQUIRE(zip.compare(at, 4, std::string("PK\1\2", 4)) == 0);
    const size_t size = number(at + 24, 4), name = number(at + 28, 2), extra = number(at + 30, 2);
    const size_t comment = number(at + 32, 2), header = number(at + 42, 4);
    const std::string path = zip.substr(at + 46, name);
    const size_t content = header + 30 + number(header + 26, 2) + number(header + 28, 2);
    members[path.substr(path.find('/') + 1)] = zip.substr(content, size);
    at += 46 + name + extra + comment;
  }
  return members;
}

/// What the bundle says of one part: "log.txt", ...
nlohmann::json part_of(const nlohmann::json& report, const std::string& name) {
  for (const auto& part : report["bundle"]["content"])
    if (part["name"] == name) return part;
  FAIL("the bundle has no part ", name);
  return {};
}

}  // namespace

TEST_CASE("D21: doctor --bundle: one file with the report, the last capsule and the logs, and what is in it") {
  const DoctorScene scene;
  write_bytes(scene.folder / "windows.lua", "return function(z) return z:reshape({-1, 4}) end\n");
  const Variable capsules("TRIAGE_REPLAY_RECORD", "capsules"), log("TRIAGE_LOG_FILE", "triage.log"),
      debug("TRIAGE_COMPILE_DEBUG", "1");
  CHECK(triage_program(scene.folder, {"run", "windows.lua", "--input", "z=ones:3x2"}).status == 1);
  const Ran ran = triage_program(scene.folder, {"doctor", "--bundle", "report.zip", "--json"});
  CAPTURE(ran.err);
  const nlohmann::json report = ran.json();
  CHECK(report["bundle"]["file"] == "report.zip");
  const auto members = members_of(read_bytes(scene.folder / "report.zip"));
  for (const char* const name : {"README.txt", "doctor.txt", "doctor.json", "capsule.pt", "log.txt", "debug.log"}) {
    CAPTURE(name);
    REQUIRE(members.count(name) == 1);
    CHECK(part_of(report, name)["left_out"].is_null());
    CHECK(part_of(report, name)["bytes"] == members.at(name).size());
  }
  const std::string& contents = members.at("README.txt");
  CHECK(has(contents, "the call of 'windows': "));
  CHECK(has(contents, "the values of its inputs (z)"));
  CHECK(has(contents, "Look at these files before you send them."));
  CHECK(has(members.at("doctor.txt"), "\n  ok       Lua         "));
  CHECK(!has(members.at("doctor.txt"), "\x1b"));
  CHECK(nlohmann::json::parse(members.at("doctor.json"))["findings"].size() == report["findings"].size());
  CHECK(has(members.at("log.txt"), "the call of 'windows' that failed is in"));
  CHECK(has(members.at("debug.log"), "windows_1/debug.log\n"));
  CHECK(!has(members.at("debug.log"), "doctor"));  // not of the probes of the doctor

  {
    const Variable mask("TRIAGE_REPLAY_MASK", "z");
    CHECK(triage_program(scene.folder, {"run", "windows.lua", "--input", "z=ones:3x2"}).status == 1);
    const Ran masked = triage_program(scene.folder, {"doctor", "--bundle", "masked.zip", "--json"});
    CHECK(has(part_of(masked.json(), "capsule.pt")["says"], "and no values of its inputs"));
  }
  write_bytes(scene.folder / "call.pt", members.at("capsule.pt"));
  const Ran replayed = triage_program(scene.folder, {"replay", "call.pt"});
  CHECK(has(replayed.out, "replayed  the same"));
}

TEST_CASE("D21: doctor --bundle where there is nothing to add, or too much, and where it cannot be written") {
  const DoctorScene scene;
  const Ran ran = triage_program(scene.folder, {"doctor", "--bundle", "report.zip"});
  CHECK(ran.status <= 1);
  CHECK(has(ran.out, "\nbug report report.zip\n"));
  CHECK(std::regex_search(ran.out, std::regex("capsule.pt +left out  there is none in \"triage_capsules\"")));
  CHECK(std::regex_search(ran.out, std::regex("log.txt +left out  TRIAGE_LOG_FILE is not set")));
  CHECK(std::regex_search(ran.out, std::regex("debug.log +left out  there is no run in \"triage_debug\"")));
  CHECK(members_of(read_bytes(scene.folder / "report.zip")).count("capsule.pt") == 0);

  std::string line = "a line of the log, which is long\n", log;
  while (log.size() < (3u << 20)) log += line;
  write_bytes(scene.folder / "triage.log", log);
  fs::create_directory(scene.folder / "capsules");
  write_bytes(scene.folder / "capsules/damaged.pt", "no capsule");
  const Variable capsules("TRIAGE_REPLAY_RECORD", "capsules"), log_file("TRIAGE_LOG_FILE", "triage.log");
  const nlohmann::json report = triage_program(scene.folder, {"doctor", "--bundle", "report.zip", "--json"}).json();
  CHECK(part_of(report, "log.txt")["bytes"].get<size_t>() <= (1u << 20) + 64);
  CHECK(part_of(report, "capsule.pt")["left_out"].get<std::string>().find("damaged.pt") != std::string::npos);
  const auto members = members_of(read_bytes(scene.folder / "report.zip"));
  CHECK(members.at("log.txt").rfind("[the beginning is left out]\na line of the log", 0) == 0);

  const Ran nowhere = triage_program(scene.folder, {"doctor", "--bundle", "nowhere/report.zip"});
  CHECK(nowhere.status == 2);
  CHECK(has(nowhere.err, "the folder \"nowhere\" does not exist"));
  CHECK(triage_program(scene.folder, {"doctor", "--bundle", "."}).status == 2);
}
