// The figures in docs/: those that are promised are there, and the first page says what the tables say.
#include "tests/house/sources.h"

#include <doctest/doctest.h>

#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using triage::test::read, triage::test::root;

TEST_CASE("T35: the page of figures has TorchGuard's table with ours beside it, and every workload of the comparison") {
  const std::string page = read(root / "docs/performance-tables.md");
  for (const char* slots : {"4", "16", "64", "256"}) {
    const std::regex row(std::string("\n\\| ") + slots + " \\|( [0-9.]+ / [0-9.]+ \\|){4}\n");
    CHECK_MESSAGE(std::regex_search(page, row), "no figures for " << slots << " slots");
  }
  const size_t begin = page.find("<!-- torchguard: begin -->"), end = page.find("<!-- torchguard: end -->");
  REQUIRE(begin < end);
  REQUIRE(end != std::string::npos);
  const std::string table = page.substr(begin, end - begin);
  const auto has_figures = [&](const std::string& work, const std::string& shape) {
    const size_t row = table.find("\n| " + work + " | " + shape + " | ");
    CHECK_MESSAGE(row != std::string::npos, "no figures for " << work << " at " << shape);
  };
  for (const char* policy :
       {"flag_nan", "flag_nan_and_inf", "detect_repair", "zscore_clip", "softmax_repair", "branch"}) {
    for (const char* shape : {"32x512", "256x1024", "4096x1024"}) has_figures(policy, shape);
  }
  for (const char* operation : {"new", "push(where)", "push(codes)", "merge", "is_ok", "has_code", "count_errors"}) {
    for (const char* batch : {"32", "4096"}) has_figures(operation, batch);
  }
}

TEST_CASE("every picture that the pages of figures show is there, and is one") {
  static const std::regex image(R"(!\[[^\]]+\]\(([^)]+)\))");
  for (const char* name_of_page : {"docs/performance.md", "docs/performance-tables.md"}) {
    const std::string page = read(root / name_of_page);
    for (std::sregex_iterator match(page.begin(), page.end(), image), end; match != end; ++match) {
      const std::string name = (*match)[1], picture = read(root / "docs" / name);
      CHECK_MESSAGE(picture.rfind("<svg ", 0) == 0, name << " is no SVG");
      CHECK_MESSAGE(picture.find("</svg>") != std::string::npos, name << " has no end");
    }
  }
}

TEST_CASE("the first page of figures says what the tables say") {
  const std::string stale =
      "docs/performance.md is older than docs/performance-tables.md: run python3 "
      "tests/bench/first_page.py; ";
  const std::string page = read(root / "docs/performance.md"), tables = read(root / "docs/performance-tables.md");
  const std::string picture = read(root / "docs/images/policies.svg");
  static const std::regex row(
      R"(\n\| `(\w+)` \|[^|]*\| ([\d.]+) us \| (\w+), ([\d.]+) us \| ([\d.]+) \| ([\d.]+ x), (\w+) )"
      R"(\| ([\d.]+) \| (\d+), (\w+) \|)");
  int policies = 0;
  for (std::sregex_iterator match(page.begin(), page.end(), row), end; match != end; ++match, ++policies) {
    const std::smatch& cell = *match;
    const std::regex fused("\n\\| " + cell.str(1) + " \\| 256x1024 \\| " + cell.str(2) + " ± [0-9.]+ us \\| " +
                           cell.str(3) + " \\| " + cell.str(4) + " us \\| " + cell.str(5) + " \\| " + cell.str(6) +
                           " \\| " + cell.str(7) + " \\|");
    const std::regex compared("\n\\| " + cell.str(1) + " \\| 256x1024 \\|([^|]*\\|){4} " + cell.str(8) +
                              " \\|[^|]*\\| inductor " + cell.str(9) + ": " + cell.str(10) + " \\|");
    CHECK_MESSAGE(std::regex_search(tables, fused), stale << cell.str(1) << " on fused has other figures");
    CHECK_MESSAGE(std::regex_search(tables, compared), stale << cell.str(1) << " has other figures against TorchGuard");
    CHECK_MESSAGE(picture.find(">" + cell.str(8) + " x<") != std::string::npos,
                  stale << "the picture has another ratio for " << cell.str(1));
  }
  CHECK(policies == 7);

  std::map<std::string, std::pair<int, int>> counts;  // heading -> lines over, lines with a goal
  std::string heading;
  std::istringstream lines(tables);
  static const std::regex verdict(R"(.*[ :] ?(within|over) \|)");
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("## ", 0) == 0) heading = line.substr(3);
    if (!std::regex_match(line, verdict)) continue;
    ++counts[heading].second;
    counts[heading].first += line.find("over |") != std::string::npos || line.find(": over,") != std::string::npos;
  }
  CHECK(counts.size() >= 5);
  const size_t list = page.find("<!-- over: begin -->");
  REQUIRE(list != std::string::npos);
  for (const auto& table : counts) {
    const auto& name = table.first;
    const auto& count = table.second;
    const std::string link = "[" + name + "](performance-tables.md#";
    const std::string said = count.first ? ", " + std::to_string(count.first) + " of " + std::to_string(count.second)
                                         : " (" + std::to_string(count.second) + ")";
    const size_t begin = page.find(link, list);
    const bool there = begin != std::string::npos && page.find(said, begin) == page.find(')', begin) + 1;
    CHECK_MESSAGE(there, stale << name << " is to be followed by" << said);
  }
}
