// The rules of the house that no other tool holds: the map is true, files stay short, versions agree.
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

const fs::path root = triage::test::source_dir();

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> folders_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) names.insert(entry.path().filename().string());
  }
  return names;
}

/// The folders that a map lists, top to bottom: lines that begin "| `name/` |".
std::vector<std::string> folders_on_map(const std::string& map) {
  std::vector<std::string> names;
  std::stringstream lines(map);
  for (std::string line; std::getline(lines, line);) {
    const size_t end = line.find("/` |");
    if (line.rfind("| `", 0) == 0 && end != std::string::npos) names.push_back(line.substr(3, end - 3));
  }
  return names;
}

}  // namespace

TEST_CASE("runtime/README.md lists the folders there are") {
  const std::vector<std::string> map = folders_on_map(read(root / "runtime" / "README.md"));
  CHECK(std::set<std::string>(map.begin(), map.end()) == folders_in(root / "runtime"));
}

TEST_CASE("in runtime/ a folder uses those below it on the map, and nothing of the bindings") {
  const std::vector<std::string> map = folders_on_map(read(root / "runtime" / "README.md"));
  const auto height = [&](const std::string& folder) {
    return std::find(map.begin(), map.end(), folder) - map.begin();
  };
  static const std::regex include(R"re(#include\s*[<"](?:runtime/(\w+)/|(bindings/|lua)))re");
  for (const auto& entry : fs::recursive_directory_iterator(root / "runtime")) {
    const std::string ending = entry.path().extension().string();
    if (ending != ".cpp" && ending != ".h") continue;
    const std::string own = fs::relative(entry.path(), root / "runtime").begin()->string();
    const std::string text = read(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), include), end; match != end; ++match) {
      CHECK_MESSAGE(!(*match)[2].matched, entry.path().string() << " reaches for the bindings: " << match->str());
      if ((*match)[1].matched) {
        CHECK_MESSAGE(height((*match)[1]) >= height(own), entry.path().string()
                                                              << " uses a folder above its own: " << match->str());
      }
    }
  }
}

TEST_CASE("source files stay short enough to read") {
  for (const char* folder : {"runtime", "bindings", "tests", "scripts", "examples"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".cpp" && ending != ".h" && ending != ".lua") continue;
      const std::string text = read(entry.path());
      CHECK_MESSAGE(std::count(text.begin(), text.end(), '\n') <= 650, entry.path().string()
                                                                           << " is too long: split it by topic");
    }
  }
}

TEST_CASE("the change log begins with the version of the headers") {
  const std::string header = read(root / "runtime" / "include" / "triage" / "version.h");
  const std::string define = "#define TRIAGE_VERSION \"";
  const size_t start = header.find(define) + define.size();
  const std::string version = header.substr(start, header.find('"', start) - start);
  const std::string log = read(root / "CHANGELOG.md");
  REQUIRE(log.find("## ") != std::string::npos);
  CHECK(log.find("## " + version) == log.find("## "));
}
