// `triage generate`: completion, man pages, and the names of the library. What it writes says what the program is.
#include "tests/cli/policy_folder.h"
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace {

namespace fs = std::filesystem;

struct Generated {
  TemporaryFolder folder;
  Ran ran;
  Generated() : ran(triage_program(folder, {"generate", "share"})) { CHECK(ran.status == 0); }
  std::string operator[](const std::string& file) const {
    CAPTURE(file);
    CHECK(fs::exists(folder / ("share/" + file)));
    return read_bytes(folder / ("share/" + file));
  }
};

bool is_there(const char* program) {
  if (std::system(("command -v " + std::string(program) + " > /dev/null").c_str()) == 0) return true;
  MESSAGE("left out: there is no ", std::string(program));
  return false;
}

/// The commands that `triage --help` lists.
std::vector<std::string> commands() {
  const Ran help = triage_program(TemporaryFolder(), {"--help"});
  std::vector<std::string> names;
  std::istringstream lines(help.out.substr(help.out.find("Subcommands:")));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);)
    if (std::smatch match; std::regex_search(line, match, std::regex("^  ([a-z]+) "))) names.push_back(match[1]);
  REQUIRE(names.size() > 10);
  return names;
}

/// The options that `triage COMMAND --help` lists.
std::vector<std::string> options_of(const std::string& command) {
  const std::string help = triage_program(TemporaryFolder(), {command, "--help"}).out;
  std::vector<std::string> names;
  const std::regex option("\n  (?:-\\w,)?(--[a-z0-9-]+)");
  for (std::sregex_iterator at(help.begin(), help.end(), option), end; at != end; ++at) names.push_back((*at)[1]);
  return names;
}

}  // namespace

TEST_CASE("generate tells each file that it writes, and where it cannot") {
  const Generated generated;
  std::istringstream files(generated.ran.out);
  int count = 0;
  for (std::string file; std::getline(files, file); ++count) CHECK(fs::file_size(generated.folder / file) > 0);
  CHECK(count == static_cast<int>(commands().size()) + 5);  // a page each, that of the program, completion, names
  TemporaryFolder folder;
  write_bytes(folder / "file", "");
  const Ran failed = triage_program(folder, {"generate", "file/below"});
  CHECK(failed.status == 2);
  CHECK(failed.err.find("triage generate: cannot make the folder") == 0);
}

TEST_CASE("completion for bash knows each command, option and word") {
  const Generated generated;
  const std::string script = shell_quoted(generated.folder / "share/bash-completion/completions/triage");
  const auto completed = [&](const std::string& words) {
    const std::string line = "cd / && bash -c " + shell_quoted("source " + script + "; COMP_WORDS=(" + words +
                                                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _triage; "
                                                               "printf '%s ' \"${COMPREPLY[@]}\"");
    CHECK(std::system((line + " > " + shell_quoted(generated.folder / "out")).c_str()) == 0);
    return read_bytes(generated.folder / "out");
  };
  const std::string all = " " + completed("triage ''");
  for (const std::string& command : commands()) {
    CAPTURE(command);
    CHECK(all.find(" " + command + " ") != std::string::npos);
    const std::string options = " " + completed("triage " + command + " -");
    for (const std::string& option : options_of(command)) CHECK(options.find(" " + option + " ") != std::string::npos);
  }
  CHECK(completed("triage d") == "decisions doctor ");
  CHECK(completed("triage help do") == "doctor ");
  CHECK(completed("triage run x.lua --backend e") == "eager ");
  CHECK(completed("triage check et") == "etc ");
  CHECK(completed("triage run --input z = et") == "etc ");
  CHECK(completed("triage run --repeat ''") == " ");
}

TEST_CASE("completion for zsh is a function that zsh can read") {
  const Generated generated;
  const std::string script = generated["zsh/site-functions/_triage"];
  CHECK(script.rfind("#compdef triage\n", 0) == 0);
  for (const std::string& command : commands()) {
    CHECK(script.find("      " + command + ")\n") != std::string::npos);
    for (const std::string& option : options_of(command)) CHECK(script.find(option + "[") != std::string::npos);
  }
  if (is_there("zsh"))
    CHECK(std::system(("zsh -n " + shell_quoted(generated.folder / "share/zsh/site-functions/_triage")).c_str()) == 0);
}

TEST_CASE("man pages: one for the program and each command, with each option, without a warning") {
  const Generated generated;
  const std::string index = generated["man/man1/triage.1"];
  for (const std::string& command : commands()) {
    CAPTURE(command);
    CHECK(index.find("\\fBtriage\\-" + command + "\\fR(1)") != std::string::npos);
    std::string page = generated["man/man1/triage-" + command + ".1"];
    page = std::regex_replace(page, std::regex("\\\\-"), "-");
    for (const std::string& option : options_of(command))
      CHECK(page.find("\\fB" + option + "\\fR") != std::string::npos);
  }
  if (is_there("groff"))
    CHECK(std::system(("groff -man -ww -z " + shell_quoted(generated.folder / "share/man/man1") + "/*.1 2>&1 | tee " +
                       shell_quoted(generated.folder / "warnings") + " | grep . && exit 1; exit 0")
                          .c_str()) == 0);
}

TEST_CASE("annotations have each name of the library, with its kind; so has the configuration for luacheck") {
  const Generated generated;
  // The file is Lua: run in an environment of its own, it makes the tables that it tells of.
  write_bytes(generated.folder / "compare.lua", R"lua(
local told, wrong, seen, count = {}, {}, {}, 0
assert(loadfile("share/triage/lua/triage.lua", "t", told))()
local rc = {}
assert(loadfile("share/triage/luacheckrc", "t", rc))()
local standard = { arg = true }
for name in pairs(_G) do if _ENV[name] == nil then standard[name] = true end end
local lua = { "_G", "_VERSION", "assert", "collectgarbage", "coroutine", "debug", "dofile", "error", "getmetatable", "io",
  "ipairs", "load", "loadfile", "math", "next", "os", "package", "pairs", "pcall", "print", "rawequal", "rawget", "rawlen",
  "rawset", "require", "select", "setmetatable", "string", "table", "tonumber", "tostring", "type", "utf8", "warn", "xpcall" }
for _, name in ipairs(lua) do standard[name] = true end
local function check(value, there, checked, path)
  count = count + 1
  local kind = type(value)
  if (kind == "function" or kind == "table") and type(there) ~= kind then wrong[#wrong + 1] = path .. ": annotations" end
  if checked == nil then wrong[#wrong + 1] = path .. ": luacheckrc" end
  if kind ~= "table" or seen[value] then return end
  seen[value] = true
  for name, field in pairs(value) do
    if type(name) == "string" and name:match("^%a[%w_]*$") then
      local fields = checked and (checked.fields and checked.fields[name] or checked.other_fields and checked)
      check(field, there and there[name], fields or nil, path .. "." .. name)
    end
  end
end
for name, value in pairs(_G) do
  if not standard[name] then check(value, told[name], rc.read_globals[name], name) end
end
for _, name in ipairs({"gather", "where", "sum", "linalg", "randn"}) do
  if told.torch[name] == nil then wrong[#wrong + 1] = "torch." .. name end
end
print(count > 250, #wrong, table.concat(wrong, "\n"))
)lua");
  const Ran ran = triage_program(generated.folder, {"exec", "compare.lua"});
  CAPTURE(ran.err);
  CHECK(ran.out == "true\t0\t\n");
  const std::string annotations = generated["triage/lua/triage.lua"];
  CHECK(annotations.rfind("---@meta\n", 0) == 0);
  CHECK(annotations.size() < 500'000);  // what lua-language-server loads of one file
  // What the golden list of policies has is there, too: they see a part of what scripts see.
  std::istringstream golden(read_bytes(triage::test::source_dir() + "/tests/lua/sandbox/policy_environment.golden"));
  for (std::string path, kind; golden >> path >> kind;)
    if (kind == "function" && path.rfind("err.", 0) == 0)
      CHECK(annotations.find("function " + path + "(") != std::string::npos);
  CHECK(annotations.find("---@overload fun(self: Tensor, dim: integer, index: Tensor, named?: table): Tensor\nfunction "
                         "torch.gather(") != std::string::npos);
  CHECK(annotations.find("\nfunction tensor.sum(") != std::string::npos);
  CHECK(annotations.find("\n---@type dtype\ntorch.float32 = nil\n") != std::string::npos);
}

TEST_CASE("luacheck with the generated configuration finds nothing in the policies that ship, and what is misspelt") {
  if (!is_there("luacheck")) return;
  const Generated generated;
  const std::string luacheck =
      "cd " + shell_quoted(generated.folder.path().string()) + " && luacheck -q --config share/triage/luacheckrc ";
  CHECK(std::system((luacheck + shell_quoted(triage::test::source_dir() + "/scripts/policies") + " > out").c_str()) ==
        0);
  write_bytes(generated.folder / "typo.lua",
              "return function(z)\n  return fxi(z, err.has_nann(z)), torch.sum(z)\nend\n");
  CHECK(std::system((luacheck + "typo.lua > out").c_str()) != 0);
  const std::string said = read_bytes(generated.folder / "out");
  CHECK(said.find("fxi") != std::string::npos);
  CHECK(said.find("has_nann") != std::string::npos);
  CHECK(said.find("torch") == std::string::npos);
}
