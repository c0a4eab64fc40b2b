// What a host gives policies: lists and tensors as params, tensors, TorchScript modules, and pure functions. All are
// parts of graphs.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/capsule.h>
#include <triage/triage.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/lua/policies/policies.h"
#include "tests/paths.h"

namespace {

using triage::FunctionOptions;
using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::RuntimeOptions;
using triage::graph::TensorMeta;
using triage::test::backends;
using triage::test::says;

using Tensors = std::vector<at::Tensor>;

constexpr int64_t batches[] = {0, 1, 2, 31, 32, 33};

Runtime runtime_of(const std::string& backend) {
  RuntimeOptions options;
  options.backend = backend;
  options.log = [](const triage::LogRecord&) {};
  return Runtime(options);
}

template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const triage::Error& error) {
    return error.what();
  }
  return "no error";
}

/// As one graph; a graph break fails the call.
Policy load_given(Runtime& runtime, const std::string& fields, const std::string& body) {
  return runtime.load_source(
      "return policy {inputs = {'z'}, fullgraph = true, " + fields + " run = function(z, p) " + body + " end}",
      "given.lua");
}

std::string text_of_graph(const Policy& policy) { return triage::graph::print(*policy.graphs().at(0).graph); }

Tensors twice_plus_rows(const Tensors& given) { return {given[0] * 2 + given[0].sum(-1, true)}; }

torch::jit::Module linear_module() {
  torch::jit::Module module("Small");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("weight", at::arange(12, at::kFloat).view({3, 4}), false);
  module.define("def forward(self, x):\n    return torch.relu(torch.matmul(x, self.weight.t())) - 1.5\n");
  module.eval();
  return module;
}

}  // namespace

TEST_CASE("a param is a list of numbers: a tensor, whose values change without another graph") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    const Policy policy =
        load_given(runtime, "params = {limits = {0.25, 0.5, 0.75}},", "return z:gt(p.limits), z * p.limits");
    for (const int64_t batch : batches) {
      const at::Tensor z = at::rand({batch, 3}), limits = at::tensor({0.25F, 0.5F, 0.75F});
      const auto [above, scaled] = policy.run<2>({z});
      CHECK(above.equal(z.gt(limits)));
      CHECK(scaled.equal(z * limits));
    }
    const size_t graphs = policy.graphs().size();
    const at::Tensor z = at::rand({33, 3});
    policy.set_param("limits", std::vector<double>{1, 2, 3});
    CHECK(policy.run({z})[1].equal(z * at::tensor({1.0F, 2.0F, 3.0F})));
    triage::RunOptions options;
    options.params = {{"limits", std::vector<int>{4, 5, 6}}};
    CHECK(policy.run({z}, options)[1].equal(z * at::tensor({4.0F, 5.0F, 6.0F})));
    CHECK(policy.run({z})[1].equal(z * at::tensor({1.0F, 2.0F, 3.0F})));
    policy.set_param("limits", at::tensor({7.0F, 8.0F, 9.0F}));
    CHECK(policy.run({z})[1].equal(z * at::tensor({7.0F, 8.0F, 9.0F})));
    CHECK(policy.graphs().size() == graphs);
    policy.set_param("limits", std::vector<double>{0.5});
    CHECK(policy.run({z})[1].equal(z * at::tensor({0.5F})));
  }
}

TEST_CASE("a list of whole numbers is int64, and a policy may loop over the length of a list") {
  Runtime runtime = runtime_of("fused");
  const Policy policy = load_given(runtime, "params = {columns = {0, 2}},",
                                   "local sum = torch.zeros({3}) for i = 0, #p.columns - 1 do sum = sum + i end "
                                   "return z:index_select(1, p.columns), sum");
  const at::Tensor z = at::rand({5, 4});
  CHECK(policy.run({z})[0].equal(z.index_select(1, at::tensor({0, 2}, at::kLong))));
  policy.set_param("columns", std::vector<double>{3, 1, 0});
  const auto [taken, sum] = policy.run<2>({z});
  CHECK(taken.equal(z.index_select(1, at::tensor({3, 1, 0}, at::kLong))));
  CHECK(sum.equal(at::full({3}, 3.0)));
  CHECK(says(refusal_of([&] { policy.set_param("columns", std::vector<double>{0.5}); }),
             "param 'columns' is a list of integers, and the given value is not: got a list of 1 numbers, with 0.5 at "
             "index 0"));
}

TEST_CASE("a param is a tensor; another shape or dtype is another graph, other values are none") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    const Policy policy =
        load_given(runtime, "params = {table = torch.zeros({4, 2})},", "return p.table:index_select(0, z)");
    const at::Tensor ids = at::tensor({3, 0, 2}, at::kLong);
    CHECK(policy.run({ids})[0].equal(at::zeros({3, 2})));
    const at::Tensor table = at::rand({4, 2});
    policy.set_param("table", table);
    CHECK(policy.run({ids})[0].equal(table.index_select(0, ids)));
    CHECK(policy.graphs().size() == 1);
    policy.set_param("table", table.to(at::kDouble));
    CHECK(policy.run({ids})[0].equal(table.to(at::kDouble).index_select(0, ids)));
  }
}

TEST_CASE("a value that does not fit a param is an error that names both") {
  Runtime runtime = runtime_of("fused");
  const Policy policy = load_given(runtime, "params = {k = 1, limits = {0.5, 1}},", "return z + p.k + p.limits");
  const auto set = [&](const char* name, const triage::ParamValue& value) {
    return refusal_of([&] { policy.set_param(name, value); });
  };
  CHECK(says(set("k", std::vector<double>{1, 2}),
             "param 'k' is an integer, and the given value is not: got a list of 2 numbers"));
  CHECK(says(set("k", at::ones({2})), "got a tensor of Float {2}"));
  CHECK(says(set("limits", 2.5), "param 'limits' is a list of numbers, and the given value is not: got 2.5"));
  CHECK(says(set("limits", at::ones({2, 2})), "got a tensor of Float {2, 2}"));
  CHECK(says(set("limits", at::ones({2}, at::kDouble)), "got a tensor of Double {2}"));
  CHECK(says(set("limits", at::Tensor()), "got an undefined tensor"));
  const Policy bytes =
      load_given(runtime, "params = {k = torch.ones({2}, {dtype = torch.uint8})},", "return z + p.k:sum()");
  CHECK(says(refusal_of([&] { bytes.set_param("k", std::vector<int64_t>{300, 1}); }), "got a list of 2 numbers"));
  bytes.set_param("k", std::vector<int64_t>{255, 1});
  for (const char* const value : {"{}", "{1, 'x'}", "'x'", "function() end", "{true}"})
    CHECK(says(refusal_of([&] { load_given(runtime, "params = {k = " + std::string(value) + "},", "return z"); }),
               "param 'k': expected a number, a boolean, a tensor, or a list of 1 to 1048576 numbers"));
}

TEST_CASE("a script writes to no list, and what it returns of one is a copy") {
  Runtime runtime = runtime_of("fused");
  const Policy writes = load_given(runtime, "params = {k = {1, 2}},", "p.k:add_(1) return z");
  CHECK(says(refusal_of([&] { writes.run({at::ones({1})}); }), "belong to the host"));
  const at::Tensor mine = at::ones({2}, at::kLong);
  const Policy returns = load_given(runtime, "params = {k = {1, 2}},", "return p.k, z");
  returns.set_param("k", mine);
  for (int call = 0; call < 3; ++call) returns.run({at::ones({1})})[0].fill_(7);
  CHECK(mine.equal(at::ones({2}, at::kLong)));
}

TEST_CASE("a policy with graph breaks takes lists, too") {
  for (const char* const backend : backends) {
    Runtime runtime = runtime_of(backend);
    const Policy policy = runtime.load_source(
        "return policy {inputs = {'z'}, params = {w = {0.5, 2}}, run = function(z, p) local y = z * p.w "
        "if y:sum():item() > 1e9 then return y end return (y + p.w) * 3 end}",
        "breaks.lua");
    for (int call = 0; call < 6; ++call) {
      const double factor = 1 + call;
      policy.set_param("w", std::vector<double>{factor, 2});
      const at::Tensor z = at::rand({2 + call, 2}), w = at::tensor({static_cast<float>(factor), 2.0F});
      CHECK(policy.run({z})[0].equal((z * w + w) * 3));
    }
  }
}

TEST_CASE("a reload keeps lists that were set, and refuses another kind of param") {
  Runtime runtime = runtime_of("fused");
  const auto source = [](const std::string& value, const std::string& factor) {
    return "return policy {inputs = {'z'}, params = {w = " + value + "}, run = function(z, p) return z * p.w * " +
           factor + " end}";
  };
  const Policy policy = runtime.load_source(source("{1.5, 2}", "1"), "reload.lua");
  policy.set_param("w", std::vector<double>{4, 8});
  const at::Tensor z = at::ones({3, 2});
  policy.run({z});
  CHECK(policy.replace(source("{0.5, 0.5}", "2")) == Reload::swapped);
  CHECK(policy.run({z})[0].equal(z * at::tensor({8.0F, 16.0F})));
  CHECK(policy.replace(source("3", "2")) == Reload::refused);
  CHECK(says(policy.version().last_error->message, "param 'w' from a list of numbers to an integer"));
}

TEST_CASE("a capsule holds lists, tensors and what functions and modules of the host gave") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "triage_given_capsule.pt";
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    runtime.define("twice", twice_plus_rows, {.pure = true});
    runtime.define_module("small", linear_module());
    runtime.define_tensor("offsets", at::tensor({1.0F, 2.0F, 3.0F, 4.0F}));
    const Policy policy =
        load_given(runtime, "params = {w = {1, 2.5, 3, 4}},", "local y = twice(z * p.w) + offsets return y, small(y)");
    policy.set_param("w", std::vector<double>{2, 3, 4, 5});
    for (int call = 0; call < 3; ++call) {
      triage::record(policy, {at::rand({4, 4})}, {.file = file.string()});
      const triage::Replayed replayed = triage::replay(file.string());
      CHECK_MESSAGE(replayed.same, replayed.difference);
    }
  }
  std::filesystem::remove(file);
}

TEST_CASE("a pure function of the host is a node of one graph, for all sizes of the batch") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    std::atomic<int> calls{0};
    runtime.define("twice", [&](const Tensors& given) { return ++calls, twice_plus_rows(given); }, {.pure = true});
    const Policy policy = load_given(runtime, "", "local y = twice(z + 1) local f = flag_nan(y, 'y') return y * 3, f");
    const c10::NoGradGuard no_grad;
    for (const int64_t batch : batches) {
      const at::Tensor z = at::rand({batch, 3});
      const int before = calls;
      CHECK(policy.run({z})[0].equal(twice_plus_rows({z + 1})[0] * 3));
      CHECK(calls > before);
    }
    CHECK(policy.graphs().size() <= 3);  // sizes 0 and 1 may be graphs of their own
    CHECK(policy.graph_breaks().empty());
    CHECK(says(text_of_graph(policy), "call_host"));
  }
}

TEST_CASE("`shapes` tells which sizes of outputs are those of inputs") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    const auto split = [](const Tensors& given) -> Tensors {
      return {given[0].sum(-1), at::cat({given[0], given[1]}, 1).to(at::kDouble)};
    };
    const auto shapes = [](const std::vector<TensorMeta>& given) -> std::vector<TensorMeta> {
      return {{given.at(0).dtype, {given[0].sizes.at(0)}},
              {at::kDouble, {given[0].sizes[0], given[0].sizes.at(1) + given.at(1).sizes.at(1)}}};
    };
    runtime.define("split", split, {.pure = true, .shapes = shapes});
    const Policy policy = load_given(runtime, "", "local a, b = split(z, z * 2) return a + a:size(0), b");
    const c10::NoGradGuard no_grad;
    for (const int64_t batch : {2, 31, 32, 33}) {
      const at::Tensor z = at::rand({batch, 3});
      const auto [a, b] = policy.run<2>({z});
      CHECK(a.equal(z.sum(-1) + batch));
      CHECK(b.equal(split({z, z * 2})[1]));
    }
    CHECK(policy.graphs().size() == 1);
  }
}

TEST_CASE("a size that `shapes` caps is no size of an input: every batch has its answer") {
  Runtime runtime = runtime_of("fused");
  const auto first = [](const Tensors& given) -> Tensors {
    return {given[0].narrow(0, 0, std::min<int64_t>(given[0].size(0), 4)).clone()};
  };
  const auto shapes = [](const std::vector<TensorMeta>& given) -> std::vector<TensorMeta> {
    return {{given[0].dtype, {std::min<int64_t>(given[0].sizes[0], 4), given[0].sizes[1]}}};
  };
  runtime.define("first", first, {.pure = true, .shapes = shapes});
  const Policy policy = load_given(runtime, "", "local y = first(z) return y * y:size(0)");
  for (const int64_t batch : {2, 3, 4, 5, 9}) {
    const at::Tensor z = at::rand({batch, 3});
    CHECK(policy.run({z})[0].equal(first({z})[0] * std::min<int64_t>(batch, 4)));
  }
}

TEST_CASE("equal calls of a pure function are one, and calls of a module are not") {
  Runtime runtime = runtime_of("eager");
  std::atomic<int> calls{0};
  runtime.define("twice", [&](const Tensors& given) { return ++calls, Tensors{given[0] * 2}; }, {.pure = true});
  const Policy policy = load_given(runtime, "", "return twice(z) + twice(z)");
  const c10::NoGradGuard no_grad;
  policy.run({at::ones({3})});
  calls = 0;
  CHECK(policy.run({at::ones({3})})[0].equal(at::full({3}, 4.0)));
  CHECK(calls == 1);
}

TEST_CASE("a function that fails, or gives something else than it promises, is an error with the script's line") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    bool fails = false;
    const auto failing = [&](const Tensors& given) -> Tensors {
      if (fails) throw std::runtime_error("the index is closed");
      return {given[0] + 1};
    };
    runtime.define("look_up", failing, {.pure = true});
    runtime.define("wrong", [](const Tensors& given) -> Tensors { return {given[0].to(at::kDouble)}; }, {.pure = true});
    runtime.define("odd", [](const Tensors&) -> Tensors { throw 7; }, {.pure = true});
    const Policy policy = load_given(runtime, "", "\nreturn look_up(z) * 2");
    const c10::NoGradGuard no_grad;
    for (int call = 0; call < 3; ++call) policy.run({at::ones({2, 2})});
    fails = true;
    const std::string message = refusal_of([&] { policy.run({at::ones({2, 2})}); });
    CHECK(says(message, "given.lua:2"));
    CHECK(says(message, "the index is closed"));
    CHECK(says(refusal_of([&] { load_given(runtime, "", "return wrong(z)").run({at::ones({2})}); }),
               "`wrong`, a function of the host, returned Double {2} as output 1; a function without `shapes` promises "
               "Float {2}"));
    CHECK(says(refusal_of([&] { load_given(runtime, "", "return odd(z)").run({at::ones({2})}); }),
               "threw something that is no std::exception"));
  }
  Runtime runtime = runtime_of("fused");
  CHECK_THROWS_AS(runtime.define("f", nullptr, {.pure = true}), triage::InputError);
  CHECK_THROWS_AS(runtime.define("f", twice_plus_rows, {.shapes = [](const auto& given) { return given; }}),
                  triage::InputError);
}

TEST_CASE("gradients go through functions and modules of the host") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    const torch::jit::Module module = linear_module();
    const at::Tensor weight = module.attr("weight").toTensor();
    weight.set_requires_grad(true);
    runtime.define("twice", twice_plus_rows, {.pure = true});
    runtime.define_module("small", module);
    const Policy policy = load_given(runtime, "", "return small(twice(z) * 0.5) * 2");
    for (const bool of_input : {true, false, true}) {
      const at::Tensor z = at::rand({5, 4}).set_requires_grad(of_input),
                       twin = z.detach().clone().set_requires_grad(of_input);
      weight.mutable_grad() = at::Tensor();
      policy.run({z})[0].sum().backward();
      const at::Tensor of_weight = weight.grad().clone();
      weight.mutable_grad() = at::Tensor();
      torch::jit::Module same = module;
      (same.forward({twice_plus_rows({twin})[0] * 0.5}).toTensor() * 2).sum().backward();
      CHECK(of_weight.equal(weight.grad()));
      if (of_input) CHECK(z.grad().equal(twin.grad()));
    }
  }
}

TEST_CASE("a module of the host is a node of one graph, and reads the parameters that the host writes") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    torch::jit::Module module = linear_module();
    runtime.define_module("small", module);
    const Policy policy = load_given(runtime, "",
                                     "local f = flag_nan_and_inf(z, 'z') z, f = fix(z, f, 'z') "
                                     "local y = small(z) f = flag_nan(y, 'y', f) return y:relu() + 1, f");
    const c10::NoGradGuard no_grad;
    for (int round = 0; round < 2; ++round) {
      for (const int64_t batch : batches) {
        const at::Tensor z = at::rand({batch, 4});
        CHECK(policy.run({z})[0].equal(module.forward({z}).toTensor().relu() + 1));
      }
      module.attr("weight").toTensor().mul_(-0.5);
    }
    CHECK(policy.graph_breaks().empty());
    CHECK(policy.graphs().size() <= 3);
  }
}

TEST_CASE(
    "a module that is called in another grad mode than the policy breaks the graph, and gives what it gives there") {
  for (const char* const backend : backends) {
    Runtime runtime = runtime_of(backend);
    torch::jit::Module module = linear_module();
    module.attr("weight").toTensor().set_requires_grad(true);
    runtime.define_module("small", module);
    const Policy policy = runtime.load_source(
        "return function(z) return torch.no_grad(function() return small(z) end) + 1, small(z) end", "modes.lua");
    for (int call = 0; call < 3; ++call) {
      const auto [fixed, trained] = policy.run<2>({at::rand({3, 4})});
      CHECK_FALSE(fixed.requires_grad());
      CHECK(trained.requires_grad());
    }
    CHECK(says(policy.graph_breaks().at(0), "`small` of the host runs in another autocast or grad mode"));
  }
}

TEST_CASE("a branch for bad samples may call a module") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    torch::jit::Module same("Same");
    same.define("def forward(self, x):\n    return torch.zeros_like(x) + 3.0\n");
    runtime.define_module("instead", same);
    const Policy policy =
        load_given(runtime, "",
                   "local f = flag_nan_and_inf(z, 'z') "
                   "return IF(err.is_err(f), function() return instead(z) end):ELSE(function() return z end), f");
    const c10::NoGradGuard no_grad;
    for (const int64_t batch : batches) {
      const at::Tensor z = at::rand({batch, 2});
      if (batch > 1) z[1][0] = std::numeric_limits<float>::quiet_NaN();
      CHECK(policy.run({z})[0].equal(at::where(z.isfinite().all(1, true), z, at::full({1}, 3.0F))));
    }
  }
}

TEST_CASE("a module may return a tuple, and nothing but tensors") {
  Runtime runtime = runtime_of("fused");
  torch::jit::Module pair("Pair"), number("Number"), same("Same");
  pair.define("def forward(self, x, y):\n    return x + y, x - y\n");
  number.define("def forward(self, x):\n    return 3\n");
  same.define("def forward(self, x):\n    return x\n");
  runtime.define_module("pair", pair);
  runtime.define_module("number", number);
  runtime.define_module("same", same);
  const Policy policy = load_given(runtime, "", "local a, b = pair(z, z * 2) return a * b");
  const at::Tensor z = at::rand({4, 2});
  for (int call = 0; call < 3; ++call) CHECK(policy.run({z})[0].equal((z + z * 2) * (z - z * 2)));
  CHECK(
      says(refusal_of([&] { load_given(runtime, "", "return number(z)").run({z}); }), "returned a value of type int"));
  const Policy writes = load_given(runtime, "", "local y = same(z) y:add_(1) return y");
  for (int call = 0; call < 3; ++call) CHECK(writes.run({z})[0].equal(z + 1));
  CHECK_THROWS_AS(runtime.define_module("none", torch::jit::Module("None")), triage::InputError);
}

TEST_CASE("a reload tries a version on synthetic inputs with pure functions and modules that do not train") {
  Runtime runtime = runtime_of("fused");
  torch::jit::Module module = linear_module();
  std::atomic<int> calls{0};
  runtime.define("twice", [&](const Tensors& given) { return ++calls, twice_plus_rows(given); }, {.pure = true});
  runtime.define_module("small", module);
  const auto source = [](const std::string& factor) {
    return "return function(z) return small(twice(z)) * " + factor + " end";
  };
  const Policy policy = runtime.load_source(source("1"), "tried.lua");
  const at::Tensor z = at::rand({8, 4});
  policy.run({z});
  calls = 0;
  CHECK(policy.replace(source("2")) == Reload::swapped);
  CHECK(calls > 0);
  CHECK(policy.graphs().size() == 1);  // captured before the first call
  CHECK(policy.replace("return function(z) return small(twice(z)):sum(-1) end") == Reload::refused);
  module.train();
  CHECK(policy.replace(source("3")) == Reload::swapped);
  CHECK(policy.graphs().empty());
  CHECK(policy.run({z})[0].equal(module.forward({twice_plus_rows({z})[0]}).toTensor() * 3));
}

TEST_CASE("what a function returns is the graph's own: the host's memory stays as it is") {
  for (const char* const backend : backends) {
    Runtime runtime = runtime_of(backend);
    const at::Tensor kept = at::ones({3, 2});
    runtime.define("kept", [&](const Tensors&) -> Tensors { return {kept}; }, {.pure = true});
    runtime.define("same", [](const Tensors& given) { return given; }, {.pure = true});
    const Policy policy = load_given(runtime, "", "local a, b = kept(z), same(z) a:add_(z) b:mul_(5) return a, b");
    const c10::NoGradGuard no_grad;
    for (int call = 0; call < 3; ++call) {
      const at::Tensor z = at::rand({3, 2}), before = z.clone();
      const auto [a, b] = policy.run<2>({z});
      CHECK(a.equal(before + 1));
      CHECK(b.equal(before * 5));
      CHECK(z.equal(before));
      CHECK(kept.equal(at::ones({3, 2})));
    }
  }
}

TEST_CASE("a tensor of the host is read in every call, and written to by no script") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    const at::Tensor means = at::tensor({1.0F, 2.0F});
    runtime.define_tensor("means", means);
    const Policy policy = load_given(runtime, "", "return z - means, means");
    for (int call = 0; call < 4; ++call) {
      const at::Tensor z = at::rand({3 + call, 2});
      const auto [centred, own] = policy.run<2>({z});
      CHECK(centred.equal(z - means));
      own.fill_(77);
      means.add_(1);
    }
    CHECK(policy.graphs().size() == 1);
    const at::Tensor before = means.clone();
    for (const char* const body :
         {"means:add_(1) return z", "means[0] = 5 return z", "means:view({2, 1}):zero_() return z"})
      CHECK(says(refusal_of([&] {
                   load_given(runtime, "", body).run({at::ones({1, 2})});
                 }),
                 "would write to `means` in place, a tensor that the host gives to policies"));
    CHECK(says(refusal_of([&] { runtime.load_source("means:zero_() return function(z) return z end"); }), "`means`"));
    CHECK(means.equal(before));
  }
  Runtime runtime = runtime_of("fused");
  CHECK_THROWS_AS(runtime.define_tensor("x", at::Tensor()), triage::InputError);
  CHECK_THROWS_AS(runtime.define_tensor("", at::ones({1})), triage::InputError);
}

TEST_CASE("what a script asks a tensor of the host, without computing with it, is as the host has made it") {
  struct Change {
    const char* what;
    void (*make)(at::Tensor&);
  };
  const Change changes[] = {{"resize_", [](at::Tensor& w) { w.resize_({7}).fill_(1); }},
                            {"set_",
                             [](at::Tensor& w) {
                               w.set_(at::ones({2, 3}));
                             }},
                            {"set_data",
                             [](at::Tensor& w) {
                               w.set_data(at::ones({2, 4}, at::kDouble));
                             }},
                            {"requires_grad_", [](at::Tensor& w) { w.requires_grad_(); }}};
  const char* const body =
      "local y = z + w:size(0) + 10 * w:dim() + 100 * w:numel() "
      "if w.requires_grad then y = y + 1000 end if #w > 4 then y = -y end return y:to(w.dtype)";
  const at::Tensor z = at::zeros({2, 3});
  for (const char* const backend : backends)
    for (const Change& change : changes) {
      CAPTURE(std::string(backend));
      CAPTURE(std::string(change.what));
      at::Tensor w = at::ones({4});
      Runtime runtime = runtime_of(backend);
      runtime.define_tensor("w", w);
      const Policy policy = load_given(runtime, "", body);
      for (int call = 0; call < 3; ++call) CHECK(policy.run({z})[0].equal(z + 414));
      change.make(w);
      at::Tensor expected = z + w.size(0) + 10 * w.dim() + 100 * w.numel() + (w.requires_grad() ? 1000 : 0);
      if (w.size(0) > 4) expected = -expected;
      for (int call = 0; call < 3; ++call) CHECK(policy.run({z})[0].equal(expected.to(w.scalar_type())));
    }
}

TEST_CASE("a script does not write to what the host keeps after the host has given its tensor other memory") {
  void (*const changes[])(at::Tensor&) = {[](at::Tensor& t) {
                                            t.set_(at::ones({2, 3}));
                                          },
                                          [](at::Tensor& t) {
                                            t.set_data(at::ones({2, 3}));
                                          }};
  struct Case {
    const char *what, *keep, *write;
  };
  const Case cases[] = {{"a tensor of the host", "kept = w", "w:add_(1)"},
                        {"a view of one", "kept = w", "w:view({-1}):zero_()"},
                        {"an input of an earlier call", "kept = z", "kept:add_(1)"},
                        {"what a function has returned", "kept = own()", "kept:add_(1)"}};
  for (const Case& one : cases)
    for (const auto change : changes) {
      CAPTURE(std::string(one.what));
      at::Tensor w = at::ones({2, 3}), own = at::ones({2, 3}), z = at::ones({2, 3});
      Runtime runtime = runtime_of("eager");
      runtime.define_tensor("w", w);
      runtime.define("own", [&](const Tensors&) -> Tensors { return {own}; });
      const Policy policy = runtime.load_source(std::string("local kept return function(z) if kept == nil then ") +
                                                    one.keep + " else " + one.write + " end return z + 0 end",
                                                "writes.lua");
      policy.run({z});
      for (at::Tensor* const tensor : {&w, &own, &z}) change(*tensor);
      CHECK(says(refusal_of([&] { policy.run({at::zeros({2, 3})}); }), "would write to"));
      for (const at::Tensor& tensor : {w, own, z}) CHECK(tensor.equal(at::ones({2, 3})));
    }
}

TEST_CASE("a policy in graphs between breaks calls functions and modules as one graph does") {
  for (const char* const backend : backends) {
    CAPTURE(std::string(backend));
    Runtime runtime = runtime_of(backend);
    runtime.define("twice", twice_plus_rows, {.pure = true});
    runtime.define_module("small", linear_module());
    const Policy policy = runtime.load_source(
        "return function(z) local y = twice(z + 1) if y:sum():item() > 1e9 then return y end return small(y) * 2 end");
    torch::jit::Module module = linear_module();
    const c10::NoGradGuard no_grad;
    for (int call = 0; call < 5; ++call) {
      const at::Tensor z = at::rand({3, 4});
      CHECK(policy.run({z})[0].equal(module.forward({twice_plus_rows({z + 1})[0]}).toTensor() * 2));
    }
  }
}

TEST_CASE("threads share functions and modules of the host") {
  Runtime runtime = runtime_of("fused");
  runtime.define("twice", twice_plus_rows, {.pure = true});
  runtime.define_module("small", linear_module());
  const Policy policy = load_given(runtime, "", "return small(twice(z)) + 1");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const c10::NoGradGuard no_grad;
      torch::jit::Module module = linear_module();
      for (int call = 0; call < 20; ++call) {
        const at::Tensor z = at::full({2 + t, 4}, 0.125 * call);
        if (!policy.run({z})[0].equal(module.forward({twice_plus_rows({z})[0]}).toTensor() + 1)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("the policies of examples/given pass their tests, and run as one graph") {
  const std::string folder = triage::test::source_dir() + "/examples/given/";
  for (const char* const backend : backends) {
    Runtime runtime = runtime_of(backend);
    torch::jit::Module small("Small");
    small.define("def forward(self, x):\n    return x * 2 + 1\n");
    runtime.define_module("small", small);
    runtime.define_tensor("means", at::full({2}, 0.25));
    for (const char* const name : {"thresholds.lua", "fallback_model.lua"})
      for (const auto& test : runtime.load(folder + name).run_tests())
        CHECK_MESSAGE(test.second.empty(), name << ": " << test.first << ": " << test.second);
    const Policy policy = runtime.load(folder + "fallback_model.lua");
    const c10::NoGradGuard no_grad;
    for (const int64_t batch : batches) {
      const at::Tensor x = at::rand({batch, 2}), y = at::rand({batch, 2});
      if (batch > 1) y[1][0] = std::numeric_limits<float>::infinity();
      const at::Tensor expected = at::where(y.isfinite().all(1, true), y, x * 2 + 1);
      CHECK(policy.run({y, x})[0].equal(expected));
    }
  }
}
