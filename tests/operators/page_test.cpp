// docs/operators.md lists the rows of the table of operators that have a contract. TRIAGE_UPDATE_DOCS=1 writes them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "runtime/operators/table/row.h"
#include "tests/paths.h"

using namespace triage::operators;

namespace {

std::string with_commas(std::string_view words, std::string_view left_out) {
  std::string text;
  std::istringstream all{std::string(words)};
  for (std::string word; all >> word;)
    if (word != left_out) text += (text.empty() ? "`" : ", `") + word + "`";
  return text;
}

std::string rules_of(std::string_view text) {
  std::string shown;
  for (const char c : text) shown += c == '|' ? "\\|" : std::string(1, c);
  return shown.empty() ? "" : "`" + shown + "`";
}

/// A line for all that take the same overloads and arguments, in the order of the first of them.
std::string section(const char* title, Rows rows) {
  std::vector<std::pair<std::string, std::string>> lines;  // what a line ends with, and its names
  for (const Row& row : rows) {
    const bool in_place = row.overloads.substr(0, 1) == "_";
    std::string overloads = with_commas(row.overloads, "_");
    if (const size_t dot = overloads.find("`.`"); dot != std::string::npos) overloads.replace(dot, 3, "unnamed");
    const std::string end =
        std::string(in_place ? " and in place" : "") + " | " + overloads + " | " + rules_of(row.rules);
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == end; });
    if (found == lines.end())
      lines.emplace_back(end, with_commas(row.names, ""));
    else
      found->second += ", " + with_commas(row.names, "");
  }
  std::string text = std::string("\n## ") + title + "\n\n| operators | overloads | arguments |\n|---|---|---|\n";
  for (const auto& [end, names] : lines) text += "| " + names + end + " |\n";
  return text;
}

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("docs/operators.md lists the operators that have a contract") {
  const std::string path = std::string(triage::test::source_dir()) + "/docs/operators.md";
  const std::string mark = "<!-- made by tests/operators/page_test.cpp -->\n";
  const std::string page = read(path);
  const size_t end = page.find(mark);
  REQUIRE(end != std::string::npos);
  const std::string made =
      page.substr(0, end + mark.size()) + section("Elementwise", elementwise_rows()) +
      section("Reductions, sorting, running sums", reduction_rows()) +
      section("Views, copies, joining and cutting", shape_rows()) + section("Indexing", indexing_rows()) +
      section("Creation and random numbers", creation_rows()) + section("Linear algebra", linear_rows()) +
      section("Layers and losses", network_rows()) + section("Of triage (namespace `triage`)", flags_rows());
  if (std::getenv("TRIAGE_UPDATE_DOCS")) {
    std::ofstream(path) << made;
    return;
  }
  CHECK_MESSAGE(page == made, "TRIAGE_UPDATE_DOCS=1 build/system/bin/test_operators brings the page up to date");
}
