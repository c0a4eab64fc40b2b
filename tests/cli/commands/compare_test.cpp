// `triage run --compare`: where a backend differs from `eager`, as text, as JSON and as an exit status.
#include "tests/cli/scene.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace {

constexpr const char* scaled = R"(return policy {
  name = "scaled", inputs = {"x"}, outputs = {"y"},
  run = function(x)
    local a = torch.exp(x * 0.5) + 1
    return torch.tanh(a / a:sum(-1):unsqueeze(-1))
  end,
}
)";

Ran compared(const std::string& policy, const std::string& backends, std::initializer_list<const char*> more = {}) {
  std::vector<std::string> call = {"run", "repair.lua", "--input", "x=randn:64x300,seed=1", "--compare", backends};
  call.insert(call.end(), more.begin(), more.end());
  return PolicyFolder(policy)(call);
}

}  // namespace

TEST_CASE("D04: run --compare names the first node that is wrong, and its line") {
  const Ran wrong = compared(scaled, "eager,faulty_result:tanh");
  CAPTURE(wrong.out);
  CAPTURE(wrong.err);
  CHECK(wrong.status == 1);
  CHECK(wrong.out.find("capture: the same bits as the script\n") != std::string::npos);
  CHECK(wrong.out.find("faulty_result:tanh: WRONG\n    output y is wrong at element") != std::string::npos);
  CHECK(wrong.out.find("first at %7: \"f32[64, 300]\" = aten::tanh(%6)\n      repair.lua:5\n") != std::string::npos);

  const Ran right = compared(scaled, "aot_eager,fused");
  CAPTURE(right.out);
  CHECK(right.status == 0);
  CHECK(right.out.find("aot_eager: the same bits as eager\n") != std::string::npos);
  CHECK(right.out.find("fused: as exact as eager\n    output y differs by at most") != std::string::npos);
  CHECK(right.out.find("= aten::exp(%") != std::string::npos);
}

TEST_CASE("D04: run --compare --json") {
  const Ran ran = compared(scaled, "faulty_run:tanh,faulty_result:exp,eager,aot_eager", {"--json"});
  CAPTURE(ran.out);
  REQUIRE(ran.status == 1);
  const auto json = nlohmann::json::parse(ran.out);
  CHECK(json["ok"] == false);
  CHECK(json["capture"] == nlohmann::json({{"checked", true}, {"difference", nullptr}}));
  REQUIRE(json["graphs"].size() == 3);
  CHECK(json["graphs"][0]["failure"].get<std::string>().find("on purpose") != std::string::npos);
  CHECK(json["graphs"][1]["result"]["value"] == "output y");
  CHECK(json["graphs"][1]["node"]["line"] == 4);
  CHECK(json["graphs"][2]["ok"] == true);
  CHECK(json["graphs"][2]["result"].is_null());
}

TEST_CASE("D04: run --compare follows graph breaks, and finds a capture that is not the script") {
  const Ran broken = compared(R"(return function(x)
  local y = torch.relu(x) + 1
  triage.graph_break()
  return y * 2
end
)",
                              "fused");
  CAPTURE(broken.out);
  CHECK(broken.status == 0);
  CHECK(broken.out.find("the same bits as the script (1 graph break)") != std::string::npos);
  CHECK(broken.out.find("_segment_2") != std::string::npos);

  const Ran captured = compared(R"(return function(x)
  if triage.is_compiling() then return x + 1 end
  return x
end
)",
                                "fused");
  CAPTURE(captured.out);
  CHECK(captured.status == 1);
  CHECK(captured.out.find("capture: WRONG: output 'out0' differs in sample 0") != std::string::npos);

  const Ran random = compared("return function(x) return torch.rand_like(x) end\n", "fused");
  CAPTURE(random.out);
  CHECK(random.status == 0);
  CHECK(random.out.find("capture: the same bits as the script") != std::string::npos);
  const Ran once_more = compared(R"(return function(x)
  local y = torch.rand_like(x)
  if triage.is_compiling() then torch.rand({1}) end
  return y
end
)",
                                 "fused");
  CAPTURE(once_more.out);
  CHECK(once_more.status == 1);  // its results are right, and those of the next call are not
  CHECK(once_more.out.find("capture: WRONG: output 'out0' differs") != std::string::npos);
}

TEST_CASE("D04: run --compare says what it cannot take") {
  check_message(compared(scaled, "eager"), 2, "triage run", {"--compare eager: name a backend besides eager"});
  check_message(compared(scaled, "fusd"), 2, "triage run", {"there is no backend \"fusd\"", "fused"});
  CHECK(compared(scaled, "fused", {"--repeat", "3"}).status == 2);
}
