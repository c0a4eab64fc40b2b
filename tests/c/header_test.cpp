// The header: what a released version declares never changes, and docs/c.md has all of it.
#include <triage_c.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "host.h"
#include "tests/paths.h"

namespace triage::test {
namespace {

namespace fs = std::filesystem;

const fs::path root = source_dir();
const fs::path header = root / "bindings/c/include/triage_c.h";

std::string read(const fs::path& file) {
  std::ifstream in(file);
  REQUIRE_MESSAGE(in.good(), "cannot read " << file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// One space for any number of them, and no comments.
std::string without_layout(const std::string& text) {
  const std::string code = std::regex_replace(text, std::regex("//[^\n]*"), "");
  return std::regex_replace(code, std::regex("\\s+"), " ");
}

/// The members of a declaration, each without layout; of `int a, b;` that is one.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) {
    part = std::regex_replace(part, std::regex("^ +| +$"), "");
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

/// What a header declares that its programs are compiled with.
struct Declared {
  std::map<std::string, std::vector<std::string>> structs;  // name -> members in their order
  std::map<std::string, std::string> constants;             // name -> value
  std::set<std::string> others;                             // other typedefs, functions

  explicit Declared(const std::string& text) {
    std::string code = without_layout(text.substr(text.find("typedef struct TriageRuntime ")));
    const std::regex body("typedef struct (Triage\\w+) \\{ (.*?)\\} \\1;");
    for (std::smatch match; std::regex_search(code, match, body); code = match.prefix().str() + match.suffix().str())
      structs[match[1]] = split(match[2], ';');
    const std::regex enumerators("enum \\{ (.*?)\\};");
    for (std::smatch match; std::regex_search(code, match, enumerators);
         code = match.prefix().str() + match.suffix().str()) {
      for (const std::string& item : split(match[1], ',')) {
        const size_t equals = item.find(" = ");
        REQUIRE(equals != std::string::npos);
        constants[item.substr(0, equals)] = item.substr(equals + 3);
      }
    }
    for (const std::string& item : split(code.substr(0, code.find("#ifdef")), ';')) others.insert(item);
  }
};

/// What a program that was compiled with `old` would find changed.
std::vector<std::string> changes(const Declared& old, const Declared& now) {
  std::vector<std::string> found;
  for (const auto& [name, members] : old.structs) {
    const auto today = now.structs.find(name);
    const bool grows = members.front() == "size_t size" || name == "TriageApi";
    if (today == now.structs.end() || today->second.size() < members.size() ||
        !std::equal(members.begin(), members.end(), today->second.begin()) ||
        (!grows && today->second.size() > members.size()))
      found.push_back(name);
  }
  for (const auto& [name, value] : old.constants)
    if (!now.constants.count(name) || now.constants.at(name) != value) found.push_back(name);
  for (const std::string& other : old.others)
    if (!now.others.count(other)) found.push_back(other);
  return found;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::vector<std::string> functions_of(const Declared& declared) {
  std::vector<std::string> names;
  std::smatch name;
  for (const std::string& member : declared.structs.at("TriageApi"))
    if (std::regex_search(member, name, std::regex("\\(\\*(\\w+)\\)"))) names.push_back(name[1]);
  return names;
}

}  // namespace

TEST_CASE("the header of today has all that each frozen one has, in its place") {
  const Declared now(read(header));
  int versions = 0;
  for (const auto& folder : fs::directory_iterator(root / "tests/c/frozen")) {
    if (!folder.is_directory()) continue;
    CAPTURE(folder.path().string());
    const std::string text = read(folder.path() / "triage_c.h");
    CHECK(text.find("#define TRIAGE_C_VERSION " + folder.path().filename().string() + "\n") != std::string::npos);
    CHECK(changes(Declared(text), now) == std::vector<std::string>{});
    ++versions;
  }
  CHECK(versions == TRIAGE_C_VERSION);
}

TEST_CASE("what breaks compiled programs is found, and what only grows is not") {
  const std::string text = read(header);
  const Declared now(text);
  CHECK(functions_of(now).size() == 55);
  CHECK(now.structs.size() == 23);
  CHECK(now.constants.at("TRIAGE_ERROR_OTHER") == "10");
  CHECK(now.others.size() == 8);
  const auto broken_by = [&](const std::string& from, const std::string& to) {
    return changes(now, Declared(replaced(text, from, to)));
  };
  using Names = std::vector<std::string>;
  CHECK(broken_by("TriageStatus (*free_runtime)", "TriageStatus (*added)(void);\nTriageStatus (*free_runtime)") ==
        Names{"TriageApi"});
  CHECK(broken_by("TriageStatus (*rescan)(TriageWatch* watch);", "") == Names{"TriageApi"});
  CHECK(broken_by("(*rescan)(TriageWatch* watch)", "(*rescan)(TriageWatch* watch, int how)") == Names{"TriageApi"});
  CHECK(broken_by("int64_t timeout_ns;", "int32_t timeout_ns;") == Names{"TriageRunOptions"});
  CHECK(broken_by("TRIAGE_ERROR_INPUT = 2", "TRIAGE_ERROR_INPUT = 3") == Names{"TRIAGE_ERROR_INPUT"});
  CHECK(broken_by("} TriageFlag;", "int64_t more;\n} TriageFlag;") == Names{"TriageFlag"});
  CHECK(broken_by("typedef int32_t TriageStatus", "typedef int64_t TriageStatus") ==
        Names{"typedef int32_t TriageStatus"});
  CHECK(broken_by("} TriageRunInfo;", "int64_t more;\n} TriageRunInfo;").empty());
  CHECK(broken_by("} TriageApi;", "TriageStatus (*more)(void);\n} TriageApi;").empty());
}

TEST_CASE("a program of version 1 passes the options that it knows") {
  for (const size_t size : {168, 176}) {
    TriageRuntimeOptions options = {};
    options.size = size;
    options.reserved_2 = -1;  // lay behind the last field
    options.trial_seconds = options.reload_latency_ratio = -9;
    options.on_slow_reload = options.on_new_graph_breaks = -9;
    TriageRuntime* runtime = nullptr;
    check_ok(api().create_runtime(&options, &runtime));
    check_ok(api().free_runtime(runtime));
  }
}

TEST_CASE("sizes and offsets that programs are compiled with") {
  static_assert(sizeof(void*) == 8, "the numbers here are those of 64-bit systems");
  CHECK(offsetof(TriageApi, library_version) == 8);
  CHECK(offsetof(TriageApi, run) == 8 * 17);
  CHECK(offsetof(TriageApi, reset_state) == 8 * 34);
  CHECK(offsetof(TriageApi, flush_decisions) == 8 * 55);
  CHECK(sizeof(TriageRuntimeOptions) == 208);
  CHECK(offsetof(TriageRuntimeOptions, trial_seconds) == 176);
  CHECK(sizeof(TriageParam) == 64);
  CHECK(sizeof(TriageRunInfo) == 80);
  CHECK(sizeof(TriageRunOptions) == 112);
  CHECK(sizeof(TriageFlag) == 56);
  CHECK(sizeof(TriageVersion) == 104);
  CHECK(sizeof(TriageStatistics) == 240);
  CHECK(sizeof(TriageWatchOptions) == 40);
  CHECK(sizeof(TriageDecisionLogOptions) == 128);
  CHECK(sizeof(TriageShadowOptions) == 48);
  CHECK(sizeof(TriageCanaryOptions) == 80);
  CHECK(sizeof(TriageCandidateReport) == 256);
  CHECK(sizeof(TriageBundleVersion) == 104);
  CHECK(sizeof(TriageFunctionCall) == 64);
  CHECK(sizeof(TriageFunctionOptions) == 32);
  CHECK(sizeof(TriageModuleOptions) == 24);
  CHECK(sizeof(DLManagedTensor) == 64);
  CHECK(offsetof(DLTensor, dtype) == 20);
  CHECK(offsetof(DLTensor, shape) == 24);
}

TEST_CASE("docs/c.md has a row for each function, and only for those") {
  std::vector<std::string> rows;
  std::istringstream lines(read(root / "docs/c.md"));
  std::smatch name;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_search(line, name, std::regex("^\\| `(\\w+)\\("))) rows.push_back(name[1]);
  std::vector<std::string> functions = functions_of(Declared(read(header)));
  functions.insert(functions.begin(), "triage_get_api");
  CHECK(rows == functions);
}

TEST_CASE("C in docs/c.md is taken from programs that run") {
  const auto without_indent = [](const std::string& text) {
    return std::regex_replace(text, std::regex("(^|\n) +"), "$1");
  };
  const std::string programs =
      without_indent(read(root / "examples/c/main.c") + read(root / "tests/c/every_function.c"));
  const std::string page = read(root / "docs/c.md");
  int blocks = 0;
  for (size_t at = page.find("```c\n"); at != std::string::npos; at = page.find("```c\n", at + 1)) {
    const size_t begin = at + 5;
    const std::string block = page.substr(begin, page.find("```", begin) - begin);
    CAPTURE(block);
    CHECK(programs.find(without_indent(block)) != std::string::npos);
    ++blocks;
  }
  CHECK(blocks >= 5);
}

}  // namespace triage::test
