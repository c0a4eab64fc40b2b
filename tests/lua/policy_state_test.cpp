// State of policies: kept from call to call by key, the same bits in scripts and graphs, untouched by calls that fail; over reloads,
// candidates, restarts and threads.
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>
#include <triage/capsule.h>
#include <triage/triage.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

using triage::KeyState;
using triage::Policy;
using triage::PolicyState;
using triage::Runtime;
using triage::RuntimeOptions;

namespace {

/// Counts calls, keeps the running sum of columns, and the last batch.
const char* const keeper = R"(
return policy {
  outputs = {"y"},
  state = {
    count = {shape = {}, dtype = torch.int64, init = 10},
    last = {shape = {"N", 3}, init = -1},
    sums = {shape = {3}, dtype = torch.float64},
  },
  run = function(z, s)
    local sums = s.sums + z:to(torch.float64):sum(0)
    return s.last + s.count, {count = s.count + 1, last = z, sums = sums}
  end,
})";

/// One number of state: how many calls there were before this one.
const char* const counter = R"(
return policy {
  outputs = {"z", "n"},
  state = {n = {shape = {}, dtype = torch.int64}},
  inputs = {"z"},
  run = function(z, s) return z + 1, s.n + 0, {n = s.n + 1} end,
})";

int64_t next_of(const Policy& policy, const triage::RunOptions& options = {}, int64_t rows = 2) {
  return policy.run({at::ones({rows, 3})}, options).at(1).item<int64_t>();
}

int64_t count_of(const Policy& policy, const std::string& key = "", const std::string& name = "n") {
  for (const KeyState& one : policy.state())
    if (one.key == key)
      for (const auto& [known, tensor] : one.tensors)
        if (known == name) return tensor.item<int64_t>();
  return -1;
}

/// What the log of a Runtime said.
struct Logged {
  std::shared_ptr<std::string> text = std::make_shared<std::string>();
  RuntimeOptions options() const {
    RuntimeOptions options;
    options.log = [to = text](const triage::LogRecord& record) { *to += std::string(record.text) + "\n"; };
    return options;
  }
  bool has(const std::string& part) const { return text->find(part) != std::string::npos; }
};

RuntimeOptions quiet() {
  RuntimeOptions options;
  options.log = [](const triage::LogRecord&) {};
  return options;
}

}  // namespace

TEST_CASE("state goes from call to call, as a script and captured, with the same bits and in one graph") {
  for (const char* backend : {"eager", "fused", "aot_eager"})
    for (const int64_t rows : {0, 1, 2, 31, 32, 33}) {
      CAPTURE(backend);
      CAPTURE(rows);
      RuntimeOptions options = quiet();
      options.backend = backend;
      options.fullgraph = true;
      Runtime runtime(options);
      const Policy policy = runtime.load_source(keeper);
      at::Tensor last = at::full({rows, 3}, -1.0), sums = at::zeros({3}, at::kDouble);
      for (int64_t call = 0; call < 4; ++call) {
        const at::Tensor z = at::rand({rows, 3});
        const std::vector<at::Tensor> outputs = policy.run({z});
        REQUIRE(outputs.size() == 1);
        CHECK(outputs[0].equal(last + (10 + call)));
        last = z;
        sums = sums + z.to(at::kDouble).sum(0);
      }
      CHECK(policy.graphs().size() == 1);
      CHECK(policy.breaks().empty());
      const PolicyState state = policy.state();
      REQUIRE(state.size() == 1);
      CHECK(state[0].key.empty());
      REQUIRE(state[0].tensors.size() == 3);
      CHECK(state[0].tensors[0].second.item<int64_t>() == 14);
      CHECK(state[0].tensors[1].second.equal(last));
      CHECK(state[0].tensors[2].second.equal(sums));
    }
}

TEST_CASE("run takes params before state; the host sees neither state nor its names") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(R"(
    return policy {
      params = {step = 2.0},
      state = {total = {shape = {}, dtype = torch.float32}},
      run = function(z, p, s)
        local total = s.total + p.step
        return z * total, flag_nan(z, "z"), {total = total}
      end,
    })");
  CHECK(policy.signature().inputs == std::vector<std::string>{"z"});
  CHECK(policy.run<2>({at::ones({2})})[0].equal(at::full({2}, 2.0)));
  CHECK(policy.run<2>({at::ones({2})}, {.params = {{"step", 5.0}}})[0].equal(at::full({2}, 7.0)));
  CHECK(policy.run<2>({at::ones({2})})[0].equal(at::full({2}, 9.0)));
  CHECK(policy.signature().outputs == std::vector<std::string>{"out0", "out1"});
  CHECK(policy.flags_outputs() == std::vector<bool>{false, true});
  REQUIRE(policy.signature().state.size() == 1);
  CHECK(policy.signature().state[0].type.text() == "Tensor(float32_t, {})");
  CHECK(policy.run_named({{"z", at::ones({2})}}).size() == 2);
}

TEST_CASE("each key has its own state; keys that are not used go first, or by age") {
  RuntimeOptions options = quiet();
  options.state_keys = 2;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(counter);
  CHECK(next_of(policy, {.state_key = "a"}) == 0);
  CHECK(next_of(policy, {.state_key = "b"}) == 0);
  CHECK(next_of(policy, {.state_key = "a"}) == 1);
  CHECK(next_of(policy, {.state_key = "c"}) == 0);  // `b` goes
  CHECK(next_of(policy, {.state_key = "a"}) == 2);
  CHECK(count_of(policy, "b") == -1);
  CHECK(count_of(policy, "c") == 1);
  CHECK(policy.state().back().key == "a");
  policy.reset_state("a");
  CHECK(count_of(policy, "a") == -1);
  CHECK(next_of(policy, {.state_key = "c"}) == 1);
  policy.reset_state();
  CHECK(policy.state().empty());

  RuntimeOptions aged = quiet();
  aged.state_age = std::chrono::seconds(1);
  Runtime other(aged);
  const Policy forgets = other.load_source(counter);
  CHECK(next_of(forgets, {.state_key = "a"}) == 0);
  CHECK(fake::eventually([&] { return forgets.state().empty(); }));
  CHECK(next_of(forgets, {.state_key = "a"}) == 0);
}

TEST_CASE("a call that fails leaves the state, whatever answers it") {
  const char* const fails = R"(
    return policy {
      outputs = {"z", "n"}, inputs = {"z"},
      state = {n = {shape = {}, dtype = torch.int64}},
      run = function(z, s) return torch.linalg_cholesky(z), s.n + 0, {n = s.n + 1} end,
    })";
  const at::Tensor good = at::eye(2), bad = at::zeros({2, 2});
  for (const char* backend : {"eager", "fused"}) {
    RuntimeOptions options = quiet();
    options.backend = backend;
    Runtime runtime(options);
    const Policy policy = runtime.load_source(fails);
    for (int call = 0; call < 3; ++call) {
      CHECK(policy.run({good})[1].item<int64_t>() == call);
      CHECK_THROWS_AS(policy.run({bad}), triage::PolicyError);
      CHECK_THROWS_AS(policy.run({}), triage::InputError);
      CHECK(count_of(policy) == call + 1);
    }
  }
  Runtime runtime(quiet());
  const Policy alone = runtime.load_source(fails);
  CHECK_THROWS(alone.run({bad}));
  CHECK(alone.state().empty());  // a key without a call that was answered is none
}

TEST_CASE("a new state of another dtype or shape is an error with the line of run, and leaves the state") {
  const auto policy_with = [](const std::string& next) {
    return "return policy {\n  outputs = {\"z\"},\n  state = {last = {shape = {\"N\", 2}}},\n"
           "  run = function(z, s)\n    return z + s.last, {last = " + next + "}\n  end,\n}";
  };
  Runtime runtime(quiet());
  const auto message = [&](const std::string& next) {
    const Policy policy = runtime.load_source(policy_with(next), "state.lua");
    std::string text;
    for (int call = 0; call < 2; ++call) text = fake::message_of([&] { policy.run({at::ones({3, 2})}); });
    CHECK(policy.state().empty());
    return text;
  };
  CHECK(message("z:to(torch.float64)").find("state.lua:4: ") == 0);
  CHECK(message("z:to(torch.float64)").find("the state 'last' as Double of shape [3, 2], and it is declared as "
                                            "Tensor(float32_t, {\"N\", 2}) in a batch of 3") != std::string::npos);
  CHECK(message("z[0]").find("of shape [2]") != std::string::npos);
  CHECK(message("nil").find("return every state as a tensor, also one that stays: {last = s.last}") != std::string::npos);
  CHECK(message("1.0").find("a number as 'last'") != std::string::npos);
  CHECK(message("z, lost = z").find("the name 'lost', which `state` does not declare") != std::string::npos);
  const auto returns = [&](const std::string& results) {
    const Policy policy = runtime.load_source(
        "return policy { state = {n = {shape = {}}}, run = function(z, s) return " + results + " end }", "state.lua");
    return fake::message_of([&] { policy.run({at::ones({3, 2})}); });
  };
  CHECK(returns("z").find("a userdata as its last result, and a policy with state returns the new state there") !=
        std::string::npos);
  CHECK(returns("").find("returned nothing") != std::string::npos);
  CHECK(returns("s.lost, s").find("there is no state 'lost'") != std::string::npos);
}

TEST_CASE("a graph whose state has another shape in another call fails that call, and leaves the state") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(R"(
    return policy {
      outputs = {"z"}, inputs = {"z", "w"},
      state = {kept = {shape = {2}}},
      run = function(z, w, s) return z + s.kept:sum(), {kept = w * 2} end,
    })",
                                            "sizes.lua");
  const at::Tensor z = at::zeros({3}), w = at::ones({2});
  for (int call = 0; call < 2; ++call) policy.run({z, w});
  REQUIRE(policy.graphs().size() == 1);
  const std::string message = fake::message_of([&] { policy.run({z, at::ones({5})}); });
  CHECK(message.find("sizes.lua:5: policy 'sizes' (version 1): `run` returned the state 'kept' as Float of shape [5]") == 0);
  CHECK(policy.run({z, w})[0].equal(at::full({3}, 4.0)));
}

TEST_CASE("declarations that no call could begin with are refused, with a hint") {
  Runtime runtime(quiet());
  const auto refusal = [&](const std::string& state, const std::string& run = "function(z, s) return z, s end") {
    return fake::message_of([&] {
      runtime.load_source("return policy { params = {}, state = " + state + ", run = " + run + " }", "state.lua");
    });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return doctest::String((text.find(part) != std::string::npos ? "" : text).c_str());
  };
  const doctest::String fine = "";
  CHECK(has(refusal("3"), "expected a table of names and declarations") == fine);
  CHECK(has(refusal("{last = 3}"), "'last': expected a declaration") == fine);
  CHECK(has(refusal("{last = {}}"), "field 'shape': expected a list of sizes") == fine);
  CHECK(has(refusal("{last = {shape = {-1}}}"), "entry 1: expected a size") == fine);
  CHECK(has(refusal("{last = {shape = {3, \"N\"}}}"), "only the first dimension can be the batch") == fine);
  CHECK(has(refusal("{last = {shape = {\"D\"}}}"), "or \"N\" for the size of the batch") == fine);
  CHECK(has(refusal("{last = {shape = {}, dtype = 3}}"), "field 'dtype': expected a dtype") == fine);
  CHECK(has(refusal("{last = {shape = {}, dtype = torch.int64, init = 0.5}}"), "expected an integer") == fine);
  CHECK(has(refusal("{last = {shape = {}, dtype = torch.bool, init = 1}}"), "expected true or false") == fine);
  CHECK(has(refusal("{last = {shape = {}, inti = 1}}"), "did you mean 'init'") == fine);
  CHECK(has(refusal("{[1] = {shape = {}}}"), "expected names") == fine);
  CHECK(has(refusal("{z = {shape = {}}}"), "'z' is both an input and a state") == fine);
  CHECK(has(refusal("{last = {shape = {}}}", "function(z) return z end"), "with state the last one receives it") == fine);
  CHECK(refusal("{last = {shape = {\"N\", 2}, init = math.huge}}").empty());
  const std::string both = fake::message_of([&] {
    runtime.load_source(
        "return policy { params = {k = 1}, state = {n = {shape = {}}}, run = function(z, p) return z, p end }", "s.lua");
  });
  CHECK(has(both, "run = function(z, p, s)") == fine);
  const std::string param = fake::message_of([&] {
    runtime.load_source(
        "return policy { params = {k = 1}, state = {k = {shape = {}}}, run = function(z, p, s) return z, s end }", "s.lua");
  });
  CHECK(has(param, "'k' is both a param and a state") == fine);
}

TEST_CASE("a batch of another size starts the state of its samples anew, and the log says so; fixed shapes stay") {
  const Logged log;
  Runtime runtime(log.options());
  const Policy policy = runtime.load_source(keeper);
  const auto first = [&](int64_t rows) { return policy.run({at::ones({rows, 3})})[0].sum().item<double>(); };
  CHECK(first(2) == 6 * (10 - 1));
  CHECK(first(2) == 6 * (11 + 1));
  CHECK_FALSE(log.has("started anew"));
  CHECK(first(4) == 12 * (12 - 1));
  CHECK(log.has("a batch of 4 samples came after one of another size"));
  CHECK(first(4) == 12 * (13 + 1));
  CHECK(count_of(policy, "", "count") == 14);
}

TEST_CASE("what a host writes to inputs and outputs does not reach the state") {
  for (const char* backend : {"eager", "fused"})
    for (const bool inference : {false, true}) {
      CAPTURE(backend);
      RuntimeOptions options = quiet();
      options.backend = backend;
      Runtime runtime(options);
      const Policy policy = runtime.load_source(R"(
        return policy {
          outputs = {"z", "last", "view"},
          state = {last_z = {shape = {"N", 2}}, same = {shape = {"N", 2}}},
          run = function(z, s)
            local y = z * 2
            return y, s.last_z, s.last_z:reshape({-1}), {last_z = y, same = s.last_z}
          end,
        })");
      const c10::InferenceMode mode(inference);
      for (int call = 0; call < 4; ++call) {
        const at::Tensor z = at::full({2, 2}, call + 1.0);
        const auto outputs = policy.run({z});
        CHECK(outputs[1].equal(at::full({2, 2}, 2.0 * call)));
        for (const at::Tensor& output : outputs) output.fill_(99);
        z.fill_(99);
      }
      CHECK(policy.graphs().size() == 1);
      PolicyState state = policy.state();
      CHECK(state[0].tensors[0].second.equal(at::full({2, 2}, 8.0)));
      CHECK(state[0].tensors[1].second.equal(at::full({2, 2}, 6.0)));
      for (auto& [name, tensor] : state[0].tensors) tensor.fill_(99);
      CHECK(policy.state()[0].tensors[0].second.equal(at::full({2, 2}, 8.0)));
    }
}

TEST_CASE("state requires no grad, and holds no graph of autograd; gradients go through the outputs") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(keeper);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor z = at::ones({2, 3}).requires_grad_();
    CHECK_FALSE(policy.run({z})[0].requires_grad());
    for (const auto& [name, tensor] : policy.state()[0].tensors) CHECK_FALSE(tensor.requires_grad());
  }
  const Policy scaled = runtime.load_source(
      "return policy { state = {k = {shape = {}, init = 1}}, run = function(z, s) return z * s.k, {k = s.k + z:mean()} end }");
  for (int call = 0; call < 3; ++call) {
    const at::Tensor z = at::ones({2, 3}).requires_grad_();
    scaled.run({z})[0].sum().backward();
    CHECK(z.grad().equal(at::full({2, 3}, 1.0 + call)));
  }
}

TEST_CASE("a script that writes to its state in place gets an error, and the state stays") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(
      "return policy { state = {n = {shape = {}}}, run = function(z, s) s.n:add_(1) return z, {n = s.n} end }");
  for (int call = 0; call < 2; ++call) CHECK_THROWS_AS(policy.run({at::ones({2})}), triage::PolicyError);
  CHECK(policy.state().empty());
}

TEST_CASE("a policy with graph breaks keeps its state, too") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(R"(
    return policy {
      outputs = {"z"},
      state = {n = {shape = {}}},
      run = function(z, s)
        local n = s.n + 1
        if z:sum():item() > 100 then n = n + 10 end
        return z + n, {n = n * 1}
      end,
    })");
  for (int call = 1; call < 8; ++call) CHECK(policy.run({at::zeros({2})})[0].equal(at::full({2}, float(call))));
  CHECK(policy.run({at::full({2}, 100.0)})[0].equal(at::full({2}, 118.0)));
  CHECK_FALSE(policy.breaks().empty());
}

TEST_CASE("prepare changes no state, and the next call is warm") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  policy.prepare({at::ones({2, 3})});
  CHECK(policy.state().empty());
  CHECK(next_of(policy) == 0);
  triage::RunInfo info;
  policy.prepare({at::ones({2, 3})});
  CHECK(next_of(policy, {.info = &info}) == 1);
  CHECK(info.form == triage::CallForm::graph);
  CHECK(policy.graphs().size() == 1);
}

TEST_CASE("the host sets what it got, and nothing that does not fit") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  next_of(policy, {.state_key = "a"});
  next_of(policy, {.state_key = "b"});
  next_of(policy, {.state_key = "b"});
  const PolicyState state = policy.state();
  policy.reset_state();
  policy.set_state(state);
  CHECK(next_of(policy, {.state_key = "a"}) == 1);
  CHECK(next_of(policy, {.state_key = "b"}) == 2);
  CHECK(next_of(policy, {.state_key = "c"}) == 0);
  const auto refused = [&](const PolicyState& wrong) { return fake::message_of([&] { policy.set_state(wrong); }); };
  CHECK(refused({{"a", {{"m", at::ones({})}}}}).find("has no state 'm'; it declares (n)") != std::string::npos);
  CHECK(refused({{"a", {{"n", at::ones({})}}}}).find("is declared as Tensor(int64_t, {}), and set_state got Float of shape []") !=
        std::string::npos);
  CHECK(refused({{"a", {}}, {"a", {}}}).find("the key 'a' twice") != std::string::npos);
  CHECK(count_of(policy, "b") == 3);  // as it was
  policy.set_state({{"d", {{"n", at::full({}, 7, at::kLong)}}}});
  CHECK(count_of(policy, "b") == -1);
  CHECK(next_of(policy, {.state_key = "d"}) == 7);
}

TEST_CASE("a file with the state goes over a restart; one that is damaged, or of another policy, changes nothing") {
  const fake::Folder folder;
  const auto file = folder / "state.pt";
  {
    Runtime runtime(quiet());
    const Policy policy = runtime.load_source(counter, "counter.lua");
    for (int call = 0; call < 3; ++call) next_of(policy, {.state_key = "stream 1"});
    next_of(policy);
    policy.save_state(file);
  }
  const Logged log;
  Runtime runtime(log.options());
  const Policy policy = runtime.load_source(counter, "counter.lua");
  policy.load_state(file);
  CHECK(next_of(policy, {.state_key = "stream 1"}) == 3);
  CHECK(next_of(policy) == 1);
  const auto refused = [&](const Policy& of, const std::filesystem::path& path) {
    return fake::message_of([&] { of.load_state(path); });
  };
  const Policy other = runtime.load_source(counter, "other.lua");
  CHECK(refused(other, file).find("it holds the state of policy 'counter'") != std::string::npos);
  CHECK(other.state().empty());
  CHECK(refused(policy, folder / "none.pt").find("none.pt") != std::string::npos);
  triage::save_tensor((folder / "tensor.pt").string(), at::ones({2}));
  CHECK(refused(policy, folder / "tensor.pt").find("it holds no state") != std::string::npos);
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  for (size_t size = 0; size < bytes.size(); size += 37) {
    fake::write(folder / "cut.pt", bytes.substr(0, size));
    CHECK_THROWS_AS(policy.load_state(folder / "cut.pt"), triage::FileError);
  }
  CHECK(count_of(policy, "stream 1") == 4);
  CHECK_FALSE(log.has("starts anew"));
  const Policy changed = runtime.load_source(
      "return policy { state = {n = {shape = {}}}, run = function(z, s) return z, s.n + 0, {n = s.n + 1} end }", "counter.lua");
  changed.load_state(file);
  CHECK(log.has("the state 'n' starts anew: it was kept as Long of shape [], and is declared as Tensor(float32_t, {})"));
  CHECK(changed.run({at::ones({2, 3})})[1].item<double>() == 0);
}

TEST_CASE("state is kept over a reload where it is declared as before; else it starts anew, and an event says so") {
  const fake::Folder folder;
  const auto declares = [](const std::string& state, const std::string& step) {
    return "return policy { outputs = {\"z\", \"n\"}, inputs = {\"z\"}, state = {" + state +
           "}, run = function(z, s) return z + 1, s.n:sum():to(torch.int64), {n = s.n + " + step + "} end }";
  };
  fake::write(folder / "counter.lua", declares("n = {shape = {}, dtype = torch.int64}", "1"));
  const Logged log;
  Runtime runtime(log.options());
  const Policy policy = runtime.load(folder / "counter.lua");
  for (int call = 0; call < 3; ++call) CHECK(next_of(policy) == call);
  fake::write(folder / "counter.lua", declares("n = {shape = {}, dtype = torch.int64, init = 50}", "100"));
  CHECK(policy.reload() == triage::Reload::swapped);
  CHECK(count_of(policy) == 3);  // the trial changed nothing
  CHECK(next_of(policy) == 3);
  CHECK(next_of(policy) == 103);
  CHECK_FALSE(log.has("starts anew"));
  std::vector<triage::WatchEvent> events;
  triage::WatchOptions watching;
  watching.on_event = [&](const triage::WatchEvent& event) { events.push_back(event); };
  triage::Watch watch = runtime.watch(folder.path(), watching);
  fake::write(folder / "counter.lua", declares("n = {shape = {2}, dtype = torch.int64}", "1"));
  watch.rescan();
  watch.stop();
  CHECK(log.has("version 3: the state 'n' starts anew: it was kept as Long of shape [], and is declared as "
                "Tensor(int64_t, {2})"));
  REQUIRE(events.size() == 1);
  CHECK(events[0].message.find("the state 'n' starts anew") != std::string::npos);
  CHECK(policy.state()[0].tensors.empty());
  CHECK(next_of(policy) == 0);
  CHECK(next_of(policy) == 2);
}

TEST_CASE("a version on trial that fails leaves the state to the one that answers") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  for (int call = 0; call < 3; ++call) next_of(policy);
  REQUIRE(policy.replace(R"(
    return policy {
      outputs = {"z", "n"}, inputs = {"z"},
      state = {n = {shape = {}, dtype = torch.int64}},
      run = function(z, s)
        if z:sum():item() > 100 then error("too much") end
        return z + 1, s.n + 0, {n = s.n + 1000}
      end,
    })") == triage::Reload::swapped);
  CHECK(next_of(policy) == 3);
  CHECK(next_of(policy) == 1003);
  CHECK(policy.run({at::full({2, 3}, 100.0)})[1].item<int64_t>() == 2003);
  CHECK(policy.version().number == 1);
  CHECK(next_of(policy) == 2004);
}

TEST_CASE("a candidate runs on copies: the state is that of the calls which the live version answered") {
  const std::string faster = [] {
    std::string source = counter;
    source.replace(source.find("s.n + 1}"), 8, "s.n + 5}");
    return source;
  }();
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  for (int call = 0; call < 3; ++call) next_of(policy);
  policy.shadow_source(faster, {.share = 1});
  for (int call = 3; call < 9; ++call) CHECK(next_of(policy) == call);
  CHECK(fake::eventually([&] { return policy.candidate()->shadow.compared >= 6; }));
  const triage::CandidateReport report = policy.end_candidate();
  CHECK(report.shadow.different == 0);  // on the same state it gives the same
  CHECK(count_of(policy) == 9);
  policy.canary_source(faster, {.share = 1});
  for (int call = 0; call < 3; ++call) CHECK(next_of(policy) == 9);
  CHECK(count_of(policy) == 9);
  policy.promote();
  CHECK(next_of(policy) == 9);
  CHECK(next_of(policy) == 14);
}

TEST_CASE("pass_through and last_good answer without a change of the state") {
  const char* const fails = R"(
    return policy {
      inputs = {"z"}, outputs = {"z", "f"},
      state = {n = {shape = {}, dtype = torch.int64}},
      run = function(z, s)
        if z:sum():item() > 100 then error("too much") end
        return z + s.n, flag_nan(z, "z"), {n = s.n + 1}
      end,
    })";
  RuntimeOptions options = quiet();
  options.trial_calls = 0;
  options.failures_to_revert = 0;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(fails);
  policy.run({at::ones({2, 3})});
  const at::Tensor bad = at::full({2, 3}, 100.0);
  CHECK(policy.run({bad}, {.on_error = triage::OnError::pass_through})[0].equal(bad));
  CHECK(count_of(policy) == 1);
  std::string next = fails;
  next.replace(next.find("z + s.n"), 7, "z - s.n");
  REQUIRE(policy.replace(next) == triage::Reload::swapped);
  policy.run({at::ones({2, 3})});
  CHECK(count_of(policy) == 2);
  CHECK_THROWS(policy.run({bad}, {.on_error = triage::OnError::last_good}));
  CHECK(count_of(policy) == 2);
}

TEST_CASE("calls with one key on several threads follow one another; other keys are apart") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(counter);
  next_of(policy);
  constexpr int threads = 4, calls = 200;
  std::vector<std::thread> running;
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      const std::string key = "own " + std::to_string(i);
      for (int call = 0; call < calls; ++call) {
        sum += next_of(policy);
        if (next_of(policy, {.state_key = key}) != call) sum += 1'000'000;
        if (call % 50 == 0) policy.state();
      }
    });
  for (std::thread& thread : running) thread.join();
  constexpr int64_t all = threads * calls;
  CHECK(sum == all * (all + 1) / 2);  // 1, 2, ..., each once
  CHECK(count_of(policy) == all + 1);
}

TEST_CASE("a call that waits for its turn longer than its deadline fails; one within itself is told") {
  Runtime runtime(quiet());
  Policy policy;
  std::atomic<bool> inside{false}, go_on{false};
  std::string inner;
  bool again = false;
  runtime.define("host", [&](const std::vector<at::Tensor>& given) {
    if (again) inner = fake::message_of([&] { policy.run({at::ones({2})}); });
    inside = true;
    while (!again && !go_on) std::this_thread::yield();
    return given;
  });
  policy = runtime.load_source(
      "return policy { state = {n = {shape = {}}}, run = function(z, s) return host(z), {n = s.n + 1} end }");
  std::thread other([&] { policy.run({at::ones({2})}); });
  while (!inside) std::this_thread::yield();
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  CHECK_THROWS_AS(policy.run({at::ones({2})}, {.deadline = soon}), triage::LimitError);
  go_on = true;
  other.join();
  again = true;
  policy.run({at::ones({2})});
  CHECK(inner.find("while it was running with it on the same thread") != std::string::npos);
}

TEST_CASE("a capsule holds the state before the call, and replays it bit for bit") {
  const fake::Folder folder;
  for (const char* backend : {"eager", "fused"}) {
    RuntimeOptions options = quiet();
    options.backend = backend;
    Runtime runtime(options);
    const Policy policy = runtime.load_source(keeper, "keeper.lua");
    for (int call = 0; call < 3; ++call) policy.run({at::rand({4, 3})});
    const std::string file = (folder / "call.pt").string();
    triage::record(policy, {at::rand({4, 3})}, {file});
    policy.run({at::rand({4, 3})});
    const triage::Replayed replayed = triage::replay(file);
    CHECK_MESSAGE(replayed.same, replayed.difference);
    CHECK(replayed.recorded == "4 outputs");  // three are state
    triage::record(policy, {at::rand({4, 3})}, {.file = file, .masked = {"z"}});
    const triage::Replayed masked = triage::replay(file);
    CHECK_MESSAGE(masked.same, masked.difference);
    CHECK(std::any_of(masked.notes.begin(), masked.notes.end(), [](const std::string& note) {
      return note.find("the values of the state 'last' were left out") != std::string::npos;
    }));
  }
}

TEST_CASE("the tests of a policy begin with a state, and check the new one") {
  Runtime runtime(quiet());
  const auto failures = [&](const std::string& test) {
    const Policy policy = runtime.load_source(
        "return policy { outputs = {\"z\"}, state = {n = {shape = {}, init = 5}, last = {shape = {\"N\"}}},\n"
        "run = function(z, s) return z + s.n, {n = s.n + 1, last = s.last + z} end,\n"
        "tests = { { name = 't', " + test + ", args = function() return torch.ones({3}) end } } }",
        "tested.lua");
    return policy.run_tests().at(0).second;
  };
  CHECK(failures("check = function(z, s) return s.n:item() == 6 and s.last:sum():item() == 3 end").empty());
  CHECK(failures("state = {n = 8, last = torch.tensor({1.0, 2.0, 3.0})}, "
                 "check = function(z, s) return z:sum():item() == 27 and s.last:sum():item() == 9 end")
            .empty());
  CHECK(failures("check = function(z, s) return false end").find("s.n = tensor(6.)") != std::string::npos);
  const auto refused = [&](const std::string& state) {
    return fake::message_of([&] { failures("state = " + state + ", check = function() end"); });
  };
  CHECK(refused("{m = 3}").find("the policy has no state 'm'") != std::string::npos);
  CHECK(refused("{n = torch.ones({2})}").find("expected Tensor(float32_t, {}), or a number") != std::string::npos);
  CHECK(refused("3").find("field 'state': expected a table") != std::string::npos);
}

TEST_CASE("a policy with state cannot be exported") {
  Runtime runtime(quiet());
  const triage::FrontEnd load = triage::find_front_end("counter.lua");
  triage::ScriptOptions options;
  options.path = "counter.lua";
  const auto script = load(counter, options);
  CHECK(fake::message_of([&] { triage::export_script(*script, {at::ones({2, 3})}, {}, {}); })
            .find("an exported program keeps nothing between calls") != std::string::npos);
}
