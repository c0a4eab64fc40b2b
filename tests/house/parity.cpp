// docs/parity.md against the tests: no row is claimed that no test names, and no test names a row that is not there.
#include "tests/house/sources.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;
using triage::test::read, triage::test::root;

namespace {

struct Row {
  std::string id, feature, state, tests;
};

std::string trim(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(trim(part));
  return parts;
}

/// Row ids are words of a capital and two digits; the capital names where the row comes from.
std::set<std::string> ids_in(const std::string& text) {
  static const std::regex id("\\b[TGEDN][0-9]{2}\\b");
  return {std::sregex_token_iterator(text.begin(), text.end(), id), std::sregex_token_iterator()};
}

std::vector<Row> rows_of(const std::string& page) {
  std::vector<Row> rows;
  for (const std::string& line : split(page, '\n')) {
    const std::vector<std::string> cells = split(line, '|');
    if (cells.size() < 4 || !std::regex_match(cells[1], std::regex("[A-Z][0-9]{2}"))) continue;
    rows.push_back({cells[1], cells[2], cells[3], cells.size() > 4 ? cells[4] : ""});
  }
  return rows;
}

/// The names of a test file: TEST_CASE and SUBCASE in C++; test, it and describe in Lua.
std::vector<std::string> test_names(const fs::path& file) {
  static const std::regex cpp(R"re((?:TEST_CASE|SUBCASE)\w*\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+))re");
  static const std::regex lua(R"re((?:^|\n)\s*(?:test|it|describe|spec)\s*\(?\s*(".*?"|'.*?'))re");
  const std::string text = read(file);
  std::vector<std::string> names;
  const std::regex& pattern = file.extension() == ".lua" ? lua : cpp;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    names.push_back((*match)[1]);
  return names;
}

/// Row id -> the test files (relative to the repository) that name it.
std::map<std::string, std::set<std::string>> tests_by_row() {
  std::map<std::string, std::set<std::string>> result;
  for (const auto& entry : fs::recursive_directory_iterator(root / "tests")) {
    const fs::path& path = entry.path();
    if (path.extension() != ".cpp" && path.extension() != ".lua") continue;
    for (const std::string& name : test_names(path)) {
      for (const std::string& id : ids_in(name)) result[id].insert(fs::relative(path, root / "tests").string());
    }
  }
  return result;
}

std::string cell_of(const std::set<std::string>& files) {
  std::string cell;
  for (const std::string& file : files) cell += (cell.empty() ? "`" : ", `") + file + "`";
  return cell;
}

/// Brings the page up to what the tests name. That a row is done, nobody but a person can say.
void update_page(const std::map<std::string, std::set<std::string>>& tests) {
  const fs::path page = root / "docs" / "parity.md";
  std::string text;
  for (const std::string& line : split(read(page), '\n')) {
    const std::vector<Row> rows = rows_of(line);
    if (rows.empty()) {
      text += line + "\n";
      continue;
    }
    const Row& row = rows.front();
    const bool named = tests.count(row.id);
    const std::string state = !named ? "not yet" : row.state == "not yet" ? "partly" : row.state;
    text += "| " + row.id + " | " + row.feature + " | " + state + " | " +
            (named ? cell_of(tests.at(row.id)) + " |" : "|") + "\n";
  }
  std::ofstream(page) << text;
}

}  // namespace

TEST_CASE("the parity page has each row once, in a known state") {
  const std::map<char, int> count_by_capital = {{'T', 35}, {'G', 9}, {'E', 5}, {'D', 21}, {'N', 1}};
  std::vector<std::string> expected;
  for (const auto& [capital, count] : count_by_capital) {
    for (int i = 1; i <= count; ++i) expected.push_back(capital + std::string(i < 10 ? "0" : "") + std::to_string(i));
  }
  std::vector<std::string> there;
  for (const Row& row : rows_of(read(root / "docs" / "parity.md"))) {
    there.push_back(row.id);
    CHECK_MESSAGE((row.state == "done" || row.state == "partly" || row.state == "not yet"),
                  "row " << row.id << " has the state `" << row.state << "`; there are done, partly, not yet");
    CHECK_MESSAGE(!row.feature.empty(), "row " << row.id << " says nothing");
  }
  std::sort(there.begin(), there.end());
  std::sort(expected.begin(), expected.end());
  CHECK(there == expected);
}

TEST_CASE("the parity page and the tests say the same") {
  const auto tests = tests_by_row();
  if (std::getenv("TRIAGE_UPDATE_DOCS")) update_page(tests);
  std::set<std::string> ids;
  for (const Row& row : rows_of(read(root / "docs" / "parity.md"))) {
    ids.insert(row.id);
    const std::string cell = tests.count(row.id) ? cell_of(tests.at(row.id)) : "";
    CHECK_MESSAGE(row.tests == cell, "row " << row.id << ": the page names the tests [" << row.tests
                                            << "], those that name it are [" << cell
                                            << "]; TRIAGE_UPDATE_DOCS=1 test_house writes the column");
    CHECK_MESSAGE(
        (row.state == "not yet") == cell.empty(),
        "row " << row.id << " is `" << row.state << "`, and tests that name it: " << (cell.empty() ? "none" : cell));
  }
  for (const auto& row : tests)
    CHECK_MESSAGE(ids.count(row.first), cell_of(row.second)
                                            << " names the row " << row.first << ", which is not on the page");
}

TEST_CASE("names of tests are found in both languages") {
  const fs::path folder = fs::temp_directory_path() / ("triage-parity-" + std::to_string(std::rand()));
  fs::create_directories(folder);
  std::ofstream(folder / "a.cpp")
      << "TEST_CASE(\"push \" \"fills slots X05\") {}\nTEST_CASE_TEMPLATE(\"X06\", T, int) {}\n// X07\n";
  std::ofstream(folder / "b.lua")
      << "test(\"X08 merges\", function() end)\n  it('X09', function() end)\nlocal s = 'X10'\n";
  CHECK(test_names(folder / "a.cpp") == std::vector<std::string>{"\"push \" \"fills slots X05\"", "\"X06\""});
  CHECK(test_names(folder / "b.lua") == std::vector<std::string>{"\"X08 merges\"", "'X09'"});
  CHECK(ids_in("push T05 and T06, T100, AT07, [T08]") == std::set<std::string>{"T05", "T06", "T08"});
  fs::remove_all(folder);
}
