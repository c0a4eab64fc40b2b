// The rules of the house that no other tool holds: the map is true, versions agree.
#include "tests/house/sources.h"

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
using triage::test::read, triage::test::root;

namespace {

/// The files in `folders` and all folders in them whose names end in one of `endings`.
std::vector<fs::path> files_in(const std::vector<std::string>& folders, const std::set<std::string>& endings) {
  std::vector<fs::path> files;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (endings.count(entry.path().extension().string()) != 0) files.push_back(entry.path());
  return files;
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

/// A folder whose README.md is the map of the folders in it.
struct Layered {
  const char* folder;
  const char* above;  // what its sources may not include: a pattern
};
constexpr Layered layered[] = {{"runtime", "bindings/|lua"}, {"bindings/lua", "bindings/cli/"}};

std::vector<std::string> map_of(const Layered& part) { return folders_on_map(read(root / part.folder / "README.md")); }

/// The includes in `text`, of a file in the folder `own`, that lead upwards on the map or above it.
std::vector<std::string> upward_includes(const Layered& part, const std::string& own, const std::string& text) {
  const std::vector<std::string> map = map_of(part);
  const auto place = [&](const std::string& folder) { return std::find(map.begin(), map.end(), folder); };
  const std::regex include(R"re(#include\s*[<"](?:)re" + std::string(part.folder) + R"re(/(\w+)/|()re" + part.above +
                           R"re(|\.\.)))re");
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), include), end; match != end; ++match)
    if ((*match)[2].matched || place((*match)[1]) < place(own)) found.push_back(match->str());
  return found;
}

}  // namespace

TEST_CASE("a README with a map lists the folders there are") {
  for (const Layered& part : layered) {
    const std::vector<std::string> map = map_of(part);
    CHECK(std::set<std::string>(map.begin(), map.end()) == folders_in(root / part.folder));
  }
}

TEST_CASE("a folder uses those below it on its map: in runtime/, bindings/lua over it, bindings/cli over both") {
  for (const Layered& part : layered) {
    for (const fs::path& file : files_in({part.folder}, {".cpp", ".h", ".inc"})) {
      const std::string own = fs::relative(file, root / part.folder).begin()->string();
      for (const std::string& upward : upward_includes(part, own, read(file)))
        FAIL_CHECK(file.string() << " uses a folder above its own: " << upward);
    }
  }
}

TEST_CASE("an include that closes a cycle between folders is found") {
  const Layered& lua = layered[1];
  const auto upward = [&](const char* own, const char* text) { return upward_includes(lua, own, text).size(); };
  CHECK(upward("tensors",
               "#include \"bindings/lua/state/state.h\"\n#include \"bindings/lua/tensors/calls/call.h\"\n") == 0);
  CHECK(upward("state", "#include \"bindings/lua/tensors/calls/call.h\"\n") == 1);
  CHECK(upward("tensors", "#include <bindings/lua/flags/prelude.h>\n") == 1);
  CHECK(upward("engine", "#include \"bindings/cli/command.h\"\n") == 1);
  CHECK(upward("state", "#include \"../tensors/calls/call.h\"\n") == 1);
  CHECK(upward_includes(layered[0], "policy", "#include <lua.hpp>\n").size() == 1);
}

TEST_CASE("a line has at most 120 columns") {
  for (const fs::path& file : files_in({"runtime", "bindings"}, {".cpp", ".h", ".inc"})) {
    std::istringstream text(read(file));
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      ++number;
      const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      CHECK_MESSAGE(columns <= 120, file.string() << ":" << number);
    }
  }
}

TEST_CASE("docs/logs.md lists the variables of the environment that triage reads") {
  const std::regex literal(R"re("(TRIAGE_[A-Z_]*[A-Z])")re"), row(R"re(\| `(TRIAGE_[A-Z_]+)` \|)re");
  const auto names_in = [](const std::string& text, const std::regex& name) {
    std::set<std::string> names;
    for (std::sregex_iterator match(text.begin(), text.end(), name), end; match != end; ++match)
      names.insert((*match)[1]);
    return names;
  };
  std::set<std::string> read_there;
  for (const fs::path& file : files_in({"runtime", "bindings/lua", "bindings/cli"}, {".cpp", ".h"}))
    if (file.filename() != "gone.cpp") read_there.merge(names_in(read(file), literal));
  CHECK(read_there == names_in(read(root / "docs" / "logs.md"), row));
  CHECK(read_there.size() <= 14);
}

TEST_CASE("the C interface and the examples use the public headers only") {
  const std::regex own(R"re(#include "(?!bindings/c/|examples/|\w+\.h"))re");
  for (const fs::path& file : files_in({"bindings/c", "examples"}, {".cpp", ".h"}))
    CHECK_MESSAGE(!std::regex_search(read(file), own), file.string() << " includes what is not installed");
}

TEST_CASE("few things are a thread's own") {
  // Hidden from whoever reads a call: what can be an argument, or a field of a context that is there, is no variable of
  // its own.
  constexpr int most = 14;
  static const std::regex declared(R"re(^\s*(inline |static )*thread_local )re");
  std::string found;
  int count = 0;
  for (const fs::path& file : files_in({"runtime", "bindings"}, {".cpp", ".h"})) {
    std::stringstream lines(read(file));
    for (std::string line; std::getline(lines, line);)
      if (std::regex_search(line, declared)) ++count, found += file.string() + ": " + line + "\n";
  }
  CAPTURE(found);
  CHECK(count > 0);
  CHECK(count <= most);
}

TEST_CASE("nothing orders memory in a way that the thread sanitizer does not see") {
  // GCC refuses to compile a fence for it: a load or store with an order says the same, and names what is ordered.
  for (const fs::path& file : files_in({"runtime", "bindings"}, {".cpp", ".h"}))
    CHECK_MESSAGE(read(file).find("atomic_thread_fence") == std::string::npos, file.string());
}

namespace {

/// The objects that `text` declares as statics by value, of functions or of the file: each is destroyed at exit if it
/// has a destructor.
std::vector<std::string> statics_by_value(const std::string& text) {
  static const auto& of_function = *new std::regex(
      R"re(^\s+(?:inline )?static (?:const )?([A-Za-z][\w:]*(?:<[^()]*>)?|std::function<.*>) \w+(?:\[\])?(?: = |\{|;|\((?:R?"|\[)).*)re");
  static const auto& of_file = *new std::regex(
      R"re(^(?:(?:inline|static|const) )*((?:[A-Z]|std::|at::|c10::|torch::)[\w:]*(?:<[^()]*>)?|std::function<.*>) \w+(?: = |\{|;).*)re");
  // Without a destructor, or with one that frees nothing, as have the handles of operators, which `auto` stands for.
  static const auto& harmless = *new std::regex(
      "std::(atomic<.*>|mutex|array<int8_t, 256>|array<NamedConstant, 8>|optional<Cuda>)|bool|auto|luaL_Reg|"
      "LimitedFunction|Slots|KnownForms|Registration|Isa|Language|Extent");
  std::vector<std::string> found;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    const bool is_static = std::regex_match(line, match, of_function) || std::regex_match(line, match, of_file);
    if (is_static && !std::regex_match(match[1].str(), harmless)) found.push_back(line);
  }
  return found;
}

/// The locks of a process in `text` that a forked child may find taken for good: a thread that does not exist there
/// held them.
std::vector<std::string> locks_lost_in_forks(const std::string& text) {
  std::vector<std::string> found;
  if (text.find("pthread_atfork") != std::string::npos) return found;  // it sees to its own
  static const auto& of_function = *new std::regex(R"(\bstatic std::(shared_|recursive_|timed_)?mutex\b)");
  if (std::regex_search(text, of_function)) found.push_back("static std::mutex");
  static const auto& type = *new std::regex(R"((?:struct|class) (\w+)[^;{]*\{\n((?:[^}\n].*\n|\n|\}[^;].*\n)*)\};)");
  static const auto& member = *new std::regex(R"(\n  (mutable )?std::(shared_|recursive_|timed_)?mutex \w+;)");
  for (std::sregex_iterator one(text.begin(), text.end(), type), end; one != end; ++one) {
    const std::string name = (*one)[1], body = "\n" + (*one)[2].str();
    const std::regex lasting("\\bnew " + name + ";|\\bstatic " + name + "[&]? \\w+(;| =)");
    if (std::regex_search(body, member) && std::regex_search(text, lasting)) found.push_back(name);
  }
  return found;
}

}  // namespace

TEST_CASE("a forked child finds the locks of the process open") {
  for (const fs::path& file : files_in({"runtime", "bindings"}, {".cpp", ".h"}))
    for (const std::string& lock : locks_lost_in_forks(read(file)))
      CHECK_MESSAGE(false,
                    file.string() << ": " << lock << " needs a ForkSafeMutex (runtime/messages/fork_safe_mutex.h)");
  const std::string all = "struct All {\n  std::mutex mutex;\n};\n";
  CHECK(locks_lost_in_forks(all + "All& all() {\n  static All& one = *new All;\n}\n").size() == 1);
  CHECK(locks_lost_in_forks(all + "All& all() {\n  static All one;\n}\n").size() == 1);
  CHECK(locks_lost_in_forks("  static std::mutex mutex;\n").size() == 1);
  CHECK(locks_lost_in_forks(all + "void f() {\n  All one;\n}\n").empty());
  CHECK(locks_lost_in_forks("struct All {\n  ForkSafeMutex mutex;\n};\nstatic All all;\n").empty());
}

TEST_CASE("what background threads read is never destroyed") {
  // A Watch, a candidate or the compiler may be at work while the process exits: `static const auto& x = *new T`. Only
  // what stops these threads at exit has to have a destructor.
  const std::set<std::string> stops = {"  static Stops stops;"};
  for (const fs::path& file : files_in({"runtime", "bindings"}, {".cpp", ".h"}))
    for (const std::string& line : statics_by_value(read(file)))
      CHECK_MESSAGE(stops.count(line) != 0, file.string() << " has a static that exit destroys: " << line);
  CHECK(statics_by_value("  static const std::unordered_map<std::string, Ways> table = [] {\n").size() == 1);
  CHECK(statics_by_value("  static Registry registry;\n").size() == 1);
  CHECK(statics_by_value("  static const std::regex place(R\"(a)\");\n").size() == 1);
  CHECK(statics_by_value("const std::vector<std::string> flags = {\"-O3\"};\n").size() == 1);
  CHECK(statics_by_value("inline const std::set<int> few{1};\n").size() == 1);
  CHECK(statics_by_value("  static std::function<void(const A&)> call;\n").size() == 1);
  CHECK(statics_by_value("  static const auto& table = *new LowerTable{\n").empty());
  CHECK(statics_by_value("  static std::atomic<int> last{0};\n  static Recorder* current() noexcept;\n").empty());
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
