// docs/performance.md holds the figures it promises: of every workload that tests/bench compares with TorchGuard.
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace {

std::string read(const std::string& path) {
  std::ifstream file(triage::test::source_dir() + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("T35: the page of figures has TorchGuard's table with ours beside it, and every workload of the comparison") {
  const std::string page = read("docs/performance.md");
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

TEST_CASE("every picture that the page of figures shows is there, and is one") {
  const std::string page = read("docs/performance.md");
  static const std::regex image(R"(!\[[^\]]+\]\(([^)]+)\))");
  for (std::sregex_iterator match(page.begin(), page.end(), image), end; match != end; ++match) {
    const std::string name = (*match)[1], picture = read("docs/" + name);
    CHECK_MESSAGE(picture.rfind("<svg ", 0) == 0, name << " is no SVG");
    CHECK_MESSAGE(picture.find("</svg>") != std::string::npos, name << " has no end");
  }
}
