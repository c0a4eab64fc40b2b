// docs/coming-from-pytorch.md: the examples of its tables print what the tables say, and triage says of each mistake
// what the last table says, with file and line.
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <ATen/ATen.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/lua/engine/exec.h"
#include "tests/paths.h"

namespace fs = std::filesystem;

namespace {

std::string page() {
  std::ifstream in(fs::path(triage::test::source_dir()) / "docs/coming-from-pytorch.md");
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

using Row = std::vector<std::string>;

/// The cells of a line of a table; none where it is another line. `\|` is a bar within a cell.
Row cells_of(const std::string& line) {
  Row cells;
  if (line.rfind("| ", 0) != 0) return cells;
  std::string cell;
  for (size_t i = 1; i < line.size(); i++) {
    if (line.compare(i, 2, "\\|") == 0) {
      cell += line[++i];
    } else if (line[i] == '|') {
      cells.push_back(cell.size() > 2 ? cell.substr(1, cell.size() - 2) : "");
      cell.clear();
    } else {
      cell += line[i];
    }
  }
  return cells;
}

/// The rows of all tables whose heading has these words in its last two cells.
std::vector<Row> rows_of(const std::string& second, const std::string& last) {
  std::vector<Row> rows;
  std::istringstream in(page());
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    const Row cells = cells_of(line);
    if (cells.size() < 3) inside = inside && line.rfind("|---", 0) == 0;
    if (cells.size() < 3) continue;
    if (inside) rows.push_back(cells);
    inside = inside || (cells[1] == second && cells[2] == last);
  }
  return rows;
}

/// What stands in backticks, single or double.
std::string code(const std::string& cell) {
  const size_t begin = cell.find_first_not_of('`'), end = cell.find_last_not_of('`');
  const std::string text = begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1);
  const bool doubled = cell.rfind("``", 0) == 0;
  return doubled ? text.substr(1, text.size() - 2) : text;
}

std::string joined(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The text of a mistake: `\n` is a line break, `\u{A0}` a character that nobody sees.
std::string written(const std::string& cell) { return joined(joined(code(cell), "\\n", "\n"), "\\u{A0}", "\xC2\xA0"); }

std::string examples_prelude() {
  const std::string text = page();
  const size_t begin = text.find("```lua\n") + 7;
  return text.substr(begin, text.find("```\n", begin) - begin);
}

std::string standard_output(const std::function<void()>& work, const std::string& file) {
  std::fflush(stdout);
  const int saved = ::dup(1);
  std::FILE* const target = std::fopen(file.c_str(), "w");
  ::dup2(::fileno(target), 1);
  work();
  std::fflush(stdout);
  ::dup2(saved, 1);
  ::close(saved);
  std::fclose(target);
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Folder {
  const fs::path path = fs::temp_directory_path() / ("triage-habits-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

/// What loading and running a policy says: the error of the load, the log, the error of the call.
struct Said {
  std::string error, warning, run;
};

Said said_of(const fs::path& file, const std::string& body) {
  std::ofstream(file) << "return function(z) local y, m, n, g, s\n" << body << "\nreturn z\nend\n";
  Said said;
  triage::RuntimeOptions options;
  options.log = [&](const triage::LogRecord& record) {
    if (record.level == triage::LogLevel::warn) said.warning += std::string(record.text) + "\n";
  };
  triage::Runtime runtime(options);
  try {
    triage::Policy policy = runtime.load(file.string());
    try {
      policy.run({at::ones({3, 4})});
    } catch (const triage::Error& error) {
      said.run = error.what();
    }
  } catch (const triage::Error& error) {
    said.error = error.what();
  }
  return said;
}

}  // namespace

TEST_CASE("the tables of the page for users of PyTorch print what they say") {
  const std::vector<Row> rows = rows_of("here", "prints");
  CHECK(rows.size() > 50);
  const Folder folder;
  std::string script = "local x\n" + examples_prelude();
  for (const Row& row : rows) script += "print('#')print(" + code(joined(row[1], "`, `", ", ")) + ")\n";
  const fs::path file = folder.path / "tables.lua";
  std::ofstream(file) << script;
  int status = 1;
  const std::string printed = standard_output([&] { status = triage::lua::exec_script(file.string(), {}); },
                                              (folder.path / "printed").string());
  CHECK(status == 0);
  std::string expected;
  for (const Row& row : rows) expected += "#\n" + code(row[2]) + "\n";
  CHECK(printed == expected);
}

TEST_CASE("each mistake of the page for users of PyTorch is told with file, line and what to write") {
  const std::vector<Row> rows = rows_of("", "the message has");
  CHECK(rows.size() > 60);
  const Folder folder;
  int number = 0;
  for (const Row& row : rows) {
    const fs::path file = folder.path / ("habit" + std::to_string(++number) + ".lua");
    const Said said = said_of(file, written(row[0]));
    const std::string& text = row[1] == "error" ? said.error : row[1] == "warning" ? said.warning : said.run;
    CAPTURE(row[0]);
    CAPTURE(said.error);
    CAPTURE(said.warning);
    CAPTURE(said.run);
    CHECK(text.find(code(row[2])) != std::string::npos);
    CHECK(text.find(file.filename().string() + ":") != std::string::npos);
    if (row[0].find("else if") == std::string::npos)  // told where the end is missing
      // A call that goes over two lines stands on the first for Lua up to 5.4.5, on the second for newer ones.
      CHECK((text.find(file.filename().string() + ":2") != std::string::npos ||
             (row[0].find("\\n'") != std::string::npos &&
              text.find(file.filename().string() + ":3") != std::string::npos)));
  }
}

TEST_CASE("what the messages say to write works, and nothing is said of it") {
  const Folder folder;
  int number = 0;
  for (const char* body : {"y = z:flip({0})",
                           "y = z:flip({1})",
                           "y = z:flip({-1})[{'...', {torch.None, torch.None, 2}}]",
                           "y = z[{':', 'new'}]",
                           "y = z[{{1, torch.None}}]",
                           "y = z[{0, 1}]",
                           "y = z:t():matmul(z)",
                           "m = (0 < z) & (z < 1)",
                           "m = (z > 0):any()",
                           "if z ~= nil then y = z end",
                           "if #z - 2 ~= 0 then y = z end",
                           "y = z:clamp({min = 0})",
                           "y = torch.maximum(z, z)",
                           "y = z:sqrt()",
                           "y = z:matmul(z:t())",
                           "m = z:eq(1)",
                           "y = z:tile({2, 1})",
                           "y = z['repeat'](z, {2, 1})",
                           "y = torch.cat({z, z}, 1)",
                           "y = torch.zeros({2, 3})",
                           "do return z, z end",
                           "m, n = z:max(1)",
                           "y = torch.zeros_like(z)",
                           "y = torch.relu(z)",
                           "y = z:relu()",
                           "y = math.pi",
                           "y = 2 ^ 3",
                           "m, n = table.unpack(z.shape)",
                           "n = z:size(0)",
                           "y = z:chunk(2)[1]",
                           "m = z.device == 'cpu'",
                           "m = z.device:match('^%a+') == 'cpu'",
                           "for i, x in ipairs({1, 2}) do z = z + x end",
                           "for key, value in pairs({a = 1}) do z = z + value end",
                           "for i = 0, 2 do z = z + i end",
                           "for i, size in ipairs(z.shape) do z = z + size end",
                           "y = torch.tensor({{1, 2}, {3, 4}})",
                           "y = ({z, z})[1]",
                           "g = {a = 1} m = g['a'] ~= nil",
                           "m = z == false",
                           "s = ('x = %g'):format(2)",
                           "y = z -- a comment",
                           "y = z / z:norm(2, 1, true):clamp_min(1e-12)",
                           "y = z:softmax(-1)",
                           "m = torch.is_floating_point(z)",
                           "m = z.shape == z:size() if not m then error('differ') end",
                           "if z.shape ~= {3, 4} then error('differ') end"}) {
    const fs::path file = folder.path / ("instead" + std::to_string(++number) + ".lua");
    const Said said = said_of(file, body);
    CAPTURE(std::string(body));
    CHECK(said.error == "");
    CHECK(said.run == "");
    CAPTURE(said.warning);
    CHECK(said.warning.find(file.filename().string() + ":2:") == std::string::npos);
  }
}

TEST_CASE("correct policies are not warned of habits") {
  const Folder folder;
  for (const char* body :
       {"y = z[{{1, 3}}] n = z.shape[1] m = z ~= z", "local _ <close> = torch.no_grad()",
        "y = (z:max(1))[0] m, n = z:max(1) s = 'a' .. 'b' n = 0/0",
        "y = torch.full_like(z, 0/0) n = z:size()[1] m = z:isnan()", "s = ('%d'):format(3)",
        "y = z:sort() n = {values = z} s = n.values[0]", "while 1 do break end", "y = (z < 1) == (z > 0)",
        "n = #z > 0 and #z or 1", "s = [[1, 2]] s = [[a]]", "y = z\nprint('x')",
        "for i, x in pairs({a = 1}) do n = i end", "torch.no_grad(function() return z end)"}) {
    const fs::path file = folder.path / ("correct" + std::to_string(std::hash<std::string>()(body)) + ".lua");
    const std::string warning = said_of(file, body).warning;
    CAPTURE(warning);
    CHECK(warning.find(file.filename().string() + ":2:") == std::string::npos);
  }
}

TEST_CASE("a source in another encoding is told to be saved as UTF-8") {
  const Folder folder;
  const std::string source = "return function(z)\nreturn z\nend\n";
  std::string wide;
  for (const char c : source) wide += {c, '\0'};
  const auto error_of = [&](const std::string& bytes) -> std::string {
    const fs::path file = folder.path / "encoded.lua";
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      triage::Runtime().load(file.string());
      return "";
    } catch (const triage::Error& error) {
      return error.what();
    }
  };
  CHECK(error_of("\xEF\xBB\xBF" + source) == "");
  CHECK(
      error_of("\xFF\xFE" + wide).find("the file looks like UTF-16 text, not like a script in Lua: save it as UTF-8") !=
      std::string::npos);
  CHECK(error_of(wide).find("the file looks like UTF-16 text, not like a script in Lua: save it as UTF-8") !=
        std::string::npos);
  CHECK(error_of("return function(gr\xF6\xDF)\nreturn 1\nend\n")
            .find("encoded.lua:1: ')' expected (the byte 0xF6 in column 19 is no UTF-8; save the file as UTF-8)") !=
        std::string::npos);
}
