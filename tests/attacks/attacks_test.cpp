// Hostile policies (*.lua beside this file): each ends in an error that says why, and a healthy one runs after it.
#include "bindings/lua/engine/policies/lua_script.h"
#include "tests/attacks/forked.h"
#include "tests/paths.h"

#include <triage/front_end.h>

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace triage::lua::testing {
namespace {

/// One attack of a file: an expression on the tensor `z`, after a line `-- NAME: words of the error`.
struct Attack {
  std::string name, expected, source;
};

std::vector<Attack> attacks_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<Attack> attacks;
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("-- ", 0) == 0 && colon != std::string::npos)
      attacks.push_back({line.substr(3, colon - 3), line.substr(colon + 2), ""});
    else if (!attacks.empty())
      attacks.back().source += line + "\n";
  }
  return attacks;
}

/// The attack when the policy loads, on a `z` of its own, and when it is called.
std::string at_load(const Attack& attack) {
  return "local z = torch.ones(8, 8)\n" + attack.source + "\nreturn function(z) return z end";
}
std::string at_call(const Attack& attack) { return "return function(z) return " + attack.source + "\nend"; }

/// Loads the policy and calls it; the error, or "no error".
std::string outcome_of_loading(const std::string& source) {
  try {
    LuaScript script(source, ScriptOptions{});
    script.call({at::ones({8, 8})}, {}, {});
    return "no error";
  } catch (const std::exception& error) {
    return error.what();
  }
}

constexpr const char* healthy =
    "return function(z) local f = flag_nan(z, 1) return fix(z, f, 1, {fallback = 0.0}), f end";

}  // namespace

TEST_CASE("attacks: operators are stopped by their contracts, and the process goes on") {
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() + "/tests/attacks")) {
    if (entry.path().extension() != ".lua" || entry.path().stem() == "random_calls") continue;
    const std::vector<Attack> attacks = attacks_of(entry.path());
    CHECK(!attacks.empty());
    for (const Attack& attack : attacks) {
      for (const std::string& policy : {at_load(attack), at_call(attack)}) {
        const Ended ended = in_fork(
            [&](const Say&) {
              const std::string error = outcome_of_loading(policy), after = outcome_of_loading(healthy);
              return after == "no error" ? error : "the healthy policy fails: " + after;
            },
            20);
        INFO(entry.path().filename().string() << ", " << attack.name << ": " << ended.text << "\n" << policy);
        CHECK(ended.death == "");
        CHECK(ended.text.find(attack.expected) != std::string::npos);
      }
    }
  }
}

}  // namespace triage::lua::testing
