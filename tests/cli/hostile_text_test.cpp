// Text that scripts, files and the command line choose, in whatever the program prints: no line of it looks like one of
// the program, such as an event of `triage watch`, and nothing of it moves the cursor of a terminal.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/scene.h"

namespace hostile_text {  // names differ from those of its neighbours, which are compiled together
namespace {

/// A time that no clock shows stands for an event of `triage watch`.
const std::string forged = "99:59:59  promoted  repair.lua  version 9";
const std::string endings[] = {"\n", "\r", "\r\n", "\v", "\f", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
const std::string controls =
    "\x1b[2J\x1b]0;title\x07\b\x7f\xc2\x9b"
    "2J\xe2\x80\xae\xe2\x81\xa6\xff\xc0\x80\t";

std::string hostile_text() {
  std::string text = "a";
  for (const std::string& end : endings) text += end + forged;
  return text + controls + std::string(3000, 'x') + "\n" + forged + "\n";
}

const std::string hostile = hostile_text();

std::string quoted(const std::string& bytes) {
  std::string text = "\"";
  for (const char byte : bytes) text += fmt::format("\\{:03}", static_cast<unsigned char>(byte));
  return text + '"';
}

/// A source with `text` in the place of each $.
std::string with(const std::string& source, const std::string& text = quoted(hostile)) {
  std::string filled;
  for (const char c : source) filled += c == '$' ? text : std::string(1, c);
  return filled;
}

struct Source {
  const char *name, *text;
};

constexpr Source sources[] = {
    {"it prints",
     "print($) return policy {inputs = {'z'}, outputs = {'z'}, run = function(z) print($) return z end,\n"
     "tests = {{name = 't', args = function() print($) return torch.ones({2, 3}) end, check = function() return true "
     "end}}}"},
    {"it raises when it is loaded", "error($)"},
    {"it raises a table when it is loaded", "error(setmetatable({}, {__tostring = function() return $ end}))"},
    {"it raises in calls", "return policy {inputs = {'z'}, outputs = {'z'}, run = function(z) error($) end}"},
    {"its tests fail",
     "return policy {inputs = {'z'}, outputs = {'z'}, run = function(z) return z end,\n"
     "tests = {{name = 'fails', args = function() return torch.ones({2, 3}) end, check = function() error($) end}}}"},
    {"names of tests",
     "return policy {inputs = {'z'}, outputs = {'z'}, run = function(z) return z end,\n"
     "tests = {{name = $, args = function() return torch.ones({2, 3}) end, check = function() error('no') end}}}"},
    {"a location",
     "return policy {inputs = {'z'}, outputs = {'z', 'f'}, run = function(z)\n"
     "local f = flag_nan_and_inf(z, $) return fix(z, f, $, {fallback = 0.0}) end}"},
    {"its name", "return policy {name = $, inputs = {'z'}, outputs = {'z'}, run = function(z) return z end}"},
    {"an input", "return policy {inputs = {$}, outputs = {'z'}, run = function(z) return z end}"},
    {"a param", "return policy {inputs = {'z'}, params = {[$] = 1.0}, run = function(z) return z end}"},
    {"a field", "return policy {inputs = {'z'}, [$] = 1.0, run = function(z) return z end}"},
    {"a module", "local m = require($) return function(z) return z end"},
    {"a file", "local m = torch.load($) return function(z) return z end"},
    {"a global name", "return function(z) return z + _G[$](z) end"},
    {"a method", "return function(z) return z[$](z) end"},
    {"a graph break", "return function(z) if z:sum():item() > 0 then print($) end return z * 2 end"},
};

const std::vector<std::string> commands[] = {
    {"run", "FILE", "-i", "z=ones:2x3,nan=1", "--repeat", "1"},
    {"explain", "FILE", "-i", "z=ones:2x3", "--loops", "--guards"},
    {"check", "FILE"},
    {"test", "FILE"},
};

/// TRIAGE_HOSTILE_TEXT=1: each source with each command. Otherwise each source has two, in turn.
const bool all_of_them = std::getenv("TRIAGE_HOSTILE_TEXT") != nullptr;

/// The first line that something is wrong with, and what.
std::string wrong_line(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (line.starts_with("99:59:59")) return "looks like an event: " + line.substr(0, 200);
    for (size_t i = 0; i < line.size(); ++i) {
      const auto byte = static_cast<unsigned char>(line[i]);
      if ((byte < 0x20 && byte != '\t') || byte == 0x7F) return fmt::format("has the byte {:#x}: {}", byte, i);
    }
    for (const char* const sign :
         {"\xc2\x85", "\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xae", "\xe2\x81\xa6", "\xff", "\xc0\x80"})
      if (has(line, sign)) return fmt::format("has a sign that is not shown as it is, at {}", line.find(sign));
    at = end + 1;
  }
  return "";
}

void check_output(const Ran& ran) {
  CAPTURE(ran.status);
  CHECK(wrong_line(ran.out) == "");
  CHECK(wrong_line(ran.err) == "");
}

Ran run_on(const PolicyFolder& triage, std::vector<std::string> command, const std::string& file, bool json) {
  for (std::string& word : command)
    if (word == "FILE") word = file;
  if (json) command.push_back("--json");
  return triage(command);
}

}  // namespace

TEST_CASE("text of scripts in every command: no line looks like one of the program") {
  for (const Source& source : sources) {
    CAPTURE(source.name);
    const PolicyFolder triage(with(source.text));
    const auto turn = static_cast<size_t>(&source - sources);
    for (size_t i = 0; i < std::size(commands); ++i)
      for (const bool json : {false, true}) {
        if (!all_of_them && i != (turn + json) % std::size(commands)) continue;
        const auto& command = commands[i];
        CAPTURE(command[0]);
        CAPTURE(json);
        const Ran ran = run_on(triage, command, "repair.lua", json);
        check_output(ran);
        if (json) CHECK_NOTHROW(parse_json(ran.out));
      }
  }
}

TEST_CASE("names of files and words of the command line: no line looks like one of the program") {
  std::string name = "f";
  for (const std::string& end : endings) name += end + "99:59:59  promoted";
  name += controls.substr(0, controls.size() - 5) + ".lua";  // without what is no UTF-8
  const PolicyFolder triage("");
  write_bytes(triage.folder / name, "return function(z) return z + unknown end");
  for (const auto& command : commands)
    for (const std::string& file : {name, "none" + name})
      for (const bool json : {false, true}) {
        CAPTURE(command[0]);
        check_output(run_on(triage, command, file, json));
      }
  write_bytes(triage.folder / "good.lua", repair);
  const std::vector<std::string> wrong[] = {{"run", "good.lua", "-i", hostile + "=ones:2"},
                                            {"run", "good.lua", "-i", "z=" + hostile},
                                            {"run", "good.lua", "-i", "z=ones:2", "--param", hostile + "=1"},
                                            {"run", "good.lua", "-i", "z=ones:2", "--backend", hostile},
                                            {"run", "good.lua", "-i", "z=ones:2", "-o", hostile + "=z.pt"},
                                            {"run", hostile},
                                            {hostile},
                                            {"run", "--" + hostile},
                                            {"decisions", hostile},
                                            {"replay", hostile},
                                            {"report", hostile},
                                            {"bundle", "check", hostile},
                                            {"isolate", hostile},
                                            {"verify", hostile},
                                            {"statistics", hostile},
                                            {"minify", hostile},
                                            {"export", hostile},
                                            {"watch", hostile},
                                            {"help", hostile}};
  for (const auto& words : wrong) {
    CAPTURE(words[0]);
    check_output(triage(words));
  }
}

TEST_CASE("what is kept in files and shown later: decisions, capsules, bundles, reports") {
  const PolicyFolder triage(with(sources[6].text));
  const auto both = [&](std::vector<std::string> words) {
    CAPTURE(words[0]);
    check_output(triage(words));
    words.push_back("--json");
    check_output(triage(words));
  };
  triage({"run", "repair.lua", "-i", "z=ones:2x3,nan=1", "--decisions", "d.jsonl", "--capsule", "c.triage"});
  write_bytes(triage.folder / "forged.jsonl",
              nlohmann::json({{"time", hostile}, {"policy", hostile}, {"ids", {hostile}}, {"failure", hostile}})
                      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                  "\n" + hostile);
  for (const char* const log : {"d.jsonl", "forged.jsonl"}) {
    both({"decisions", log});
    both({"decisions", log, "--list"});
    both({"incident", log, "--ids"});
  }
  CHECK(wrong_line(read_bytes(triage.folder / "d.jsonl")) == "");
  both({"replay", "c.triage"});
  both({"isolate", "repair.lua", "-i", "z=ones:2x3"});
  both({"statistics", "repair.lua", "-i", "z=ones:2x3", "--metrics", "m.prom", "--html", "values.html"});
  CHECK(wrong_line(read_bytes(triage.folder / "m.prom") + read_bytes(triage.folder / "values.html")) == "");
  nlohmann::json one = {{"location", hostile}, {"dtype", hostile}, {"limit", 1}, {"min", 0}, {"max", 0}};
  for (const char* count : {"batches", "values", "near_limit", "saturated", "zeros", "nan", "inf"}) one[count] = 1;
  write_bytes(triage.folder / "s.json", nlohmann::json({{"statistics", nlohmann::json::array({one})}})
                                            .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  both({"statistics", "s.json", "--metrics", "m.prom"});
  CHECK(wrong_line(read_bytes(triage.folder / "m.prom")) == "");
  both({"export", "repair.lua", "-i", "z=ones:2x3"});
  both({"run", "repair.lua", "-i", "z=ones:2x3", "--compare", "eager"});
  std::filesystem::create_directory(triage.folder / "b");
  write_bytes(triage.folder / "b/bundle.json",
              nlohmann::json({{"name", hostile}, {"version", hostile}, {"policies", {{hostile, hostile}}}})
                  .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  both({"bundle", "check", "b"});
  std::filesystem::create_directory(triage.folder / "trace");
  shell(triage.folder, "TRIAGE_TRACE=trace \"$triage\" run repair.lua -i z=ones:2x3,nan=1");
  both({"report", "trace", "-o", "page.html"});
  CHECK(wrong_line(read_bytes(triage.folder / "page.html")) == "");
}

TEST_CASE("a log, however it is turned on, has no line that looks like another") {
  for (const Source& source : sources) {
    const auto turn = static_cast<size_t>(&source - sources);
    if (!all_of_them && turn % 6 != 0) continue;
    CAPTURE(source.name);
    const PolicyFolder triage(with(source.text));
    check_output(shell(triage.folder, "TRIAGE_LOGS=all TRIAGE_LOG_FILE=log \"$triage\" run repair.lua -i z=ones:2x3"));
    CHECK(wrong_line(read_bytes(triage.folder / "log")) == "");
  }
}

TEST_CASE("watch: no policy prints or raises an event") {
  for (const bool json : {false, true}) {
    const PolicyFolder triage(with(sources[0].text));
    for (size_t i = 1; i < std::size(sources); ++i)
      write_bytes(triage.folder / fmt::format("p{}.lua", i), with(sources[i].text));
    const std::string log = triage.folder / "log";
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl(
          "/bin/sh", "sh", "-c",
          fmt::format("cd {} && exec {} watch . --debounce 10 {} > log 2>&1",
                      shell_quoted(triage.folder.path().string()), shell_quoted(program_path()), json ? "--json" : "")
              .c_str(),
          nullptr);
      ::_exit(127);
    }
    const auto wait_for = [&](const std::string& text) {
      for (int i = 0; i < 1000 && !has(read_bytes(log), text); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return has(read_bytes(log), text);
    };
    CHECK(wait_for(json ? "p9.lua" : "watching ."));
    write_bytes(triage.folder / "repair.lua", with(sources[0].text) + "\n-- edited");
    CHECK(wait_for("reloaded"));
    write_bytes(triage.folder / "repair.lua", with(sources[1].text));
    CHECK(wait_for("99:59:59"));
    write_bytes(triage.folder / "repair.lua", with(sources[2].text));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::kill(child, SIGINT);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    const std::string text = read_bytes(log);
    CHECK(wrong_line(text) == "");
    CHECK(count_of(text, "\nprint: ") + text.starts_with("print: ") >= 2);
  }
}

}  // namespace hostile_text
