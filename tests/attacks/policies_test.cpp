// Attacks on what policies have besides their function: state, params, what hosts give, bundles, the decision log. They come from
// authors of policies and of bundles, and from hosts that make mistakes. Each is one row: it ends in an error with these words, or in
// none where that is said, in a process with a watchdog, in which a healthy policy runs afterwards.
#include "tests/attacks/forked.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <functional>
#include <string>

namespace triage::lua::testing {
namespace {

constexpr const char* no_error = "no error";

RuntimeOptions small_budget() {
  RuntimeOptions options;
  options.log = test::no_log();
  options.limits.seconds = 0.5;
  options.limits.script_bytes = 64u << 20;
  options.limits.tensor_bytes = 64u << 20;
  return options;
}

std::string outcome_of(const std::function<void()>& work) {
  try {
    work();
    return no_error;
  } catch (const std::exception& error) {
    return error.what();
  }
}

void run_healthy() {
  const char* const healthy = "return function(z) local f = flag_nan(z, 1) return fix(z, f, 1, {fallback = 0.0}), f end";
  Runtime runtime(small_budget());
  runtime.load_source(healthy).run({at::ones({8, 8})});
}

void check_attack(const char* name, const std::string& words, const std::function<void()>& attack) {
  const Ended ended = in_fork(
      [&](const Say& say) {
        const std::string outcome = outcome_of(attack);
        say("afterwards");
        const std::string after = outcome_of(run_healthy);
        return after == no_error ? outcome : "the healthy policy fails: " + after;
      },
      20);
  INFO(name << ": " << ended.stage << ": " << ended.text);
  CHECK(ended.death == "");
  CHECK(ended.text.find(words) != std::string::npos);
}

struct PolicyAttack {
  const char *name, *words, *source;
};

const PolicyAttack by_authors[] = {
    {"state of 2^62 elements", "the limit is 64 MiB",
     "return policy {state = {s = {shape = {1 << 31, 1 << 31}}}, run = function(z, s) return z, {s = s.s} end}"},
    {"state whose size overflows", "the limit is 64 MiB",
     "return policy {state = {s = {shape = {1 << 62, 4}}}, run = function(z, s) return z, {s = s.s} end}"},
    {"state of a negative size", "expected",
     "return policy {state = {s = {shape = {-1}}}, run = function(z, s) return z, {s = s.s} end}"},
    {"rows of state that take all memory", "the limit is 64 MiB",
     "return policy {state = {s = {shape = {'N', 1 << 32}}}, run = function(z, s) return z, {s = s.s} end}"},
    {"more states than a policy may have", "at most",
     "local d = {} for i = 1, 2000 do d['s' .. i] = {shape = {}} end\n"
     "return policy {state = d, run = function(z, s) return z, s end}"},
    {"a name of state of a megabyte", "expected",
     "return policy {state = {[('x'):rep(1 << 20)] = {shape = {}}}, run = function(z, s) return z, s end}"},
    {"a name of state that forges a line", "expected",
     "return policy {state = {['x\\n[error] FORGED'] = {shape = {}}}, run = function(z, s) return z, s end}"},
    {"a first value that no int64 is", "expected",
     "return policy {state = {s = {shape = {}, dtype = torch.int64, init = 2^70}}, run = function(z, s) return z, s end}"},
    {"a first value that is a table", "expected",
     "return policy {state = {s = {shape = {}, init = {}}}, run = function(z, s) return z, s end}"},
    {"a shape without end", no_error,
     "return policy {state = {s = {shape = setmetatable({}, {__len = function() return 1 << 60 end, __index = function() "
     "return 1 end})}}, run = function(z, s) return z, s end}"},
    {"declarations that run without end", "takes 2 inputs",
     "return policy {state = setmetatable({}, {__pairs = function() while true do end end, __index = function() while "
     "true do end end}), run = function(z, s) return z, s end}"},
    {"a new state that runs without end", "state",
     "return policy {state = {s = {shape = {}}}, run = function(z, s) return z, setmetatable({}, {__index = function() "
     "while true do end end}) end}"},
    {"a new state with another name", "state",
     "return policy {state = {s = {shape = {}}}, run = function(z, s) return z, {s = s.s, t = s.s} end}"},
    {"state that is its own table", "state",
     "return policy {state = {s = {shape = {}}}, run = function(z, s) s.s = s return z, s end}"},
    {"a list of ten million numbers", "budget",
     "local t = {} for i = 1, 1e7 do t[i] = 0.5 end return policy {params = {p = t}, run = function(z, p) return z end}"},
    {"a list that holds itself", "expected",
     "local t = {} t[1] = t return policy {params = {p = t}, run = function(z, p) return z end}"},
    {"a list without end", "expected",
     "return policy {params = {p = setmetatable({}, {__len = function() return 1 << 60 end, __index = function() return "
     "1 end})}, run = function(z, p) return z end}"},
    {"a list with holes", "expected",
     "return policy {params = {p = {1.0, nil, 3.0}}, run = function(z, p) return z end}"},
    {"a param of expanded elements", "budget",
     "return policy {params = {p = torch.zeros(1, {dtype = torch.float64}):expand({1 << 61})}, run = function(z, p) return z + p.p:clone():sum() "
     "end}"},
    {"a constant of expanded elements", "budget",
     "local f = triage.compile(function(z) return triage.assume_constant_result(function() return "
     "torch.zeros(1):expand({1 << 40}) end)() end) f(torch.ones({2})) return function(z) return z end"},
    {"a result that answers without end", "a policy returns tensors",
     "return function(z) return setmetatable({}, {__index = function() while true do end end}) end"},
    {"a policy whose fields answer without end", "policy",
     "return setmetatable({}, {__index = function() while true do end end, __pairs = function() while true do end end})"},
    {"tests without end", no_error,
     "return policy {run = function(z) return z end, tests = setmetatable({}, {__len = function() return 1 << 60 end})}"},
};

}  // namespace

TEST_CASE("attacks: declarations of policies end in an error, and the process goes on") {
  for (const PolicyAttack& attack : by_authors)
    check_attack(attack.name, attack.words, [&] {
      Runtime runtime(small_budget());
      runtime.load_source(attack.source).run({at::ones({8, 8})}, {.state_key = "a"});
    });
}

}  // namespace triage::lua::testing
