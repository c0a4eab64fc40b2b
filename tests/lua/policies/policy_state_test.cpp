// State of policies in calls: kept by key, the same bits in scripts and graphs, untouched by calls that fail and by who
// holds outputs.
#include "tests/lua/policies/policy_state.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>

using triage::KeyState;
using triage::Policy;
using triage::PolicyState;
using triage::Runtime;
using triage::RuntimeOptions;
using namespace triage::test;  // NOLINT(google-build-using-namespace)

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
  CHECK(eventually([&] { return forgets.state().empty(); }));
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
           "  run = function(z, s)\n    return z + s.last, {last = " +
           next + "}\n  end,\n}";
  };
  Runtime runtime(quiet());
  const auto message = [&](const std::string& next) {
    const Policy policy = runtime.load_source(policy_with(next), "state.lua");
    std::string text;
    for (int call = 0; call < 2; ++call) text = message_of([&] { policy.run({at::ones({3, 2})}); });
    CHECK(policy.state().empty());
    return text;
  };
  CHECK(message("z:to(torch.float64)").find("state.lua:4: ") == 0);
  CHECK(message("z:to(torch.float64)")
            .find("the state 'last' as Double of shape [3, 2], and it is declared as "
                  "Tensor(float32_t, {\"N\", 2}) in a batch of 3") != std::string::npos);
  CHECK(message("z[0]").find("of shape [2]") != std::string::npos);
  CHECK(message("nil").find("return every state as a tensor, also one that stays: {last = s.last}") !=
        std::string::npos);
  CHECK(message("1.0").find(" as 'last'") != std::string::npos);
  CHECK(message("z, lost = z").find("the name 'lost', which `state` does not declare") != std::string::npos);
  const auto returns = [&](const std::string& results) {
    const Policy policy = runtime.load_source(
        "return policy { state = {n = {shape = {}}}, run = function(z, s) return " + results + " end }", "state.lua");
    return message_of([&] { policy.run({at::ones({3, 2})}); });
  };
  CHECK(returns("z").find(" as its last result, and a policy with state returns the new state there") !=
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
  const std::string message = message_of([&] { policy.run({z, at::ones({5})}); });
  CHECK(message.find(
            "sizes.lua:5: policy 'sizes' (version 1): `run` returned the state 'kept' as Float of shape [5]") == 0);
  CHECK(policy.run({z, w})[0].equal(at::full({3}, 4.0)));
}

TEST_CASE("declarations that no call could begin with are refused, with a hint") {
  Runtime runtime(quiet());
  const auto refusal = [&](const std::string& state, const std::string& run = "function(z, s) return z, s end") {
    return message_of([&] {
      runtime.load_source("return policy { params = {}, state = " + state + ", run = " + run + " }", "state.lua");
    });
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return doctest::String((text.find(part) != std::string::npos ? "" : "got: " + text).c_str());
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
  for (const std::string init :
       {"uint8, init = -1", "uint8, init = 256", "int8, init = -129", "int16, init = 32768", "float16, init = 1e6"}) {
    CAPTURE(init);
    const std::string text = refusal("{last = {shape = {}, dtype = torch." + init + "}}");
    CHECK(has(text, "'last': field 'init': torch." + init.substr(0, init.find(',')) + " cannot hold this number") ==
          fine);
  }
  CHECK(refusal("{last = {shape = {}, dtype = torch.uint8, init = 255}}").empty());
  CHECK(refusal("{last = {shape = {}, dtype = torch.int8, init = -128}}").empty());
  CHECK(has(refusal("{last = {shape = {}, inti = 1}}"), "did you mean 'init'") == fine);
  CHECK(has(refusal("{[1] = {shape = {}}}"), "expected names") == fine);
  CHECK(has(refusal("{z = {shape = {}}}"), "'z' is both an input and a state") == fine);
  CHECK(has(refusal("{last = {shape = {}}}", "function(z) return z end"), "with state the last one receives it") ==
        fine);
  CHECK(refusal("{last = {shape = {\"N\", 2}, init = math.huge}}").empty());
  CHECK(has(refusal("{last = {shape = {200000000000}}}"), "the limit is 4096 MiB (Limits::tensor_bytes)") == fine);
  const std::string both = message_of([&] {
    runtime.load_source(
        "return policy { params = {k = 1}, state = {n = {shape = {}}}, run = function(z, p) return z, p end }",
        "s.lua");
  });
  CHECK(has(both, "run = function(z, p, s)") == fine);
  const std::string param = message_of([&] {
    runtime.load_source(
        "return policy { params = {k = 1}, state = {k = {shape = {}}}, run = function(z, p, s) return z, s end }",
        "s.lua");
  });
  CHECK(has(param, "'k' is both a param and a state") == fine);
}

TEST_CASE("a batch whose state takes more than the budget of tensor memory is refused before it is allocated") {
  Runtime runtime(quiet());
  const Policy policy = runtime.load_source(
      "return policy { state = {last = {shape = {'N', 500000000}}}, run = function(z, s) return z, s end }");
  CHECK_THROWS_AS(policy.run({at::ones({3, 2})}), triage::LimitError);
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
    const auto state = policy.state();
    for (const auto& [name, tensor] : state[0].tensors) CHECK_FALSE(tensor.requires_grad());
  }
  const Policy scaled = runtime.load_source(
      "return policy { state = {k = {shape = {}, init = 1}}, run = function(z, s) return z * s.k, {k = s.k + z:mean()} "
      "end }");
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
  const auto refused = [&](const PolicyState& wrong) { return message_of([&] { policy.set_state(wrong); }); };
  CHECK(refused({{"a", {{"m", at::ones({})}}}}).find("has no state 'm'; it declares (n)") != std::string::npos);
  CHECK(refused({{"a", {{"n", at::ones({})}}}})
            .find("is declared as Tensor(int64_t, {}), and set_state got Float of shape []") != std::string::npos);
  CHECK(refused({{"a", {}}, {"a", {}}}).find("the key 'a' twice") != std::string::npos);
  CHECK(count_of(policy, "b") == 3);  // as it was
  policy.set_state({{"d", {{"n", at::full({}, 7, at::kLong)}}}});
  CHECK(count_of(policy, "b") == -1);
  CHECK(next_of(policy, {.state_key = "d"}) == 7);
}
