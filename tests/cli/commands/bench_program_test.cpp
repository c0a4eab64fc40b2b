// bench_triage: the tables it prints, writes for programs, and puts into a page.
#include "tests/cli/program.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace {

/// As triage_program, but the program of the benchmarks, which lies beside it.
Ran bench_program(const TemporaryFolder& folder, const std::string& arguments) {
  const std::string program = (std::filesystem::path(program_path()).parent_path() / "bench_triage").string();
  const std::string command = "cd " + shell_quoted(folder.path().string()) + " && " + shell_quoted(program) + " " +
                              arguments + " > out 2> err < /dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(folder / "out"), read_bytes(folder / "err")};
}

}  // namespace

TEST_CASE("T35: bench_triage prints a table, writes it for programs, and brings a page up to date") {
  const TemporaryFolder folder;
  write_bytes(folder / "page.md", "Before.\n<!-- bench slots: begin -->\nold\n<!-- bench slots: end -->\nAfter.\n");
  const Ran ran = bench_program(folder, "--table=slots --json=figures.json --write=page.md");
  REQUIRE(ran.status == 0);
  CHECK(has(ran.out, "merge                              256 slots"));
  const auto figures = parse_json(read_bytes(folder / "figures.json"));
  REQUIRE(figures["tables"]["slots"].size() == 16);
  CHECK(figures["tables"]["slots"][0]["work"] == "new");
  CHECK(!figures["blas"].get<std::string>().empty());
  CHECK(has(ran.err, "10 to 30 times slower than OpenBLAS") == has(figures["blas"].get<std::string>(), "reference"));
  CHECK(figures["tables"]["slots"][0]["took"].get<double>() > 0);
  const std::string page = read_bytes(folder / "page.md");
  CHECK(has(page, "Before.\n<!-- bench slots: begin -->\n"));
  CHECK(has(page, "| merge | 256 slots | "));
  CHECK(has(page, ", " + figures["blas"].get<std::string>() + "; load "));
  CHECK(has(page, "<!-- bench slots: end -->\nAfter.\n"));
  CHECK(!has(page, "old"));
}

TEST_CASE("bench_triage, used wrongly") {
  const TemporaryFolder folder;
  CHECK(bench_program(folder, "--table=nonsense").status == 2);
  CHECK(has(bench_program(folder, "--nonsense").err, "--nonsense: there are --table=NAME"));
  CHECK(has(bench_program(folder, "--list").out, "policy_call"));
  CHECK(has(bench_program(folder, "--list").out, "models "));
  const Ran ran = bench_program(folder, "--table=slots --write=missing.md");
  CHECK(ran.status == 1);
  CHECK(has(ran.err, "cannot read missing.md"));
  write_bytes(folder / "page.md", "No tables.\n");
  const Ran without_marks = bench_program(folder, "--table=slots --write=page.md");
  CHECK(without_marks.status == 1);
  CHECK(has(without_marks.err, "page.md has no marks of these tables"));
}
