// `triage verify`: the laws of a recovery policy, as text, as JSON, as an exit status, and as tests of `triage test`.
#include "tests/cli/scene.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace {

constexpr const char* unit = R"(return policy {
  name = "unit", inputs = {"x"}, outputs = {"x", "f"}, verify = {unchanged = false, stable = false},
  run = function(x)
    local f = flag_nan_and_inf(x, "features")
    x, f = fix(x, f, "features")
    return x / x:norm(2, -1, true), f
  end,
  tests = {{name = "rows of length 1", args = function() return torch.tensor({{3.0, 4.0}, {0/0, 1.0}}) end,
            check = function(x) return x[0]:equal(torch.tensor({0.6, 0.8})) end}},
}
)";

bool says(const Ran& ran, const std::string& part) { return ran.out.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("verify shows each broken law with its line and the smallest sample") {
  const PolicyFolder folder(unit);
  const Ran ran = folder({"verify", "repair.lua"});
  CAPTURE(ran.out);
  CAPTURE(ran.err);
  CHECK(ran.status == 1);
  CHECK(ran.out.rfind("unit: ", 0) == 0);
  CHECK(says(ran, "  answers    held\n"));
  CHECK(says(ran, "  finite     BROKEN. The law: NaN and Inf leave only with a record that tells of them"));
  CHECK(says(ran, "    x leaves with NaN; its record is clean\n"));
  CHECK(says(ran, "      repair.lua:6  aten::div.Tensor  return x / x:norm(2, -1, true), f\n"));
  CHECK(says(ran, "      x = torch.tensor({{0.0}})\n"));
  CHECK(says(ran, "  unchanged  not promised\n"));
  CHECK(says(ran, "  isolated   held\n"));

  const Ran fine = Scene()({"verify", "repair.lua", "--input", "z=randn:3x2", "--search", "64"});
  CAPTURE(fine.out);
  CHECK(fine.status == 0);
  CHECK_FALSE(says(fine, "BROKEN"));
}

TEST_CASE("verify --json, --law") {
  const PolicyFolder folder(unit);
  const Ran ran = folder({"verify", "repair.lua", "--json", "--law", "finite"});
  REQUIRE(ran.status == 1);
  const auto json = ran.json();
  CHECK(keys_of(json) == std::vector<std::string>{"calls", "laws", "left_out", "ok", "policy", "samples"});
  CHECK(json["ok"] == false);
  REQUIRE(json["laws"].size() == 1);
  const auto& finite = json["laws"][0];
  CHECK(finite["law"] == "finite");
  CHECK(finite["verdict"] == "broken");
  const auto& violation = finite["violations"][0];
  CHECK(violation["line"] == 6);
  CHECK(violation["operator"] == "aten::div.Tensor");
  CHECK(violation["inputs"]["x"]["values"] == nlohmann::json::parse("[[0.0]]"));
  CHECK(violation["inputs"]["x"]["shape"] == nlohmann::json::parse("[1, 1]"));
}

TEST_CASE("verify: wrong use") {
  check_message(Scene()({"verify", "repair.lua", "--input", "z=ones:2x2", "--law", "finit"}), 2, "triage verify",
                {"--law finit: there is no such law; did you mean", "finite"});
  check_message(Scene()({"verify", "repair.lua", "--input", "z=ones:2x2", "--shared", "w"}), 2, "triage verify",
                {"--shared w: repair.lua has no such input"});
  check_message(Scene()({"verify", "repair.lua"}), 2, "triage verify", {"--input"});
  CHECK(Scene()({"verify", "repair.lua", "--input", "z=ones:0x2"}).status == 2);
  const PolicyFolder square(R"(return policy {
  signature = {z = Tensor(float32_t, {"N", "N"})},
  run = function(z) local f = flag_nan_and_inf(z, "a") return fix(z, f, "a"), f end,
})");
  check_message(square({"verify", "repair.lua"}), 2, "triage verify",
                {"the declared type of 'z' ties dimension 1 to the number of samples (\"N\")"});
}

TEST_CASE("verify shows the fewest samples of a leak, also where an input that all share is the first") {
  const PolicyFolder folder(R"(return policy { inputs = {"w", "z"}, outputs = {"y", "f"}, run = function(w, z)
  local f = flag_nan_and_inf(z, "z")
  return (z - z:roll({1}, {0})) * w, f
end})");
  const Ran ran =
      folder({"verify", "repair.lua", "--input", "w=ones:4", "--input", "z=randn:3x4", "--shared", "w", "--json"});
  const auto json = ran.json();
  for (const auto& law : json["laws"]) {
    if (law["law"] != "isolated") continue;
    REQUIRE(law["verdict"] == "broken");
    CHECK(law["violations"][0]["inputs"]["w"]["shape"] == nlohmann::json::parse("[4]"));
    CHECK(law["violations"][0]["inputs"]["z"]["shape"][0] == 2);
    return;
  }
  FAIL("the law `isolated` was not tried");
}

TEST_CASE("triage test tries the laws that a policy promises") {
  const PolicyFolder folder(unit);
  const Ran ran = folder({"test", "repair.lua"});
  CAPTURE(ran.out);
  CHECK(ran.status == 1);
  CHECK(says(ran, "  ok      verify: answers\n"));
  CHECK(says(ran, "  FAIL    verify: finite\n"));
  CHECK(says(ran, "x leaves with NaN; its record is clean, by aten::div.Tensor in repair.lua:6"));
  CHECK_FALSE(says(ran, "verify: unchanged"));
}
