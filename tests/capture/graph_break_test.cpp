#include "runtime/capture/graph_break.h"
#include "tests/paths.h"

#include <doctest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace {

using triage::capture::Break;
using triage::capture::BreakInfo;

const std::string page_path = triage::test::source_dir() + "/docs/graph-breaks.md";

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string table() {
  std::string text = "| id | what | why |\n|---|---|---|\n";
  for (const BreakInfo& kind : triage::capture::break_kinds())
    text += std::string("| ") + kind.id + " | " + kind.title + " | " + kind.explanation + " |\n";
  return text;
}

}  // namespace

TEST_CASE("every kind of graph break has an id of its own, a title and an explanation") {
  std::set<std::string> ids;
  for (const BreakInfo& kind : triage::capture::break_kinds()) {
    CHECK(ids.insert(kind.id).second);
    CHECK(std::string(kind.id).rfind("TB", 0) == 0);
    CHECK(!std::string(kind.title).empty());
    CHECK(std::string(kind.explanation).back() == '.');
  }
}

TEST_CASE("docs/graph-breaks.md lists every kind of graph break (TRIAGE_UPDATE_DOCS=1 writes it)") {
  const std::string page = read(page_path);
  const size_t at = page.find("| id | what | why |\n");
  REQUIRE(at != std::string::npos);
  if (std::getenv("TRIAGE_UPDATE_DOCS")) std::ofstream(page_path) << page.substr(0, at) << table();
  CHECK(read(page_path).substr(at) == table());
}

TEST_CASE("D16: the text of a graph break says what, why, what to do, its id, and where in the script") {
  const triage::capture::GraphBreak graph_break{Break::reads_value,
                                                "`item` reads a value of a tensor",
                                                "Keep it a tensor.",
                                                {"repair.lua", 7},
                                                "  repair.lua:7: in function 'limit'\n    if z:max():item() > 3 then"};
  CHECK(graph_break.text() ==
        "repair.lua:7: graph break: `item` reads a value of a tensor\n"
        "  Explanation: A graph is captured once and then runs on other data. A value that the script reads from a "
        "tensor would become a constant of the graph.\n"
        "  Hint: Keep it a tensor.\n"
        "  Developer debug context: reads_value (TB0001)\n"
        "\n"
        "from user code:\n"
        "  repair.lua:7: in function 'limit'\n"
        "    if z:max():item() > 3 then");
  CHECK(graph_break.brief() ==
        "repair.lua:7: graph break: `item` reads a value of a tensor (TB0001). Hint: Keep it a tensor.");
}
