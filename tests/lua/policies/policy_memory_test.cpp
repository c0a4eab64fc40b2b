// What a host says about memory: inputs that it donates, before and after a reload, and outputs that are kept for later
// calls.
#include <ATen/ATen.h>
#include <ATen/native/Resize.h>
#include <doctest/doctest.h>
#include <triage/output_memory.h>
#include <triage/runtime.h>

#include <memory>
#include <string>
#include <utility>

namespace {

using triage::Policy;
using triage::Runtime;

std::string repair_by(const std::string& factor) {
  return "return function(z) return (fix(z * " + factor + ", flag_nan(z, 'z'), 'z')) end";
}

at::Tensor wide_batch(int64_t rows) {
  at::Tensor z = at::ones({rows, 64});
  z[rows / 2][3] = std::numeric_limits<float>::quiet_NaN();
  return z;
}

bool takes_the_memory(const Policy& policy) {
  const at::Tensor z = wide_batch(8);
  return policy.run({z}, {.donate = {0}})[0].data_ptr() == z.data_ptr();
}

}  // namespace

TEST_CASE("prepare makes donated calls ready, too, and writes to nothing") {
  Runtime runtime;
  const Policy policy = runtime.load_source(repair_by("3.25"), "donated.lua");
  const at::Tensor z = wide_batch(8), before = z.clone();
  policy.prepare({z}, {.donate = {0}});
  CHECK(z.nan_to_num(7).equal(before.nan_to_num(7)));
  CHECK(takes_the_memory(policy));
  CHECK_THROWS_AS(policy.prepare({z}, {.donate = {1}}), triage::InputError);
}

TEST_CASE("a version that goes live is ready for donated calls, where there were some") {
  // Calls on trial donate nothing: the version before may have to answer them.
  Runtime runtime({.trial_calls = 0});
  const Policy policy = runtime.load_source(repair_by("4.25"), "donated.lua");
  policy.prepare({wide_batch(8)}, {.donate = {0}});
  CHECK(takes_the_memory(policy));
  REQUIRE((policy.replace(repair_by("5.25")) == triage::Reload::swapped));
  CHECK(takes_the_memory(policy));
  CHECK(policy.graphs().size() == 1);  // the one that was captured before it went live
}

namespace {

struct Prepared {
  std::unique_ptr<Runtime> runtime;
  Policy policy;
  size_t before;  // bytes kept, none of them by the policy
};
constexpr size_t of_one_output = 1024 * 64 * sizeof(float);

Prepared prepared(const char* fallback) {
  auto runtime = std::make_unique<Runtime>();
  const Policy policy = runtime->load_source(repair_by(fallback), "kept.lua");
  policy.prepare({wide_batch(1024)});
  triage::free_idle_output_memory();
  return {std::move(runtime), policy, triage::kept_output_memory()};
}

}  // namespace

TEST_CASE("a host is told what is kept for outputs to come, and may free it") {
  const auto [runtime, policy, before] = prepared("6.25");
  {
    const auto held = policy.run({wide_batch(1024)});
    CHECK(triage::kept_output_memory() == before + of_one_output);
    CHECK(triage::free_idle_output_memory() == 0);  // somebody has it
    CHECK(held[0].nan_to_num(7)[0][0].item<float>() == 6.25);
  }
  CHECK(triage::kept_output_memory() == before + of_one_output);
  CHECK(triage::free_idle_output_memory() == of_one_output);
  CHECK(triage::kept_output_memory() == before);
  CHECK(policy.run({wide_batch(1024)})[0].nan_to_num(7)[0][0].item<float>() == 6.25);
}

TEST_CASE("an output that a host resizes is counted as it was, and none of it stays when it is gone") {
  const auto [runtime, policy, before] = prepared("6.5");
  for (const size_t bytes : {size_t{1} << 20, size_t{0}, size_t{1} << 12}) {
    {
      const auto held = policy.run({wide_batch(1024)});
      at::native::resize_bytes_cpu(held[0].storage().unsafeGetStorageImpl(), bytes);
      CHECK(triage::kept_output_memory() == before + of_one_output);
    }
    policy.run({wide_batch(1024)});
    triage::free_idle_output_memory();
    CHECK(triage::kept_output_memory() == before);
  }
}
