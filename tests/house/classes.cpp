// A class can be held in one head, and is in one place.
#include "tests/house/sources.h"

#include <doctest/doctest.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

using triage::test::root;

namespace {

/// What ctags says of the member functions of a class.
struct Members {
  std::set<std::string> names;    // overloads have one
  std::set<std::string> folders;  // in which some are defined
};

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe);
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  CHECK(::pclose(pipe) == 0);
  return text;
}

struct Tag {
  std::string name, file, kind, scope;
};

/// `text`: lines of a name, a file, a line, a kind and a scope.
std::vector<Tag> parsed(const std::string& text) {
  std::vector<Tag> tags;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '!') continue;
    std::stringstream fields(line);
    Tag tag;
    std::string place;
    for (std::string* field : {&tag.name, &tag.file, &place, &tag.kind, &tag.scope}) std::getline(fields, *field, '\t');
    tags.push_back(std::move(tag));
  }
  return tags;
}

/// By the qualified name of the class.
std::map<std::string, Members> members_of_classes(const std::vector<Tag>& tags) {
  std::map<std::string, Members> classes;
  for (const Tag& tag : tags) {
    if (tag.name.rfind("__anon", 0) == 0 || (tag.kind != "prototype" && tag.kind != "function")) continue;
    if (tag.scope.rfind("class:", 0) != 0 && tag.scope.rfind("struct:", 0) != 0) continue;
    Members& members = classes[tag.scope.substr(tag.scope.find(':') + 1)];
    members.names.insert(tag.name);
    if (tag.kind == "function") members.folders.insert(tag.file.substr(0, tag.file.rfind('/')));
  }
  return classes;
}

/// The files that define a class or struct, by its name alone. (`struct stat info` is a variable; types begin with a
/// capital letter.)
std::map<std::string, std::set<std::string>> files_of_types(const std::vector<Tag>& tags) {
  std::map<std::string, std::set<std::string>> types;
  for (const Tag& tag : tags)
    if ((tag.kind == "class" || tag.kind == "struct") && std::isupper(static_cast<unsigned char>(tag.name[0])))
      types[tag.name].insert(tag.file);
  return types;
}

/// What ctags says of our sources; nothing where it is not installed.
std::optional<std::vector<Tag>> tags_of_sources() {
  if (std::system("ctags --version 2>/dev/null | grep -q Universal") != 0) {
    MESSAGE("skipped: it counts with ctags, of the package universal-ctags, which is not installed");
    return std::nullopt;
  }
  return parsed(output_of("cd '" + root.string() +
                          "' && find runtime bindings -name '*.cpp' -o -name '*.h' | "
                          "ctags -L - --language-force=C++ --kinds-C++=pfscg --fields=sK -n -f -"));
}

}  // namespace

TEST_CASE("a class has at most 40 member functions, and they are defined in one folder") {
  // Public headers are a folder of their own: what they define inline stands beside the folder of the other functions.
  const char* const headers = "runtime/include/triage";
  const auto tags = tags_of_sources();
  if (!tags) return;
  const auto classes = members_of_classes(*tags);
  CHECK(classes.size() > 500);
  for (const auto& one : classes) {
    const auto& name = one.first;
    const auto& members = one.second;
    CHECK_MESSAGE(members.names.size() <= 40,
                  name << " has " << members.names.size() << " functions: it does two jobs");
    std::string where;
    for (const std::string& folder : members.folders)
      if (folder != headers) where += " " + folder;
    CHECK_MESSAGE(where.find(' ', 1) == std::string::npos, name << " is defined in several folders:" << where);
  }
}

TEST_CASE("no two types have one name") {
  // Members of classes of the interface go by the name of the class, as `Instrumented::Result` does.
  const std::set<std::string> members_of_interface{"Counts", "Node", "Result", "State"};
  const auto tags = tags_of_sources();
  if (!tags) return;
  const auto types = files_of_types(*tags);
  CHECK(types.size() > 1000);
  for (const auto& [name, files] : types) {
    std::string places;
    for (const std::string& file : files) places += " " + file;
    CHECK_MESSAGE((files.size() == 1 || members_of_interface.count(name)),
                  name << " is defined in several files:" << places << "; say what each of them is");
  }
}

TEST_CASE("types are told apart by name and file") {
  const auto types =
      files_of_types(parsed("A\truntime/x/x.h\t1;\"\tclass\tnamespace:triage\n"
                            "A\truntime/y/y.cpp\t1;\"\tstruct\tclass:triage::B\n"
                            "info\truntime/y/y.cpp\t2;\"\tstruct\tnamespace:triage\n"
                            "b\truntime/y/y.cpp\t1;\"\tfunction\tstruct:triage::A\n"));
  REQUIRE(types.size() == 1);
  CHECK(types.at("A") == std::set<std::string>{"runtime/x/x.h", "runtime/y/y.cpp"});
}

TEST_CASE("functions of a class are counted by name, with the folders in which they are defined") {
  const auto classes =
      members_of_classes(parsed("a\truntime/x/x.h\t1;\"\tprototype\tclass:triage::A\n"
                                "a\truntime/x/x.cpp\t1;\"\tfunction\tclass:triage::A\n"
                                "b\truntime/y/y.cpp\t1;\"\tfunction\tstruct:triage::A\n"
                                "c\truntime/y/y.cpp\t1;\"\tfunction\tnamespace:triage\n"));
  REQUIRE(classes.size() == 1);
  CHECK(classes.at("triage::A").names.size() == 2);
  CHECK(classes.at("triage::A").folders == std::set<std::string>{"runtime/x", "runtime/y"});
}
