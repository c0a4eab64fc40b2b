// What a policy's captured graph must not get wrong, and what a policy must not do to its host.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/compiler_config.h>
#include <triage/triage.h>

#include <chrono>
#include <limits>
#include <string>
#include <thread>

#include "tests/lua/policies/policies.h"

using triage::Policy;
using triage::Runtime;
using triage::test::says;

namespace {

Policy load_sound(const std::string& source, triage::RuntimeOptions options = {}) {
  return Runtime(std::move(options)).load_source(source, "test.lua");
}

float first_number(const at::Tensor& tensor) { return tensor.flatten()[0].item<float>(); }

template <typename Call>
std::string thrown_by(const Call& call) {
  try {
    call();
    return "(no error)";
  } catch (const triage::Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a graph of before a write to an upvalue is not used after it") {
  const Policy policy =
      load_sound("local k = 1\nreturn function(z) if z:size(0) == 3 then k = k + 1 end return z * 0 + k end");
  const auto run = [&](int64_t n) { return first_number(policy.run({at::zeros({n, 2})})[0]); };
  CHECK(run(2) == 1);
  CHECK(run(3) == 2);
  CHECK(run(2) == 2);
  CHECK(run(2) == 2);
  CHECK(run(3) == 3);
}

TEST_CASE("which inputs of a policy are one tensor is a guard, and one tensor is one value") {
  const Policy policy = load_sound("return function(a, b) if rawequal(a, b) then return a * 2 end return a + b end");
  const at::Tensor a = at::ones({2, 1}), b = at::full({2, 1}, 10.0);
  for (int i = 0; i < 2; ++i) {
    CHECK(first_number(policy.run({a, b})[0]) == 11);
    CHECK(first_number(policy.run({a, a})[0]) == 2);
    CHECK(first_number(policy.run({b, b})[0]) == 20);
  }
}

TEST_CASE("a script that writes its state and then fails leaves no graph of before") {
  const Policy policy = load_sound(
      "local mode = 1\nreturn function(z)\n"
      "  if z:size(0) == 3 then mode = 2 error('changed') end return z * 0 + mode end");
  CHECK(first_number(policy.run({at::zeros({2, 2})})[0]) == 1);
  CHECK_THROWS_AS(policy.run({at::zeros({3, 2})}), triage::PolicyError);
  CHECK(first_number(policy.run({at::zeros({2, 2})})[0]) == 2);
}

TEST_CASE("writing to an output changes neither the graph nor the script's state") {
  for (const char* source : {"return function(z) return torch.tensor({1.0, 2.0}), z end",
                             "local w = torch.ones({2}) return function(z) return w, z end",
                             "local w = torch.ones({2}) return function(z) local _ = z:sum():item() return w, z end"}) {
    const Policy policy = load_sound(source);
    const at::Tensor z = at::ones({2, 2});
    for (int call = 0; call < 3; ++call) {
      const auto outputs = policy.run({z});
      CHECK(first_number(outputs[0]) == 1);
      outputs[0].fill_(-7);
    }
  }
}

TEST_CASE("outputs that were computed twice do not share their memory") {
  const Policy policy = load_sound("return function(z) return z:nan_to_num(), z:nan_to_num() end");
  for (const char* backend : {"eager", "fused", "aot_eager"}) {
    triage::RuntimeOptions options;
    options.backend = backend;
    const Policy one = load_sound("return function(z) return z:nan_to_num(), z:nan_to_num() end", options);
    const at::Tensor z = at::zeros({2, 2});
    one.prepare({z});
    const auto outputs = one.run({z});
    outputs[0].add_(100);
    CHECK(first_number(outputs[1]) == 0);
  }
}

TEST_CASE("a size that a param decides is never frozen") {
  const Policy policy = load_sound(
      "return policy{inputs = {'z'}, params = {k = 2}, run = function(z, p)\n"
      "  local t = z:topk(p.k, -1) return z * 0 + t:size(1) end}");
  const at::Tensor z = at::rand({2, 5});
  CHECK(first_number(policy.run({z})[0]) == 2);
  policy.set_param("k", 3);
  CHECK(first_number(policy.run({z})[0]) == 3);
}

TEST_CASE("D04: a param that is read as a number is never frozen in a joint graph") {
  triage::RuntimeOptions options;
  options.backend = "aot_eager";
  const Policy policy = load_sound(
      "return policy{inputs = {'z'}, params = {k = 2.0}, fullgraph = true, run = function(z, p)\n"
      "  return z:leaky_relu(p.k) * p.k end}",
      options);
  for (const double k : {2.0, 3.0, 2.0, -0.5, 3.0, 3.0, -0.5}) {
    policy.set_param("k", k);
    const at::Tensor z = (-at::ones({3})).requires_grad_();
    policy.run({z})[0].sum().backward();
    CHECK(z.grad().eq(k * k).all().item<bool>());
  }
}

TEST_CASE("D20: policies choose backends, and bring none") {
  const Policy policy = load_sound("return function(z) return z + (triage.register_backend == nil and 1 or 2) end");
  CHECK(first_number(policy.run({at::zeros({2})})[0]) == 1);
  const std::string own =
      "local f = triage.compile(function(z) return z end, {backend = function(graph) return graph end})\n"
      "return function(z) return f(z) end";
  CHECK(says(thrown_by([&] { load_sound(own).run({at::zeros({2})}); }), "a policy gives its backend by name"));
}

TEST_CASE("D04: a policy whose backend cannot compile runs with eager, or fails under fullgraph") {
  triage::RuntimeOptions options;
  options.backend = "faulty_compile";
  const Policy policy = load_sound("return function(z) return z:relu() end", options);
  for (int call = 0; call < 3; ++call) CHECK(first_number(policy.run({at::ones({2})})[0]) == 1);
  options.fullgraph = true;
  const Policy strict = load_sound("return function(z) return z:relu() end", options);
  CHECK(says(thrown_by([&] { strict.run({at::ones({2})}); }), "cannot be compiled, on purpose"));
}

TEST_CASE("params look the same on every call") {
  const Policy policy = load_sound(
      "return policy{inputs = {'z'}, params = {k = 2}, run = function(z, p)\n"
      "  if p.k > 1 then return z * (math.type(p.k) == 'integer' and 1 or 2) end return z end}");
  const at::Tensor z = at::ones({2});
  const float once = first_number(policy.run({z})[0]);
  for (int call = 0; call < 3; ++call) CHECK(first_number(policy.run({z})[0]) == once);
}

TEST_CASE("calling itself, through a function of the host, is an error and no deadlock") {
  Runtime runtime;
  Policy policy;
  runtime.define("again", [&](const std::vector<at::Tensor>& in) { return policy.run(in); });
  policy = runtime.load_source("return function(z) return again(z) * 2 end", "again.lua");
  CHECK(says(thrown_by([&] { policy.run({at::ones({2})}); }), "a policy cannot call itself"));
  const Policy recursive = load_sound(
      "local f\nf = triage.compile(function(x) local _ = x:sum():item() return f(x) end)\n"
      "return function(z) local _ = z:sum():item() return f(z) end");
  CHECK_THROWS_AS(recursive.run({at::ones({2})}), triage::Error);
}

TEST_CASE("a deadline passes while another thread has the script") {
  Runtime runtime;
  runtime.define("wait", [](const std::vector<at::Tensor>& in) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    return in;
  });
  const Policy policy = runtime.load_source("return function(z) return wait(z) end", "wait.lua");
  policy.run({at::ones({2})});
  std::thread other([&] { policy.run({at::ones({2})}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  CHECK_THROWS_AS(policy.run({at::ones({2})}, {.deadline = soon}), triage::LimitError);
  other.join();
}

TEST_CASE("preparing calls no function of the host with inputs that nobody sent") {
  Runtime runtime;
  int calls = 0;
  runtime.define("audit", [&](const std::vector<at::Tensor>& in) {
    ++calls;
    return in;
  });
  const Policy policy = runtime.load_source("return function(z) return z + 1 end", "audit.lua");
  policy.run({at::ones({2})});
  CHECK(policy.replace("return function(z) return audit(z) + 2 end") == triage::Reload::swapped);
  CHECK(calls == 0);
  CHECK(first_number(policy.run({at::ones({2})})[0]) == 3);
  CHECK(calls == 1);
}

TEST_CASE("sandbox: the host's autograd state is out of reach") {
  const at::Tensor z = at::ones({2}).requires_grad_(true);
  (z * 2).sum().backward();
  for (const char* line : {"z.grad = nil", "z.requires_grad = false", "z:sum():backward()", "z:requires_grad_(false)",
                           "torch.autograd.grad(z:sum(), z)", "z:retain_grad()"}) {
    const Policy policy = load_sound(std::string("return function(z) ") + line + " return z end");
    CHECK_MESSAGE(says(thrown_by([&] { policy.run({z}); }), "is not for policies"), line);
  }
  CHECK(z.requires_grad());
  CHECK(first_number(z.grad()) == 2);
}

TEST_CASE("sandbox: one operator cannot take minutes, or more memory than the budget") {
  for (const char* line : {"torch.ones({1}):expand({1 << 42}):sum()", "torch.zeros({1}):expand({10000000000}):clone()",
                           "torch.zeros({1}):expand({30000000}):split(1)"}) {
    const Policy policy = load_sound(std::string("return function(z) local _ = ") + line + " return z end");
    CHECK_THROWS_AS(policy.run({at::ones({2})}), triage::Error);
  }
  triage::RuntimeOptions options;
  options.limits.tensor_bytes = 10u << 20;
  const auto ones = [&](const std::string& line) {
    return load_sound("return function(z) local kept = {} for i = 1, 150 do " + line + " end return z end", options);
  };
  CHECK_THROWS_AS(ones("kept[i] = torch.ones({250000})").run({at::ones({2})}), triage::LimitError);
  CHECK_NOTHROW(ones("local gone = torch.ones({250000})").run({at::ones({2})}));
}

TEST_CASE("records count by their rows: large batches of several dims are within the budget") {
  const Policy policy = load_sound(R"(
return function(z)
  local f = push(flag_nan(z, "z"), err.INF, "z", {where = z:eq(math.huge):flatten(1):any(-1)})
  z, f = fix(z, f, "z", {fallback = 0.0})
  return err.take_ok_p(f, z, 1.0), f
end)");
  at::Tensor z = at::ones({4096, 1, 8, 8});
  z[7][0][1][2] = std::numeric_limits<float>::quiet_NaN();
  for (const triage::Stance stance : {triage::Stance::default_stance, triage::Stance::force_eager}) {
    triage::set_stance(stance);
    const std::vector<at::Tensor> outputs = policy.run({z});
    triage::set_stance(triage::Stance::default_stance);
    CHECK(outputs[0].sum().item<float>() == 4096 * 64);
    CHECK_FALSE(outputs[1][7].eq(0).all().item<bool>());
  }
}

TEST_CASE("sandbox: a policy gets its share of the location ids, and no more") {
  const Policy greedy =
      load_sound("return function(z) for i = 1, 1100 do ErrorLocation.register('greedy.' .. i) end return z end");
  CHECK_THROWS_AS(greedy.run({at::ones({2})}), triage::LimitError);
  CHECK(triage::ErrorLocation::register_path("after.greedy") != triage::ErrorLocation::UNKNOWN);
}

TEST_CASE("sandbox: smallest integers by -1, from data") {
  const Policy policy = load_sound("return function(x, y) return x // y, x % y, x:fmod(y) end");
  const at::Tensor x = at::full({3}, std::numeric_limits<int64_t>::min(), at::kLong), y = at::full({3}, -1, at::kLong);
  for (int call = 0; call < 2; ++call) CHECK(policy.run({x, y})[1].eq(0).all().item<bool>());
}

TEST_CASE("sandbox: integers by numbers that wrap to -1 in their dtype, wherever the division runs") {
  const char* const forms[] = {"floor_divide(z, k)", "remainder(z, k)", "fmod(z, k)",
                               "div(z, k, {rounding_mode = 'trunc'})", "div(z, k, {rounding_mode = 'floor'})"};
  const std::pair<at::ScalarType, const char*> divisors[] = {
      {at::kInt, "4294967295"}, {at::kInt, "-4294967297"}, {at::kShort, "65535"}, {at::kChar, "255"}};
  for (const char* const backend : {"eager", "fused"})
    for (const char* const form : forms)
      for (const auto& [dtype, number] : divisors)
        for (const std::string& k : {std::string(number), "torch.tensor(" + std::string(number) + ")"}) {
          CAPTURE(std::string(form));
          CAPTURE(k);
          triage::RuntimeOptions options;
          options.backend = backend;
          const Policy policy = triage::Runtime(options).load_source(
              "return function(z) local k = " + k + " return torch." + form + " end", "wraps.lua");
          const int64_t least = -(int64_t{1} << (8 * c10::elementSize(dtype) - 1));
          const at::Tensor z = at::tensor({least, least + 1, int64_t{7}}, at::kLong).to(dtype);
          const at::Tensor by_minus_one = std::string(form)[0] == 'r' || form[1] == 'm' ? at::zeros_like(z) : z.neg();
          for (int call = 0; call < 2; ++call) CHECK(policy.run({z})[0].equal(by_minus_one));
        }
}

TEST_CASE("sandbox: modules give no way to write to an input") {
  const char* const writes[] = {
      "m:register_buffer('b', z) m:load_state_dict({b = z * 0 + 7})",
      "m.p = nn.Parameter(z) m:load_state_dict({p = z * 0 + 7})",
      "m.p = nn.Parameter(z:t()) m:load_state_dict({p = z:t() * 0 + 7})",
      "m:register_buffer('b', z) m:to(torch.float64)",
      "m.p = nn.Parameter(z:view({-1})) m:to(torch.float64)",
      "local v = z:view({-1}) m:register_buffer('b', v) triage.graph_break() m:load_state_dict({b = v * 0 + 7})",
      "torch.no_grad(function() m:register_buffer('b', z:t()) m:load_state_dict({b = z:t() * 0 + 7}) end)",
      "local v = z:select(0, 1) triage.graph_break() m.p = nn.Parameter(v) m:load_state_dict({p = v + 1})",
  };
  for (const char* const write : writes) {
    CAPTURE(std::string(write));
    const Policy policy =
        load_sound("return function(z) local m = nn.Module('m', {}) " + std::string(write) + " return z + 0 end");
    const at::Tensor z = at::ones({2, 3});
    const void* const data = z.data_ptr();
    for (int call = 0; call < 5; ++call) CHECK(says(thrown_by([&] { policy.run({z}); }), "inputs belong to the host"));
    CHECK(z.equal(at::ones({2, 3})));
    CHECK(z.data_ptr() == data);
  }
}

TEST_CASE("sandbox: gradients of gradients are not for policies, and what autograd keeps counts to the budget") {
  const auto loading = [](const std::string& chunk) {
    return thrown_by([&] {
      triage::RuntimeOptions options;
      options.limits.tensor_bytes = 16u << 20;
      triage::Runtime(options).load_source(chunk + "\nreturn function(z) return z end", "autograd.lua");
    });
  };
  const std::string leaf = "local x = torch.ones({1 << 10}):requires_grad_() ";
  CHECK(loading(leaf + "x:exp():sum():backward() assert(x.grad[0]:item() > 2.7)") == "(no error)");
  CHECK(
      says(loading(leaf + "x:exp():sum():backward(nil, {create_graph = true})"), "`create_graph` is not for policies"));
  CHECK(says(loading(leaf + "torch.autograd.grad({x:exp():sum()}, {x}, nil, {create_graph = true})"),
             "`create_graph` is not for policies"));
  const std::string large = "local x = torch.ones({1 << 18}):requires_grad_() ";
  CHECK(says(loading(large + "for i = 1, 100 do x = x:exp():neg() end"), "budget of tensor memory"));
  CHECK(loading(large + "for i = 1, 100 do local y = x:exp():neg() end") == "(no error)");
}

TEST_CASE("a policy loaded in inference mode serves calls with gradients") {
  Policy policy;
  {
    const c10::InferenceMode inference;
    policy = load_sound("local w = torch.full({2}, 3.0)\nreturn function(z) return z * w end");
  }
  const at::Tensor z = at::ones({2}).requires_grad_(true);
  policy.run({z})[0].sum().backward();
  CHECK(first_number(z.grad()) == 3);
}

TEST_CASE("the sizes of a meta tensor are known, captured and not") {
  for (const triage::Stance stance : {triage::Stance::force_eager, triage::Stance::default_stance}) {
    triage::set_stance(stance);
    const Policy policy =
        load_sound("return function(z) return torch.zeros({#z, z.shape[2], z:size(0), z:numel()}) end");
    for (const int64_t rows : {2, 3, 5})
      CHECK(policy.run({at::empty({rows, 3}, at::kMeta)})[0].sizes() == at::IntArrayRef({rows, 3, rows, 3 * rows}));
  }
}

TEST_CASE("outputs that are copied because they lie in others' memory stay expanded") {
  const char* const sources[] = {
      "return function(z) return z[0]:expand({2000000000, 3}) end",
      "local k = torch.ones({3}) return function(z) return k:expand({2000000000, 3}), z * 2 end"};
  for (const char* source : sources)
    for (const char* backend : {"eager", "aot_eager", "fused"})
      for (const bool with_gradient : {false, true})
        for (const triage::Stance stance : {triage::Stance::force_eager, triage::Stance::default_stance}) {
          CAPTURE(source);
          CAPTURE(backend);
          triage::set_stance(stance);
          triage::RuntimeOptions options;
          options.backend = backend;
          const Policy policy = load_sound(source, options);
          for (int call = 0; call < 3; ++call) {
            const at::Tensor z = at::ones({2, 3}).set_requires_grad(with_gradient);
            const at::Tensor y = policy.run({z})[0];
            CHECK(y.sizes() == at::IntArrayRef({2000000000, 3}));
            CHECK_FALSE(y.is_alias_of(z));
            CHECK(y[1999999999].equal(at::ones({3})));
            y.detach()[0].fill_(7);
          }
        }
  triage::set_stance(triage::Stance::default_stance);
}

TEST_CASE("gradients reach a tensor of the host that a policy returns, or a view of it, in every call") {
  for (const char* backend : {"eager", "aot_eager", "fused"})
    for (const char* returned : {"w", "w:view({2, 2})", "w:unsqueeze(0)", "w:contiguous()", "w:narrow(0, 0, 4), w"}) {
      CAPTURE(backend);
      CAPTURE(returned);
      Runtime runtime({.backend = backend});
      const at::Tensor w = at::ones({4}).requires_grad_(true);
      runtime.define_tensor("w", w);
      const Policy policy = runtime.load_source("return function(z) return " + std::string(returned) + " end", "w.lua");
      for (int call = 0; call < 3; ++call) {
        w.mutable_grad() = at::Tensor();
        const at::Tensor y = policy.run({at::ones({2, 4})})[0];
        CHECK_FALSE(y.is_alias_of(w));
        y.sum().backward();
        REQUIRE(w.grad().defined());
        CHECK(w.grad().equal(at::ones({4})));
      }
    }
}

TEST_CASE("a module that writes to its argument writes to no input, and to nothing else of the script") {
  torch::jit::Module inner("inner"), module("outer");
  inner.define("def forward(self, x):\n    y = x.view(-1)\n    return y.relu_().view_as(x)\n");
  module.register_module("inner", inner);
  module.define("def forward(self, x):\n    return self.inner.forward(x) + 1\n");
  for (const char* source :
       {"return function(z) return m(z), z * 1 end", "return function(z) local y = z * 1 return m(y), y end",
        "return function(z) print(1) return m(z), z * 1 end"})
    for (const char* backend : {"eager", "aot_eager", "fused"}) {
      CAPTURE(source);
      CAPTURE(backend);
      triage::RuntimeOptions options;
      options.backend = backend;
      options.print = [](const std::string&) {};
      options.log = [](const triage::LogRecord&) {};
      Runtime runtime(options);
      runtime.define_module("m", module);
      const Policy policy = runtime.load_source(source, "m.lua");
      for (int call = 0; call < 3; ++call) {
        const at::Tensor z = at::full({2, 3}, -1.0);
        const auto outputs = policy.run({z});
        CHECK(outputs[0].equal(at::ones({2, 3})));
        CHECK(outputs[1].equal(at::full({2, 3}, -1.0)));
        CHECK(z.equal(at::full({2, 3}, -1.0)));
      }
    }
}

TEST_CASE("gradients reach a tensor of the host that has other sizes than in the call before") {
  for (const char* backend : {"eager", "aot_eager", "fused"}) {
    CAPTURE(backend);
    Runtime runtime({.backend = backend});
    const at::Tensor w = at::ones({4}).requires_grad_(true), x = at::ones({2, 4}).requires_grad_(true);
    runtime.define_tensor("w", w);
    const Policy policy = runtime.load_source("return function(z) return z + w end", "w.lua");
    for (const int64_t size : {4, 1, 1, 4, 1}) {
      w.set_data(at::ones({size}));
      w.mutable_grad() = at::Tensor();
      policy.run({x})[0].sum().backward();
      CHECK(w.grad().equal(at::full({size}, 8.0 / static_cast<double>(size))));
    }
  }
}

TEST_CASE("in inference mode, a policy with graph breaks takes views of inputs that were made outside of it") {
  for (const char* body :
       {"if z[0][1]:item() > 9 then return z * 0 end return z * 2", "print(1) return z:narrow(1, 0, 2) * 2",
        "print(1) local y = z * 2 local v = y:view({-1}) print(2) v:add_(0) return y",
        "print(1) local v = z:t() print(2) return v * 2"})
    for (const char* backend : {"eager", "aot_eager", "fused"})
      for (const bool outside : {false, true}) {
        CAPTURE(body);
        CAPTURE(backend);
        CAPTURE(outside);
        triage::RuntimeOptions options;
        options.backend = backend;
        options.print = [](const std::string&) {};
        options.log = [](const triage::LogRecord&) {};
        const Policy policy = load_sound("return function(z) " + std::string(body) + " end", options);
        const at::Tensor made_outside = at::ones({3, 4});
        const c10::InferenceMode inference;
        for (int call = 0; call < 4; ++call)
          CHECK(first_number(policy.run({outside ? made_outside : at::ones({3, 4})})[0]) == 2);
      }
}
