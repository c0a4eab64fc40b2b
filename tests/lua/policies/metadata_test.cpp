// What a policy returns, known without a call.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <vector>

TEST_CASE("what a policy returns is known without a call") {
  triage::Runtime runtime;
  const triage::Policy policy = runtime.load_source(R"(
local calls = 0
return policy { inputs = {"z", "w"}, outputs = {"y", "f", "kept"}, state = {n = {shape = {}}}, run = function(z, w, s)
  calls = calls + 1
  return torch.cat({z, w}):to(torch.float64), flag_nan(z, "z"), z[z:isfinite():all(-1)], {n = s.n + calls}
end })",
                                                    "forms.lua");
  const std::vector<triage::TensorMetadata> inputs = {{at::kFloat, {6, 4}}, {at::kFloat, {3, 4}}};
  for (int again = 0; again < 2; ++again) {
    const auto outputs = triage::output_metadata(policy, inputs);
    REQUIRE(outputs.size() == 3);
    CHECK((outputs[0].dtype == at::kDouble));
    CHECK(outputs[0].sizes == std::vector<int64_t>{9, 4});
    CHECK(outputs[1].is_flags);
    CHECK(outputs[1].sizes == std::vector<int64_t>{6, 4});
    CHECK(outputs[2].sizes == std::vector<int64_t>{-1, 4});
  }
  CHECK(policy.statistics().total.calls() == 0);
  CHECK(policy.state().empty());
  policy.run({at::zeros({6, 4}), at::zeros({3, 4})});
  CHECK(triage::output_metadata(policy, {{at::kFloat, {2, 5}}, {at::kFloat, {3, 5}}})[0].sizes ==
        std::vector<int64_t>{5, 5});
  CHECK_THROWS_AS(triage::output_metadata(policy, {inputs[0]}), triage::InputError);
  const triage::Policy fails = runtime.load_source("return function(z)\n  return z:view({-1, 7})\nend", "fails.lua");
  CHECK_THROWS_WITH_AS(triage::output_metadata(fails, {inputs[0]}), doctest::Contains("fails.lua:2"), triage::Error);
}
