// Blocks of `console` in the README and the docs: what `$ triage ...` prints is what follows it, times aside. A block
// of Lua or Python that begins with a comment `-- name.lua` or `# name.py` is that file in the folder where they run.
// `triage repl` is given the lines behind the prompts. Words such as TRIAGE_LOGS=graph before the program are its
// environment. `python3 name.py` runs where TRIAGE_PYTHON names an interpreter with torch.
#include <doctest/doctest.h>

#include <lua.hpp>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <regex>
#include <sstream>

#include "tests/cli/program.h"
#include "tests/paths.h"

namespace {

namespace fs = std::filesystem;

const fs::path root = triage::test::source_dir();

struct Block {
  std::string language, text;
};

std::vector<Block> blocks_of(const fs::path& page) {
  std::vector<Block> blocks;
  std::istringstream lines(read_bytes(page.string()));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("```", 0) == 0) {
      if (!inside) blocks.push_back({line.substr(3), ""});
      inside = !inside;
    } else if (inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

struct Command {
  std::string environment, line, input, output;
};

Command command_of(const std::string& text) {
  std::smatch parts;
  std::regex_match(text, parts, std::regex("((?:[A-Z_]+=\\S* )*)(.*)"));
  return {parts[1], parts[2], "", ""};
}

/// The commands of a block, each with what is typed and what is printed.
std::vector<Command> commands_of(const std::string& text) {
  std::vector<Command> commands;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("$ ", 0) == 0) {
      commands.push_back(command_of(line.substr(2)));
      continue;
    }
    REQUIRE_FALSE(commands.empty());
    const bool is_repl = commands.back().line == "triage repl";
    const size_t prompt = !is_repl ? 0 : line.rfind(">> ", 0) == 0 ? 3 : line.rfind("> ", 0) == 0 ? 2 : 0;
    (prompt ? commands.back().input : commands.back().output) += line.substr(prompt) + "\n";
  }
  return commands;
}

/// What a shell is to run for the first word of a command; nothing where it is not there.
std::optional<std::string> program_of(const std::string& word) {
  if (word == "triage") return shell_quoted(program_path());
  REQUIRE(word == "python3");
  const char* python = std::getenv("TRIAGE_PYTHON");
  if (!python || !*python) return std::nullopt;
  return "env -u LD_LIBRARY_PATH " + shell_quoted(python);
}

/// How many calls of `triage incident` there were, and when, is a matter of time, too.
std::string without_counts_of_incidents(const std::string& text) {
  const std::string barless = std::regex_replace(text, std::regex("  (\\.|▁|▂|▃|▄|▅|▆|▇|█)+\n"), "\n");
  const std::string rowless = std::regex_replace(barless, std::regex("( +[0-9]+)+ +[0-9.]+ %"), " N %");
  const std::string countless =
      std::regex_replace(rowless, std::regex("[0-9]+ (decisions|samples|calls|of them repaired)"), "N $1");
  return std::regex_replace(countless, std::regex("[0-9]+ %"), "N %");
}

/// How many samples a search finds depends on the last bits of sums, which are those of the processor.
std::string without_counts_of_samples(const std::string& text) {
  return std::regex_replace(text, std::regex("[0-9]+ (samples?|calls)\\b"), "N $1");
}

/// Of a call that goes over several lines, Lua since 5.4.6 tells another one.
std::string without_lines(const std::string& text) {
  return LUA_VERSION_RELEASE_NUM < 50406 ? text : std::regex_replace(text, std::regex("\\.lua:[0-9]+"), ".lua:N");
}

/// How long things took, and when, is another number each time, and what a graph takes is one of the compiler and the
/// library.
std::string without_measures(const std::string& text) {
  const std::string dateless =
      std::regex_replace(without_lines(text), std::regex("[0-9]{4}-[0-9-]+T[0-9:.]+Z"), "TIME");
  const std::string timeless = std::regex_replace(dateless, std::regex("\\b\\d\\d:\\d\\d:\\d\\d\\b"), "T");
  // How many calls a canary has answered before it goes live is a matter of time, too; and whether the log kept up.
  const std::string whole =
      std::regex_replace(timeless, std::regex("\n[0-9]+ lines? not in the log: too many waited"), "");
  const std::string countless = std::regex_replace(whole, std::regex("[0-9]+ calls, [0-9]+ of [0-9]+ samples flagged"),
                                                   "N calls, N of N samples flagged");
  return std::regex_replace(countless, std::regex("[0-9.e+]+ (us\\b|ms\\b|kB\\b)"), "T $1");
}

/// One command in the folder, as a shell runs it, with `triage` the program that was built.
std::string run(const TemporaryFolder& folder, const std::string& program, const Command& command) {
  TemporaryFolder streams;
  write_bytes(streams / "in", command.input);
  const std::string line = "cd " + shell_quoted(folder.path().string()) + " && " + command.environment + program +
                           command.line.substr(command.line.find(' ')) + " < " + shell_quoted(streams / "in") + " > " +
                           shell_quoted(streams / "out") + " 2>&1";
  const int status = std::system(line.c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) < 2);
  return read_bytes(streams / "out");
}

}  // namespace

TEST_CASE("what the docs show at a console is what the program prints") {
  int ran = 0;
  std::vector<fs::path> pages = {root / "README.md"};
  for (const auto& page : fs::directory_iterator(root / "docs"))
    if (page.path().extension() == ".md") pages.push_back(page.path());
  for (const fs::path& page : pages) {
    CAPTURE(page.string());
    TemporaryFolder folder;
    fs::create_directory_symlink(root / "scripts", folder / "scripts");
    fs::create_directory_symlink(root / "examples", folder / "examples");
    for (const Block& block : blocks_of(page)) {
      std::smatch name;
      if ((block.language == "lua" || block.language == "python") &&
          std::regex_search(block.text, name, std::regex("^(?:--|#) (\\w+\\.(?:lua|py))(?: \\(what not to do\\))?\n")))
        write_bytes(folder / name[1], block.text);
      if (block.language != "console") continue;
      for (const Command& command : commands_of(block.text)) {
        CAPTURE(command.line);
        const std::optional<std::string> program = program_of(command.line.substr(0, command.line.find(' ')));
        if (!program) continue;
        const std::string there = folder.path().string();  // which the pages call /srv
        std::string printed = run(folder, *program, command);
        for (size_t at; (at = printed.find(there)) != std::string::npos;) printed.replace(at, there.size(), "/srv");
        const auto is = [&](const char* name) { return command.line.rfind(name, 0) == 0; };
        const auto comparable = [&](const std::string& text) {
          const std::string measureless = without_measures(text);
          if (is("triage verify")) return without_counts_of_samples(measureless);
          return is("triage incident") ? without_counts_of_incidents(measureless) : measureless;
        };
        if (!command.output.empty()) CHECK(comparable(printed) == comparable(command.output));
        ++ran;
      }
    }
  }
  CHECK(ran >= 10);
}
