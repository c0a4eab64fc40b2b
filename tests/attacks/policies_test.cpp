// Attacks on what policies have besides their function: state, params, what hosts give, bundles, the decision log. They
// come from authors of policies and of bundles, and from hosts that make mistakes. Each is one row: it ends in an error
// with these words, or in none where that is said, in a process with a watchdog, in which a healthy policy runs
// afterwards.
#include "tests/attacks/forked.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <triage/triage.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace triage::lua::testing {
namespace {

constexpr const char* no_error = "no error";

RuntimeOptions small_budgets() {
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
  const char* const healthy =
      "return function(z) local f = flag_nan(z, 1) return fix(z, f, 1, {fallback = 0.0}), f end";
  Runtime runtime(small_budgets());
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
  INFO(std::string(name) << ": " << ended.stage << ": " << ended.text);
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
    {"more states than a policy may have", "more than 100",
     "local d = {} for i = 1, 2000 do d['s' .. i] = {shape = {}} end\n"
     "return policy {state = d, run = function(z, s) return z, s end}"},
    {"a name of state of a megabyte", "expected",
     "return policy {state = {[('x'):rep(1 << 20)] = {shape = {}}}, run = function(z, s) return z, s end}"},
    {"a name of state that forges a line", "expected",
     "return policy {state = {['x\\n[error] FORGED'] = {shape = {}}}, run = function(z, s) return z, s end}"},
    {"a first value that no int64 is", "expected",
     "return policy {state = {s = {shape = {}, dtype = torch.int64, init = 2^70}}, run = function(z, s) return z, s "
     "end}"},
    {"a first value that is a table", "expected",
     "return policy {state = {s = {shape = {}, init = {}}}, run = function(z, s) return z, s end}"},
    {"a shape without end", no_error,
     "return policy {state = {s = {shape = setmetatable({}, {__len = function() return 1 << 60 end, __index = "
     "function() "
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
     "local t = {} for i = 1, 1e7 do t[i] = 0.5 end return policy {params = {p = t}, run = function(z, p) return z "
     "end}"},
    {"a list that holds itself", "expected",
     "local t = {} t[1] = t return policy {params = {p = t}, run = function(z, p) return z end}"},
    {"a list without end", "expected",
     "return policy {params = {p = setmetatable({}, {__len = function() return 1 << 60 end, __index = function() "
     "return "
     "1 end})}, run = function(z, p) return z end}"},
    {"a list with holes", "expected",
     "return policy {params = {p = {1.0, nil, 3.0}}, run = function(z, p) return z end}"},
    {"a param of expanded elements", "budget",
     "return policy {params = {p = torch.zeros(1):expand({1 << 40})}, run = function(z, p) return z + "
     "p.p:clone():sum() "
     "end}"},
    {"a constant of expanded elements", "budget",
     "local f = triage.compile(function(z) return triage.assume_constant_result(function() return "
     "torch.zeros(1):expand({1 << 40}) end)() end) f(torch.ones({2})) return function(z) return z end"},
    {"a result that answers without end", "a policy returns tensors",
     "return function(z) return setmetatable({}, {__index = function() while true do end end}) end"},
    {"a policy whose fields answer without end", "policy",
     "return setmetatable({}, {__index = function() while true do end end, __pairs = function() while true do end "
     "end})"},
    {"tests without end", no_error,
     "return policy {run = function(z) return z end, tests = setmetatable({}, {__len = function() return 1 << 60 "
     "end})}"},
};

const std::string counting = R"(
return policy {
  inputs = {"z"}, outputs = {"z"}, params = {list = {0.5, 1.5}, n = 3, table = torch.zeros({2, 2})},
  state = {calls = {shape = {}, dtype = torch.int64}},
  run = function(z, p, s) return z * p.n + p.list:sum() + p.table:sum(), {calls = s.calls + 1} end,
})";

/// A Runtime with a policy that has all of it, and what the host does with them.
struct HostAttack {
  const char *name, *words;
  std::function<void(Runtime&, const Policy&)> work;
};

const at::Tensor& batch() {
  static const at::Tensor made = at::ones({4, 2});
  return made;
}

const HostAttack by_hosts[] = {
    {"an undefined tensor as a param", "param 'table'",
     [](Runtime&, const Policy& policy) { policy.set_param("table", at::Tensor()); }},
    {"a sparse tensor as a param", "param 'table'",
     [](Runtime&, const Policy& policy) {
       policy.set_param("table", at::ones({2, 2}).to_sparse());
     }},
    {"a tensor without data as a param", "meta",
     [](Runtime&, const Policy& policy) {
       policy.set_param("table", at::empty({2, 2}, at::device(at::kMeta)));
       policy.run({batch()});
     }},
    {"NaN where a list has whole numbers", "param 'n'",
     [](Runtime&, const Policy& policy) { policy.set_param("n", std::nan("")); }},
    {"a number beyond int64 as an integer", "param 'n'",
     [](Runtime&, const Policy& policy) { policy.set_param("n", 1e30); }},
    {"a list for a number", "param 'n'",
     [](Runtime&, const Policy& policy) { policy.set_param("n", std::vector<double>{1}); }},
    {"a param that nobody has", "has no param 'nobody'",
     [](Runtime&, const Policy& policy) { policy.set_param("nobody", 1); }},
    {"the same param twice in a call", no_error,
     [](Runtime&, const Policy& policy) {
       policy.run({batch()}, {.params = {{"n", 1}, {"n", 2}}});
     }},
    {"fewer sample ids than samples", "sample_ids has 1 names for a batch of 4 samples",
     [](Runtime&, const Policy& policy) {
       const std::vector<std::string> ids = {"a"};
       policy.run({batch()}, {.sample_ids = ids});
     }},
    {"ids of megabytes, of bytes that are no text", no_error,
     [](Runtime&, const Policy& policy) {
       const std::vector<std::string> ids(4, std::string(4u << 20, '\xff') + '\0' + "\n[error] FORGED");
       policy.run({batch()}, {.decision_id = ids[0], .trace_id = ids[1], .sample_ids = ids, .state_key = ids[2]});
     }},
    {"a donated input that is not there", "there are 1 inputs",
     [](Runtime&, const Policy& policy) { policy.run({batch()}, {.donate = {7}}); }},
    {"an input twice, and donated", no_error,
     [](Runtime& runtime, const Policy&) {
       const Policy both = runtime.load_source("return function(a, b) return a + b, a - b end");
       const at::Tensor z = at::ones({4, 2});
       for (int i = 0; i < 4; ++i)
         if (both.run({z, z}, {.donate = {0}})[1].abs().sum().item<float>() != 0)
           throw std::runtime_error("a wrong answer");
     }},
    {"a deadline long ago", "deadline",
     [](Runtime&, const Policy& policy) {
       policy.run({batch()}, {.deadline = std::chrono::steady_clock::time_point()});
     }},
    {"state from a device without end", "/dev/zero",
     [](Runtime&, const Policy& policy) { policy.load_state("/dev/zero"); }},
    {"state from a folder", "cannot", [](Runtime&, const Policy& policy) { policy.load_state("/tmp"); }},
    {"state into a folder", "cannot", [](Runtime&, const Policy& policy) { policy.save_state("/tmp"); }},
    {"state from a fifo", "triage-fifo",
     [](Runtime&, const Policy& policy) {
       const std::string fifo = "/tmp/triage-fifo-" + std::to_string(::getpid());
       ::mkfifo(fifo.c_str(), 0600);
       const std::string outcome = outcome_of([&] { policy.load_state(fifo); });
       ::unlink(fifo.c_str());
       throw std::runtime_error(outcome);
     }},
    {"more keys of state than are kept", no_error,
     [](Runtime& runtime, const Policy&) {
       const Policy policy = runtime.load_source(counting, "many.lua");
       for (int i = 0; i < 30'000; ++i) policy.run({batch()}, {.state_key = std::to_string(i)});
       if (policy.state().size() > 10'000) throw std::runtime_error("all keys are kept");
     }},
    {"a function that calls the policy with the same key", "while it was running",
     [](Runtime& runtime, const Policy&) {
       Policy inner;
       runtime.define("again", [&](const std::vector<at::Tensor>& in) { return inner ? inner.run(in) : in; });
       inner = runtime.load_source(
           "return policy {state = {n = {shape = {}}}, run = function(z, s) return again(z), {n = s.n + 1} end}");
       inner.run({batch()});
     }},
    {"a function that reloads the policy while it is called", no_error,
     [](Runtime& runtime, const Policy&) {
       Policy inner;
       int calls = 0;
       runtime.define("change", [&](const std::vector<at::Tensor>& in) {
         if (inner && ++calls == 1) inner.replace("return function(z) return change(z) * 2 end");
         return in;
       });
       inner = runtime.load_source("return function(z) return change(z) * 1 end");
       for (int i = 0; i < 5; ++i) inner.run({batch()});
     }},
    {"a function that throws what is no exception", "again",
     [](Runtime& runtime, const Policy&) {
       runtime.define("again", [](const std::vector<at::Tensor>&) -> std::vector<at::Tensor> { throw 7; });
       runtime.load_source("return function(z) return again(z) end").run({batch()});
     }},
    {"a pure function that gives another shape each time", "again",
     [](Runtime& runtime, const Policy&) {
       int calls = 0;
       runtime.define(
           "again", [&](const std::vector<at::Tensor>& in) { return std::vector{in[0].narrow(0, 0, 1 + calls++ % 3)}; },
           {.pure = true});
       const Policy policy = runtime.load_source("return function(z) return again(z) end");
       for (int i = 0; i < 5; ++i) policy.run({batch()});
     }},
    {"a name that no script can write", "expected a name that scripts can write",
     [](Runtime& runtime, const Policy&) {
       runtime.define("a b\n[error] FORGED", [](const std::vector<at::Tensor>& in) { return in; });
     }},
    {"a tensor in the place of a library", "every script has a global of that name",
     [](Runtime& runtime, const Policy&) {
       runtime.define_tensor("torch", at::ones({1}));
       runtime.load_source(counting).run({batch()});
     }},
    {"a tensor of the host without data", "meta",
     [](Runtime& runtime, const Policy&) {
       runtime.define_tensor("given", at::empty({2}, at::device(at::kMeta)));
       runtime.load_source("return function(z) return z + given end").run({batch()});
     }},
    {"a decision log into a folder", "folder",
     [](Runtime&, const Policy&) {
       DecisionLogOptions log;
       log.file = "/tmp";
       DecisionLog{log};
     }},
    {"a decision log into a device", "regular file",
     [](Runtime&, const Policy&) {
       DecisionLogOptions log;
       log.file = "/dev/full";
       DecisionLog{log};
     }},
};

}  // namespace

TEST_CASE("attacks: declarations of policies end in an error, and the process goes on") {
  for (const PolicyAttack& attack : by_authors)
    check_attack(attack.name, attack.words, [&] {
      Runtime runtime(small_budgets());
      runtime.load_source(attack.source).run({at::ones({8, 8})}, {.state_key = "a"});
    });
}

TEST_CASE("attacks: mistakes of hosts end in an error, and the process goes on") {
  for (const HostAttack& attack : by_hosts)
    check_attack(attack.name, attack.words, [&] {
      RuntimeOptions options = small_budgets();
      DecisionLogOptions log;
      log.on_line = [](std::string_view) {};
      log.clean_share = 1;
      options.decisions = std::make_shared<DecisionLog>(log);
      Runtime runtime(options);
      const Policy policy = runtime.load_source(counting, "counting.lua");
      policy.run({batch()});
      attack.work(runtime, policy);
    });
}

}  // namespace triage::lua::testing
