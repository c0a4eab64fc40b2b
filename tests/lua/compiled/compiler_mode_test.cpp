// Whether `fused` may use a C++ compiler: what hosts and scripts say, and what runs then.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/runtime.h>

#include <cstdlib>
#include <string>

#include "tests/lua/lua_fixture.h"

namespace {

using triage::CompilerMode;
using triage::Policy;
using triage::Runtime;
using triage::RuntimeOptions;

RuntimeOptions quiet_with(CompilerMode compiler) {
  RuntimeOptions options;
  options.compiler = compiler;
  options.log = [](const triage::LogRecord&) {};
  return options;
}

/// A loop that no other test asks for.
std::string scaling_source(double factor) {
  return "return function(z) return (z * " + std::to_string(factor) + " + 0.5):abs():sqrt() end";
}

}  // namespace

TEST_CASE("a host that says nothing runs tapes, and no kernel") {
  Runtime runtime(quiet_with(RuntimeOptions().compiler));
  const Policy policy = runtime.load_source(scaling_source(1.0625), "quiet.lua");
  const at::Tensor z = at::randn({33, 70});
  const at::Tensor first = policy.run({z})[0];
  policy.prepare({z});  // there is nothing to wait for
  CHECK(policy.cache().loops.tapes == 1);
  CHECK(policy.cache().loops.kernels == 0);
  CHECK(policy.run({z})[0].equal(first));
}

TEST_CASE("the call that captures has the bits of all later ones, with and without a compiler") {
  const at::Tensor z = at::randn({33, 300});
  const std::string text = "return function(z) return (z * 1.75):exp() / (z:tanh() + 2) end";
  Runtime without(quiet_with(CompilerMode::off)), with(quiet_with(CompilerMode::wait));
  const Policy tapes = without.load_source(text, "bits.lua"), kernels = with.load_source(text, "bits.lua");
  const at::Tensor first = tapes.run({z})[0];
  for (int call = 0; call < 3; ++call) {
    CHECK(tapes.run({z})[0].equal(first));
    CHECK(kernels.run({z})[0].equal(first));
  }
  CHECK(kernels.cache().loops.count() == 1);
  if (!std::getenv("TRIAGE_CXX")) CHECK(kernels.cache().loops.kernels == 1);  // without a background thread to wait for
}

TEST_CASE("a policy cannot ask for more than its host allows") {
  const auto asks = [](const std::string& mode) {
    return "local f = triage.compile(function(z) return z * 3 + 1 end, {compiler = '" + mode +
           "'}) return function(z) return f(z) end";
  };
  Runtime off(quiet_with(CompilerMode::off)), background(quiet_with(CompilerMode::background));
  CHECK_THROWS_WITH_AS(off.load_source(asks("background"), "asks.lua"),
                       doctest::Contains("the host's RuntimeOptions::compiler is off"), triage::LoadError);
  CHECK_THROWS_AS(background.load_source(asks("wait"), "asks.lua"), triage::LoadError);
  const at::Tensor z = at::ones({2, 3});
  CHECK(off.load_source(asks("off"), "asks.lua").run({z})[0].equal(z * 3 + 1));
  CHECK(background.load_source(asks("background"), "asks.lua").run({z})[0].equal(z * 3 + 1));
}

TEST_CASE("names of modes") {
  for (const CompilerMode mode : {CompilerMode::off, CompilerMode::background, CompilerMode::wait})
    CHECK(triage::compiler_mode_from(triage::compiler_mode_name(mode)) == mode);
  CHECK_THROWS_WITH_AS(triage::compiler_mode_from("on"), doctest::Contains("there are off, background, wait"),
                       triage::ConfigError);
  triage::lua::testing::Fixture lua;
  CHECK(lua.error_of("triage.compile(function(x) return x end, {compiler = 'never'})").find("off, background, wait") !=
        std::string::npos);
}
