// Kinds of calls that a kernel file names: policies are captured for them while they are loaded.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <string>
#include <vector>

#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/files/checksum.h"
#include "tests/lua/policies/policies.h"

using triage::Policy;
using triage::Runtime;
using triage::test::positive_batch;

namespace {

/// As if a kernel file that was built from this source had been loaded.
void know(const std::string& source, const std::vector<std::vector<std::string>>& kinds) {
  std::vector<triage::KnownCall> calls;
  const std::string hash = triage::files::checksum_text(triage::files::checksum(source));
  for (const auto& inputs : kinds) calls.push_back({hash, inputs});
  triage::fused::add_known_calls(calls);
}

}  // namespace

TEST_CASE("N01: a policy has the graphs of known calls before its first call, and the same answers") {
  const std::string source = "return function(z) return z * 2 + torch.rand_like(z) -- known\n end";
  const at::Tensor expected = Runtime({.seed = 7}).load_source(source).run({positive_batch()})[0];
  know(source, {{"f32[4, 8]"}, {"f64[4, 8] grad"}});
  const Policy policy = Runtime({.seed = 7}).load_source(source);
  CHECK(policy.cache().graphs == 2);
  CHECK(policy.run({positive_batch()})[0].equal(expected));  // no random number was used up
  CHECK(policy.cache().graphs == 2);
  CHECK(Runtime({.backend = "eager"}).load_source(source).cache().graphs == 0);
}

TEST_CASE("N01: known calls that no build writes, or that do not fit the policy, are left out") {
  const std::string source = "return function(z) return z + 1 -- odd\n end";
  know(source, {{},
                {""},
                {"f32"},
                {"f32[-1]"},
                {"f32[3"},
                {"f32[4, 8]", "f32[4, 8]"},
                {"f32[99999999999]"},
                {"f32[9223372036854775807, 9223372036854775807, 4]"},
                {"f32[0, 9223372036854775807, 9223372036854775807]"},
                {"i64[4] grad"},
                {"f32[4, 8] grad grad"},
                {"f32[4, 8][1, 4]"},
                {"f32[4, 8]cuda:7"},
                {"f32[67108865]"},
                {"../../etc/passwd"}});
  const Policy policy = Runtime().load_source(source);
  CHECK(policy.cache().graphs == 0);
  CHECK(policy.run({positive_batch()})[0].equal(positive_batch() + 1));
}

TEST_CASE("N01: a script that fails for made-up inputs is loaded all the same") {
  const std::string source = "return function(z) if z:max():item() < 2 then error('too small') end return z end";
  know(source, {{"f32[4, 8]"}});
  const Policy policy = Runtime().load_source(source);
  CHECK(policy.run({positive_batch() + 5})[0].equal(positive_batch() + 5));
}

TEST_CASE("N01: functions of the host are not called for known calls") {
  const std::string source = "return function(z) return seen(z) -- by the host\n end";
  know(source, {{"f32[4, 8]"}});
  Runtime runtime;
  int calls = 0;
  runtime.define("seen", [&](const std::vector<at::Tensor>& arguments) {
    ++calls;
    return arguments;
  });
  const Policy policy = runtime.load_source(source);
  CHECK(calls == 0);
  policy.run({positive_batch()});
  CHECK(calls == 1);
}

TEST_CASE("N01: what a script remembers is as new after it was captured for known calls") {
  const std::string source = "local calls = 0\nreturn function(z) calls = calls + 1 return z + calls end";
  know(source, {{"f32[4, 8]"}});
  const Policy policy = Runtime().load_source(source);
  CHECK(policy.run({positive_batch()})[0].equal(positive_batch() + 1));
  CHECK(policy.run({positive_batch()})[0].equal(positive_batch() + 2));
}
