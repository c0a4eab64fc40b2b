// `triage statistics`: of policies, TorchScript models and files, as a table, JSON, metrics and a page.
#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "tests/cli/browser.h"
#include "tests/cli/policy_folder.h"
#include "tests/cli/scene.h"

#include <doctest/doctest.h>

namespace {

using Json = nlohmann::json;

constexpr const char* half_policy = R"(return policy {
  inputs = { "z", "ids" }, outputs = { "y", "f" }, params = { scale = 100.0 },
  run = function(z, ids, p)
    local h = z:to(torch.float16) * p.scale
    local y = h:view({-1}):view(z:size())
    local f = flag_nan_and_inf(y, "logits")
    return y, f
  end,
}
)";

const std::vector<std::string> half_inputs = {"-i", "z=ones:4x8", "-i", "ids=arange:4,dtype=int64"};

Ran statistics(const PolicyFolder& triage, std::vector<std::string> more,
               const std::vector<std::string>& inputs = half_inputs) {
  std::vector<std::string> arguments = {"statistics", "repair.lua"};
  arguments.insert(arguments.end(), inputs.begin(), inputs.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return triage(arguments);
}

torch::jit::Module half_model() {
  torch::jit::Module block("Block"), net("Net");
  block.register_parameter("scale", at::full({4}, 100.0), /*is_buffer=*/false);
  block.define(R"(
    def forward(self, x):
        return (x * self.scale).half()
  )");
  net.register_module("block", block);
  net.register_module("unused", block.clone());
  net.define(R"(
    def forward(self, x, times: float = 1.0):
        return {"y": self.block.forward(x).float() * times}
  )");
  return net;
}

}  // namespace

TEST_CASE("statistics of a policy: its inputs and the results of each line") {
  const PolicyFolder triage(half_policy);
  const Ran ran = statistics(triage, {"--param", "scale=40000"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.out ==
        "repair, 1 call\n"
        "location                dtype    batches  values    min    max  of limit  near limit  saturated  zero  NaN  "
        "Inf\n"
        "repair.lua:4 aten::mul  float16        1      32  40000  40000    61.1 %     100.0 %        0 %   0 %    0    "
        "0\n"
        "repair.lua:4 aten::to   float16        1      32      1      1    <0.1 %         0 %        0 %   0 %    0    "
        "0\n"
        "input z                 float32        1      32      1      1    <0.1 %         0 %        0 %   0 %    0    "
        "0\n");
}

TEST_CASE("statistics of several calls as JSON, with what overflows first") {
  const PolicyFolder triage(half_policy);
  const Ran ran = statistics(
      triage, {"--param", "scale=60000", "--json"},
      {"-i", "z=ones:4x8", "-i", "z=randn:2x8,seed=1,nan=1", "-i", "z=zeros:0x8", "-i", "ids=arange:4,dtype=int64"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  const Json json = ran.json();
  CHECK(json["policy"] == "repair");
  CHECK(json["calls"] == 3);
  CHECK(json["error"].is_null());
  const Json& nearest = json["statistics"][0];
  CHECK(nearest["location"] == "repair.lua:4 aten::mul");
  CHECK(nearest["limit"] == 65504.0);
  CHECK(nearest["batches"] == 3);
  CHECK(nearest["values"] == 48);
  CHECK(nearest["nan"] == 1);
  CHECK(nearest["inf"] > 0);
  for (const Json& one : json["statistics"]) CHECK_FALSE(has(one["location"], "view"));
}

TEST_CASE("statistics of a call that fails: what came before, and status 1") {
  const PolicyFolder triage("return function(z) local y = z * 2 error('no weather') return y end");
  const Ran ran = triage({"statistics", "repair.lua", "-i", "z=ones:4x8"});
  CHECK(ran.status == 1);
  CHECK(has(ran.out, "repair.lua:1 aten::mul"));
  CHECK(has(ran.out, "the call failed"));
  CHECK(has(ran.out, "no weather"));
  CHECK(triage({"statistics", "repair.lua", "-i", "z=ones:4x8", "--json"}).json()["error"].is_string());
}

TEST_CASE("statistics of a TorchScript model: its modules, and those that cannot be counted") {
  const PolicyFolder triage(half_policy);
  half_model().save(triage.folder / "model.pt");
  const Ran ran = triage({"statistics", "model.pt", "-i", "x=ones:3x4", "-i", "x=zeros:5x4", "--param", "times=2"});
  CAPTURE(ran.err);
  CHECK(ran.status == 0);
  CHECK(ran.out ==
        "model.pt, 2 calls\n"
        "location  dtype    batches  values  min  max  of limit  near limit  saturated    zero  NaN  Inf\n"
        "block     float16        2      32    0  100     0.2 %         0 %        0 %  62.5 %    0    0\n"
        "root      float32        2      32    0  200    <0.1 %         0 %        0 %  62.5 %    0    0\n"
        "not counted, because the model never calls them as modules: unused\n");
}

TEST_CASE("statistics go through a file, to metrics and to a page") {
  const PolicyFolder triage(half_policy);
  const Ran ran = statistics(triage, {"--param", "scale=40000", "--json", "--metrics", "m.prom"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  write_bytes(triage.folder / "s.json", ran.out);
  CHECK(has(read_bytes(triage.folder / "m.prom"),
            "triage_value_of_limit{location=\"repair.lua:4 aten::mul\",dtype=\"float16\"} 0.6106"));
  const Ran again = triage({"statistics", "s.json", "--html", "page.html", "--metrics", "again.prom"});
  CHECK(again.status == 0);
  CHECK(has(again.out, "repair.lua:4 aten::mul  float16"));
  CHECK(has(again.out, "page written to page.html"));
  CHECK(read_bytes(triage.folder / "again.prom") == read_bytes(triage.folder / "m.prom"));
  const std::string page = read_bytes(triage.folder / "page.html");
  CHECK_FALSE(has(page, "http-equiv=\"refresh\""));
  CHECK(has(page, "statistics.js") == false);
  if (!has_browser()) return;
  const Shown shown = show_with(triage.folder, page, "",
                                "setTimeout(() => { document.title = ['.chart rect.bar', '.chart line.near', "
                                "'.numbers-table tr'].map(what => document.querySelectorAll(what).length).join(' ') + "
                                "' ' + document.querySelector('.chart td').textContent; }, 500)");
  CHECK(shown.complaints.empty());
  std::smatch title;
  REQUIRE(std::regex_search(shown.document, title, std::regex("<title>(\\d+) (\\d+) (\\d+) (.*)</title>")));
  CHECK(title[1] == "3");
  CHECK(title[2] == "3");
  CHECK(title[3] == "4");
  CHECK(title[4] == "repair.lua:4 aten::mulfloat16");  // the nearest one first
  CHECK(has(shown.document, "61.1 %"));
}

TEST_CASE("the page of statistics shows names as text, and statistics of nothing") {
  const PolicyFolder triage(half_policy);
  write_bytes(
      triage.folder / "s.json",
      R"({"statistics":[{"location":"</script><img src=x onerror=alert(1)>","dtype":"other","limit":448,"batches":1,)"
      R"("values":2,"min":null,"max":null,"of_limit":0,"near_limit":2,"saturated":2,"zeros":0,"nan":0,"inf":2}]})");
  const Ran ran = triage({"statistics", "s.json", "--html", "page.html"});
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  write_bytes(triage.folder / "none.json", R"({"statistics":[]})");
  CHECK(has(triage({"statistics", "none.json", "--html", "none.html"}).out, "no values of floating dtypes"));
  if (!has_browser()) return;
  const Shown shown = show(triage.folder, "page.html", "");
  CHECK(shown.complaints.empty());
  CHECK(has(shown.document, "&lt;img src=x"));
  CHECK(has(shown.document, "over the limit, 2 Inf"));
  CHECK(show(triage.folder, "none.html", "").complaints.empty());
}

TEST_CASE("statistics: wrong use") {
  const PolicyFolder triage(half_policy);
  const auto message = [&](const std::vector<std::string>& arguments, std::vector<const char*> parts) {
    const Ran ran = triage(arguments);
    CHECK(ran.status == 2);
    for (const char* part : parts) CHECK_MESSAGE(has(ran.err, part), ran.err);
  };
  message({"statistics"}, {"triage statistics: ", "POLICY"});
  message({"statistics", "none.lua"}, {"none.lua"});
  message({"statistics", "repair.lua"}, {"z"});
  message({"statistics", "repair.lua", "--htm", "x"}, {"--htm", "did you mean \"--html\"?"});
  message({"statistics", "repair.lua", "-i", "zz=ones:2x2"}, {"zz", "z"});
  message({"statistics", "none.json"}, {"none.json"});
  const std::pair<const char*, const char*> files[] = {
      {"", "JSON"},
      {"[]", "no list `statistics`"},
      {R"({"statistics":[5]})", "is no object"},
      {R"({"statistics":[{}]})", "has no `location`"},
      {R"({"statistics":[{"location":5}]})", "`location` is no text"},
      {R"({"statistics":[{"location":"a","dtype":"b","limit":"c"}]})", "`limit` is no number"},
      {R"({"statistics":[{"location":"a","dtype":"b","limit":1,"min":0,"max":0,"batches":-1}]})",
       "`batches` is no count"}};
  for (const auto& [content, part] : files) {
    write_bytes(triage.folder / "s.json", content);
    message({"statistics", "s.json"}, {"s.json: ", part});
  }
  message({"statistics", "s.json", "-i", "z=ones:2x2"}, {"--input: s.json holds statistics, and is not called"});
  message({"statistics", "repair.lua", "-i", "z=ones:2x2", "-i", "ids=ones:2", "--html", "no/such/page.html"},
          {"no/such"});
}
