// What belongs to the host of a policy stays as the host has it, in this call and in later ones: inputs, outputs,
// params, gradients, and what functions of the host keep.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <string>

#include "tests/lua/policies/policies.h"

namespace {

using triage::Policy;
using triage::Runtime;
using triage::RuntimeOptions;
using triage::test::backends;
using triage::test::says;

Policy load_on(const std::string& source, const std::string& backend) {
  RuntimeOptions options;
  options.backend = backend;
  return Runtime(options).load_source(source, "host.lua");
}

/// What two calls say, whatever either gives.
std::string error_of_calls(const Policy& policy, const at::Tensor& one, const at::Tensor& two) {
  std::string said;
  for (const at::Tensor& z : {one, two}) {
    try {
      policy.run({z});
    } catch (const triage::Error& error) {
      said += error.what();
    }
  }
  return said;
}

}  // namespace

TEST_CASE("sandbox: an input that a script keeps is not written to in a later call") {
  for (const char* const backend : backends)
    for (const char* const body : {
             "if keep then keep:add_(100) end keep = z return z * 2",
             "if keep then keep[0] = 77 end keep = z:view({-1}) return z * 2",
             "if keep then keep.x[0]:fill_(77) end keep = {x = z:t()} return z * 2",
             "if keep then keep() end keep = function() z:zero_() end return z * 2",
         }) {
      CAPTURE(std::string(backend));
      CAPTURE(std::string(body));
      const Policy policy = load_on("local keep return function(z) " + std::string(body) + " end", backend);
      const at::Tensor one = at::ones({2, 3}), two = at::ones({2, 3});
      CHECK(says(error_of_calls(policy, one, two), "belong to the host"));
      CHECK(one.equal(at::ones({2, 3})));
      CHECK(two.equal(at::ones({2, 3})));
    }
}

TEST_CASE("an output that a script keeps is its own, and the host's is the host's") {
  for (const char* const backend : backends)
    for (const char* const body : {
             "if keep then keep:add_(100) else keep = z * 2 end return keep",
             "if keep then keep[0] = 102 keep[1] = 102 else keep = z * 2 end return keep:view({-1})",
             "if keep then keep.x:add_(100) else keep = {x = z * 2} end return keep.x",
         }) {
      CAPTURE(std::string(backend));
      CAPTURE(std::string(body));
      const Policy policy = load_on("local keep return function(z) " + std::string(body) + " end", backend);
      const at::Tensor first = policy.run({at::ones({2})})[0];
      CHECK(policy.run({at::ones({2})})[0].equal(at::full({2}, 102.0)));
      CHECK(first.equal(at::full({2}, 2.0)));
      first.fill_(7);
      if (says(body, "add_")) CHECK(policy.run({at::ones({2})})[0].equal(at::full({2}, 202.0)));
    }
}

TEST_CASE("sandbox: a gradient of the host is not written to") {
  for (const char* const body : {"local g = z.grad if g then g:add_(100) end return z * 2",
                                 "if keep and keep.grad then keep.grad:add_(100) end keep = z return z * 2"}) {
    const Policy policy = load_on("local keep return function(z) " + std::string(body) + " end", "eager");
    const at::Tensor z = at::ones({2}).requires_grad_(true), other = at::ones({2});
    (z * 3).sum().backward();
    CHECK(says(error_of_calls(policy, z, other), "belong to the host"));
    CHECK(z.grad().equal(at::full({2}, 3.0)));
  }
}

TEST_CASE("a param that is returned is a copy, and no script writes to one") {
  for (const char* const backend : backends)
    for (const char* const result : {"p.a, z + p.a", "p.a:view({1}), z + p.a", "p.a:detach(), z + p.a"}) {
      const Policy policy = load_on("return policy {inputs = {'z'}, params = {a = 1.5}, run = function(z, p) return " +
                                        std::string(result) + " end}",
                                    backend);
      for (int call = 0; call < 4; ++call) {
        const auto outputs = policy.run({at::ones({2})});
        CHECK(outputs[0].sum().item<double>() == 1.5);
        CHECK(outputs[1].equal(at::full({2}, 2.5)));
        outputs[0].fill_(77);
      }
    }
  const Policy writes = load_on(
      "return policy {inputs = {'z'}, params = {a = 1.5}, run = function(z, p) p.a:add_(10) return z + p.a end}",
      "eager");
  CHECK(says(error_of_calls(writes, at::ones({2}), at::ones({2})), "belong to the host"));
}

TEST_CASE("sandbox: what a function of the host keeps is not written to") {
  Runtime runtime;
  const at::Tensor weights = at::ones({2});
  at::Tensor kept;
  runtime.define("weights", [&](const std::vector<at::Tensor>&) { return std::vector<at::Tensor>{weights}; });
  runtime.define("keep", [&](const std::vector<at::Tensor>& arguments) {
    kept = arguments[0];
    return std::vector<at::Tensor>{};
  });
  runtime.define("fresh",
                 [](const std::vector<at::Tensor>& arguments) { return std::vector<at::Tensor>{arguments[0] + 1}; });
  runtime.define("same", [](const std::vector<at::Tensor>& arguments) { return arguments; });
  const auto said = [&](const std::string& body) {
    return error_of_calls(runtime.load_source("return function(z) " + body + " end", body + ".lua"), at::ones({2}),
                          at::ones({2}));
  };
  CHECK(says(said("weights(z):add_(1) return z"), "belong to the host"));
  CHECK(says(said("local y = z * 2 keep(y) y:add_(1) return y"), "belong to the host"));
  CHECK(said("return fresh(z):add_(1)") == "");
  CHECK(said("return same(z * 2):add_(1)") == "");
  CHECK(weights.equal(at::ones({2})));
  CHECK(kept.equal(at::full({2}, 2.0)));
}
