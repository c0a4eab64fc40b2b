// What the log of recompiles says of calls under a stance.
#include "tests/lua/lua_fixture.h"

#include <doctest/doctest.h>
#include <triage/compiler_config.h>

#include <string>

using triage::lua::testing::Fixture;
using triage::lua::testing::trusted_options;

TEST_CASE("D17, N01: the log says what a call does that no graph fits, by the stance it is made under") {
  std::string said;
  triage::lua::StateOptions options = trusted_options();
  options.print = [&](const std::string& text) { said += text + "\n"; };
  Fixture lua(std::move(options));
  struct Default {
    ~Default() { triage::set_stance(triage::Stance::default_stance); }
  } const restore;
  lua.run(
      "triage.set_logs({recompiles = true}) f = triage.compile(function(x, n) return x * n end, {name = 'scaled'})");
  const auto told = [&](const std::string& stance, const std::string& call) {
    said.clear();
    lua.run("triage.set_stance('" + stance + "') pcall(f, " + call + ") triage.set_stance('default')");
    return said;
  };
  CHECK(told("default", "torch.ones({2}), 1").empty());
  CHECK(told("default", "torch.ones({2}), 2").find("triage: Recompiling function scaled") == 0);
  CHECK(told("force_eager", "torch.ones({2}), 3").empty());
  CHECK(told("fail_on_recompile", "torch.ones({2}), 4").empty());
  for (const std::string call : {"torch.ones({2}), 5", "torch.ones({2, 2}), 1"}) {
    const std::string text = told("eager_on_recompile", call);
    CHECK(text.find("triage: Running the script of function scaled") == 0);
    CHECK(text.find("(stance eager_on_recompile)") != std::string::npos);
    CHECK(text.find("/0: ") != std::string::npos);
    CHECK(text.find("Recompiling") == std::string::npos);
  }
  CHECK(told("eager_then_compile", "torch.ones({2}), 6").find("the next call is captured") != std::string::npos);
  lua.run("triage.set_logs({recompiles = false})");
}
