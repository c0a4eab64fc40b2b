// Traces (TRIAGE_TRACE) and the page that `triage report` makes of them: what is in both, hostile names, damaged files,
// and the page in a browser.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/browser.h"
#include "tests/cli/program.h"
#include "tests/cli/variable.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A break, recompiles, gradients, and a backend that fails on purpose.
constexpr const char* reported_script = R"(-- made.lua
local scaled = triage.compile(function(x)
  local y = (x * 2):tanh()
  for i = 0, x:size(0) - 1 do y = y + i end
  return y
end, {name = "scaled"})
for rows = 2, 4 do scaled(torch.ones({rows, 3})) end
local broken = triage.compile(function(x)
  local y = x + 1
  if y:sum():item() > 0 then y = y * 2 end
  return y:relu()
end, {name = "broken", warn = false})
for call = 1, 3 do broken(torch.ones({2, 3})) end
local trained = triage.compile(function(x) return (x * x):exp():sum() end, {name = "trained"})
trained(torch.ones({4}, {requires_grad = true})):backward()
triage.compile(function(x) return x:erf() end, {name = "failing", backend = "faulty_compile:erf", warn = false})(torch.ones({2}))
)";

constexpr const char* reported_policy = R"(return policy {
  name = "repair",
  run = function(z)
    local f = flag_nan(z, "encoder")
    return fix(z, f, "z"), f
  end,
}
)";

/// What a hostile script and its file may be called.
const std::string hostile_name = "</script><script>document.title='owned'</script>";

/// In `folder`, with its trace in `folder`/traces.
Ran traced(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  const Variable trace("TRIAGE_TRACE", "traces");
  const Ran ran = triage_program(folder, arguments);
  CHECK_MESSAGE(ran.status == 0, ran.err);
  return ran;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  return found;
}

std::vector<Json> events_of(const fs::path& file) {
  std::vector<Json> events;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) events.push_back(parse_json(line));
  return events;
}

std::vector<Json> events_of(const fs::path& file, const std::string& kind) {
  std::vector<Json> found;
  for (const Json& event : events_of(file))
    if (event.at("event") == kind) found.push_back(event);
  return found;
}

/// The page of the traces in `folder`, and what the program said of it.
std::pair<std::string, Json> page_of(const TemporaryFolder& folder, const std::string& traces = "traces") {
  const Ran ran = triage_program(folder, {"report", traces, "-o", "page.html", "--json"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return {read_bytes(folder / "page.html"), ran.json()};
}

/// What the page's script reads.
Json data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  return parse_json(page.substr(at, page.find("</script>", at) - at));
}

const char* const header = R"({"event":"trace","format":1,"triage":"0","libtorch":"0","machine":"m","pid":1,"time":1})"
                           "\n";

}  // namespace

TEST_CASE("N01: a trace has graphs, breaks, recompiles, guards, groups, code, failures and times") {
  const TemporaryFolder folder;
  write_bytes(folder / "made.lua", reported_script);
  traced(folder, {"exec", "made.lua"});
  const std::vector<fs::path> files = files_in(folder / "traces");
  REQUIRE(files.size() == 1);
  CHECK(files[0].filename().string().rfind("trace-", 0) == 0);
  const std::vector<Json> events = events_of(files[0]);
  std::map<std::string, int> counts;
  for (const Json& event : events) ++counts[event.at("event").get<std::string>()];
  REQUIRE(events.at(0).at("event") == "trace");
  CHECK(events[0].at("format") == 1);
  CHECK(counts["source"] == 1);
  CHECK(counts["recompile"] == 2);
  CHECK(counts["break"] == 1);
  CHECK(counts["failure"] == 1);
  CHECK(counts["guards"] >= 4);
  CHECK(counts["groups"] >= 3);
  CHECK(counts["code"] >= 2);
  CHECK(counts["phase"] >= 8);
  CHECK(events_of(files[0], "source")[0].at("text") == reported_script);
  const Json broken = events_of(files[0], "break")[0];
  CHECK(broken.at("function") == "broken");
  CHECK(broken.at("id") == "TB0001");
  CHECK(broken.at("at_line") == 10);
  CHECK(has(broken.at("stack").get<std::string>(), "made.lua:10"));
  std::map<std::string, int> stages;
  for (const Json& graph : events_of(files[0], "graph")) {
    ++stages[graph.at("stage").get<std::string>()];
    for (const Json& node : graph.at("nodes")) CHECK(has(node.at(0).get<std::string>(), "::"));
  }
  for (const char* stage : {"captured", "plain ATen", "forward and backward", "forward", "backward"})
    CHECK_MESSAGE(stages[stage] >= 1, stage);
}

TEST_CASE("N01: the report has each graph beside its source, with breaks, recompiles and guards on their lines") {
  const TemporaryFolder folder;
  write_bytes(folder / "made.lua", reported_script);
  write_bytes(folder / "repair.lua", reported_policy);
  traced(folder, {"exec", "made.lua"});
  traced(folder, {"run", "repair.lua", "--input", "z=randn:32x8,nan=3,seed=1"});
  const auto [page, summary] = page_of(folder);
  CHECK(summary.at("processes") == 2);
  CHECK(summary.at("functions") == 5);
  CHECK(summary.at("graphs") >= 7);
  CHECK(summary.at("breaks") == 1);
  CHECK(summary.at("recompiles") == 2);
  CHECK(summary.at("failures") == 1);
  CHECK(summary.at("skipped_lines") == 0);
  CHECK(summary.at("bytes") == page.size());
  CHECK(page.size() < 300'000);
  const size_t address = page.find("://");
  CHECK(page.substr(address, 22) == "://www.w3.org/2000/svg");  // the name of SVG, which nobody loads
  CHECK(page.find("://", address + 1) == std::string::npos);
  const Json data = data_of(page);
  const Json& scaled = data.at("functions").at(0);
  CHECK(scaled.at("name") == "scaled");
  CHECK(scaled.at("line") == 2);
  CHECK(scaled.at("recompiles").at(0).at("line") == 4);  // where the size is read
  const Json& graph = data.at("graphs").at(0);
  const Json& captured = graph.at("stages").at(0);
  CHECK(captured.at("stage") == "captured");
  CHECK(captured.at("nodes").at(0).at(3) == 3);
  CHECK(captured.at("nodes").at(0).at(4) == 0);  // in the first group
  CHECK(captured.at("groups").at(0).at("loops") == true);
  CHECK(std::any_of(graph.at("guards").begin(), graph.at("guards").end(),
                    [](const Json& guard) { return guard.at("line") == 4; }));
  CHECK_FALSE(graph.at("code").empty());
  REQUIRE_FALSE(graph.at("times").empty());
  CHECK(has(graph.at("times").at(0), "made.lua:3"));
  CHECK_FALSE(data.at("spans").empty());
  for (const Json& one : data.at("graphs"))
    if (one.at("name") == "trained") {
      CHECK(one.at("stages").size() == 5);
      CHECK(one.at("stages").at(0).at("groups").size() == 2);
      CHECK_FALSE(one.at("stages").at(4).at("groups").empty());
    }
  CHECK(data.at("policies").at(0).at("name") == "repair");
  const Json& flags = data.at("flags").at(0);
  CHECK(flags.at("series").at(0).at("location") == "encoder");
  CHECK(flags.at("series").at(0).at("code") == "NAN");
  int64_t calls = 0, samples = 0;
  for (const Json& count : flags.at("calls")) calls += count.get<int64_t>();
  for (const Json& count : flags.at("samples")) samples += count.get<int64_t>();
  CHECK(samples == calls * 32);
  CHECK(flags.at("series").at(0).at("total") == calls * 3);
}

TEST_CASE("N01: ten graphs make a page of at most 300 kB") {
  const TemporaryFolder folder;
  std::string ten;
  for (int i = 0; i < 10; ++i)
    ten += "triage.compile(function(x) for i = 1, 12 do x = (x * " + std::to_string(i) +
           " + i):tanh():relu() end return x:softmax(1), flag_nan(x, 'layer') end, {name = 'f" + std::to_string(i) +
           "'})(torch.ones({8, 16}))\n";
  write_bytes(folder / "ten.lua", ten);
  traced(folder, {"exec", "ten.lua"});
  const auto [page, summary] = page_of(folder);
  CHECK(summary.at("graphs") == 10);
  CHECK(page.size() < 300'000);
  MESSAGE("a page of ten graphs has " << page.size() << " bytes");
}

TEST_CASE("N01: names of scripts are text on the page, whatever they are") {
  const TemporaryFolder folder;
  std::string hostile = reported_policy;
  hostile.replace(hostile.find("repair"), 6, hostile_name);
  hostile.replace(hostile.find("encoder"), 7, hostile_name + "<!--");
  write_bytes(folder / "hostile.lua", hostile);
  traced(folder, {"run", "hostile.lua", "--input", "z=randn:32x8,nan=3,seed=1"});
  const auto [page, summary] = page_of(folder);
  CHECK(data_of(page).at("policies").at(0).at("name") == hostile_name);
  size_t ends = 0;
  for (size_t at = page.find("</script>"); at != std::string::npos; at = page.find("</script>", at + 1)) ++ends;
  CHECK(ends == 2);  // of the data, and of the page's own script
  CHECK_FALSE(has(page, "<!--"));
  if (!has_browser()) return;
  const Shown shown = show(folder, "page.html", "");
  CHECK(has(shown.document, "<title>triage report</title>"));
  CHECK(has(shown.document, "&lt;/script&gt;&lt;script&gt;document.title='owned'"));
  CHECK_MESSAGE(shown.complaints.empty(), shown.complaints);
}

TEST_CASE("N01: damaged traces: lines that cannot be read are counted, and the rest is shown") {
  const TemporaryFolder folder;
  const std::string good = R"({"event":"break","function":"f","id":"TB0001","what":"w","t":1})"
                           "\n";
  const std::string deep(100'000, '[');
  write_bytes(folder / "damaged.jsonl",
              header + good + "garbage\n" + "{\"event\":7}\n" + "\xff\xfe\n" + deep + "\n" +
                  R"({"event":"unheard of"})" + "\n" + std::string(17 << 20, 'x') + "\n" + good +
                  R"({"event":"graph","nodes":[1,[2],{"a":3}],"graph":-4})" + "\n" +
                  R"({"event":"flags","policy":3,"calls":1e999})" + "\n" +
                  R"({"event":"flags","counts":[[1,2],["a","b",18446744073709551615]],"t":-1e308})" + "\n" +
                  R"({"event":"captured","seconds":"x","graph":{}})" + "\n" + good.substr(0, 30));
  const auto [page, summary] = page_of(folder, "damaged.jsonl");
  CHECK(summary.at("functions") == 1);
  CHECK(summary.at("breaks") == 1);
  CHECK(summary.at("skipped_lines") == 9);
  const Json data = data_of(page);
  CHECK(data.at("skipped").at("too_long") == 1);
  CHECK(data.at("skipped").at("damaged") == 7);
  CHECK(data.at("functions").at(0).at("breaks").at(0).at("count") == 2);
  const std::string said = triage_program(folder, {"report", "damaged.jsonl", "-o", "page.html"}).out;
  CHECK(has(said, "left out: 7 lines that could not be read\nleft out: 1 line that no triage writes, too long\n"));
  CHECK(has(said, "left out: 1 event with malformed fields\n"));
  CHECK_FALSE(has(said, "no room"));
  if (!has_browser()) return;
  const Shown shown = show(folder, "page.html", "");
  CHECK(has(shown.document, "7 lines of the trace could not be read."));
  CHECK_MESSAGE(shown.complaints.empty(), shown.complaints);
}

TEST_CASE("N01: what is no trace, or one of another format, is an error that says so") {
  const TemporaryFolder folder;
  write_bytes(folder / "other.jsonl", "{\"event\":\"trace\",\"format\":2}\n");
  write_bytes(folder / "text.jsonl", "some text\n");
  write_bytes(folder / "empty.jsonl", "");
  fs::create_directory(folder / "none");
  const auto error_of = [&](const std::string& path) {
    const Ran ran = triage_program(folder, {"report", path, "-o", "page.html"});
    CHECK(ran.status == 2);
    CHECK_FALSE(fs::exists(folder / "page.html"));
    return ran.err;
  };
  CHECK(has(error_of("other.jsonl"), "is a trace of format 2, and this triage reads format 1"));
  CHECK(has(error_of("text.jsonl"), "is no trace"));
  CHECK(has(error_of("empty.jsonl"), "is no trace"));
  CHECK(has(error_of("none"), "has no trace-*.jsonl; run a program with TRIAGE_TRACE=none"));
  CHECK(has(error_of("missing"), "missing"));
  CHECK(has(triage_program(folder, {"report", "text.jsonl"}).err, "--output"));
  // Beside one that can be read, it is told and left out.
  write_bytes(folder / "good.jsonl", header);
  const Ran ran = triage_program(folder, {"report", "other.jsonl", "good.jsonl", "-o", "page.html"});
  CHECK(ran.status == 0);
  CHECK(has(ran.err, "is a trace of format 2"));
}

TEST_CASE("N01: a million events make a page in bounded time and size") {
  const TemporaryFolder folder;
  {
    std::ofstream file(folder / "long.jsonl");
    file << header;
    for (int i = 0; i < 1'000'000; ++i) {
      const std::string t = ",\"t\":" + std::to_string(i * 0.01) + "}\n";
      switch (i % 4) {
        case 0:
          file << R"({"event":"flags","policy":"p","calls":3,"samples":96,"counts":[["a","NAN",2]])" << t;
          break;
        case 1:
          file << R"({"event":"recompile","function":"f","why":"size )" << i << "\"" << t;
          break;
        case 2:
          file << R"({"event":"phase","phase":"capture","function":"f)" << i << R"(","seconds":0.001)" << t;
          break;
        default:
          file << R"({"event":"break","function":"f)" << i << R"(","what":"w")" << t;
      }
    }
  }
  const auto [page, summary] = page_of(folder, "long.jsonl");
  CHECK(summary.at("flags") == 500'000);
  CHECK(page.size() < 3'000'000);
  CHECK(data_of(page).at("skipped").at("left_out") > 400'000);
}

TEST_CASE("a trace that cannot be written is one error, and the run goes on") {
  const TemporaryFolder folder;
  write_bytes(folder / "made.lua", reported_script);
  write_bytes(folder / "file", "");
  for (const char* place : {"file", "file/traces", "/proc/traces"}) {
    const Variable trace("TRIAGE_TRACE", place);
    const Ran ran = triage_program(folder, {"exec", "made.lua"});
    CHECK(ran.status == 0);
    CHECK_MESSAGE(has(ran.err, "is not written any further"), ran.err);
    CHECK(ran.err.find("not written") == ran.err.rfind("not written"));
  }
}

TEST_CASE("N01: the page in a browser: no complaint, and a click on a graph shows its code") {
  if (!has_browser()) return;
  const TemporaryFolder folder;
  write_bytes(folder / "made.lua", reported_script);
  write_bytes(folder / "repair.lua", reported_policy);
  traced(folder, {"exec", "made.lua"});
  traced(folder, {"run", "repair.lua", "--input", "z=randn:32x8,nan=3,seed=1"});
  const std::string page = page_of(folder).first;

  const Shown plain = show(folder, "page.html", "");
  CHECK_MESSAGE(plain.complaints.empty(), plain.complaints);
  CHECK(has(plain.document, "<h3>scaled</h3>"));
  CHECK(has(plain.document, "Graph break TB0001"));
  CHECK(has(plain.document, "id=\"graph-1\""));
  CHECK_FALSE(has(plain.document, "id=\"graph-2\""));  // graphs are drawn when they are asked for
  CHECK(has(plain.document, "aria-label=\"Times of captures and compilations\""));

  const Shown in_times = show_with(folder, page, "", R"(
    document.querySelector('#times a[href="#graph-3"]').dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));)");
  CHECK(has(in_times.document, "id=\"graph-3\""));

  const Shown by_address = show(folder, "page.html", "#graph-2-code");
  CHECK(has(by_address.document, "id=\"graph-2\""));
  CHECK(has(by_address.document, "class=\"fold code\" open"));

  const Shown clicked = show_with(folder, page, "", R"(
    document.querySelector('.tabs a[href="#graph-2"]').click();
    addEventListener('hashchange', () => setTimeout(() => {
      document.querySelector('#graph-2 .code summary').click();
      document.title = document.querySelector('#graph-2 .code').open + ': ' + document.querySelector('#graph-2 .code pre').textContent.includes('tape of');
    }));)");
  CHECK_MESSAGE(has(clicked.document, "<title>true: true</title>"), clicked.complaints);
  CHECK_MESSAGE(clicked.complaints.empty(), clicked.complaints);

  const Shown broken = show_with(folder, page, "", "missing();");  // that complaints are heard at all
  CHECK(has(broken.complaints, "missing is not defined"));
  const Shown loads = show_with(folder, page, "", "fetch('file:///etc/hostname');");
  CHECK(has(loads.complaints, "Content Security Policy"));
}
