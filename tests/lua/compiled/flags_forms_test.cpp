// Which tensors count as flags: what a script answers does not depend on what else ran in the process.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <string>
#include <vector>

namespace {

/// Widths that no other test has: what one script learns stays in the process.
const std::string asks = "return function(f) return err.is_ok(f) end";
std::string makes(int slots) {
  return "local config = ErrorConfig{num_slots = " + std::to_string(slots) +
         "} "
         "return function(f) return err.push(f, err.NAN, 1, {config = config}), err.is_ok(f) end";
}
const std::string declares =
    "return policy {signature = {f = Tensor(error_t)}, run = function(f) return err.is_ok(f) end}";

std::string outcome(triage::Runtime& runtime, const std::string& source, const at::Tensor& f) {
  try {
    auto policy = runtime.load_source(source, "forms.lua");
    for (int call = 0; call < 3; ++call) policy.run({f});
  } catch (const std::exception& error) {
    return std::string(error.what()).find("not a flags tensor") == std::string::npos ? error.what() : "refused";
  }
  return "taken";
}

}  // namespace

TEST_CASE("a script is answered the same, whatever ran before it in the process") {
  triage::Runtime first, second;
  for (const at::ScalarType carrier : {at::kLong, at::kInt}) {
    const at::Tensor f = at::zeros({3, 5101}, carrier);  // 20404 slots of int64, 10202 of int32
    const std::string own = makes(carrier == at::kLong ? 20404 : 10202);
    CHECK(outcome(first, asks, f) == "refused");
    if (carrier == at::kLong) CHECK(outcome(second, own, f) == "taken");
    triage::ErrorConfig elsewhere;  // by the host
    elsewhere.flag_dtype = carrier;
    elsewhere.num_slots = carrier == at::kLong ? 20404 : 10202;
    elsewhere.validate();
    triage::err::new_t(2, {.config = elsewhere});
    CHECK(outcome(first, asks, f) == "refused");
    CHECK(outcome(second, asks, f) == "refused");
    triage::Runtime third;
    CHECK(outcome(third, asks, f) == "refused");
  }
}

TEST_CASE("the configuration in force decides, and an input that is declared as flags is some") {
  triage::Runtime runtime;
  const at::Tensor f = at::zeros({3, 4}, at::kLong), narrow = at::zeros({3, 2}, at::kLong);
  CHECK(outcome(runtime, asks, f) == "taken");
  {
    triage::ErrorConfig config;
    config.num_slots = 8;
    const triage::ScopedConfig scope(config);
    CHECK(outcome(runtime, asks, narrow) == "taken");
    CHECK(outcome(runtime, declares, narrow) == "taken");
  }
  CHECK(outcome(runtime, asks, narrow) == "refused");
  CHECK(outcome(runtime, declares, at::zeros({3, 8}, at::kInt)) == "taken");  // 16 slots in words of two
  CHECK(outcome(runtime, asks, at::zeros({3, 8}, at::kInt)) == "refused");
}
