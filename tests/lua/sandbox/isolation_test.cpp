// Whether a bad sample touches its neighbours: every policy of the library, policies that mix samples in the ways
// people do it, and the operator that is named for it.
#include "bindings/lua/testing/isolation.h"
#include "runtime/diagnose/isolation/start_batches.h"

#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/policy/versions/version.h"
#include "tests/cli/folder.h"
#include "tests/policy_library.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <doctest/doctest.h>
#include <triage/flags.h>

#include <algorithm>
#include <limits>
#include <map>

namespace triage::lua {
namespace {

namespace fs = std::filesystem;
using diagnose::Isolation;
using diagnose::Tensors;
using test::library;

PolicyUnderCheck under_check(const std::string& source, const std::string& path, const std::string& backend) {
  PolicyUnderCheck policy{source, {}, {}};
  policy.script.path = path;
  policy.runtime.backend = backend;
  policy.runtime.log = [](const LogRecord&) {};  // breaks and failures are what some of these policies are for
  return policy;
}

Isolation check(const std::string& source, const Tensors& inputs, const std::string& backend = "eager",
                const std::vector<std::string>& shared = {}) {
  PolicySubject subject(under_check(source, "mix.lua", backend));
  return check_isolation(subject, isolation_inputs(subject.policy().signature(), inputs, shared));
}

/// Normal numbers, the same in each run.
at::Tensor random_batch(int64_t samples = 6, int64_t features = 4) {
  return at::randn({samples, features}, at::make_generator<at::CPUGeneratorImpl>(7), at::kFloat);
}

bool is_independent(const std::string& source) {
  return source.find("\n-- Samples: each on its own.\n") != std::string::npos;
}

/// Batches of more samples than a vector register or a tape's block has, and with several dims where the policy takes
/// them.
Tensors larger_batch(const std::string& policy) {
  if (policy == "index_range") return {at::randint(0, 50000, {37, 5}, at::kLong)};
  if (policy == "masked_attention") return {at::randn({37, 2, 3, 5})};
  if (policy == "repair_last_good") return {at::randn({37, 19}), at::randn({37, 19})};
  if (policy == "repair_neighbour") return {at::randn({37, 7, 3})};
  if (policy == "training_loss") return {at::rand({37})};
  if (policy == "probabilities") return {at::softmax(at::randn({37, 19}), -1)};
  if (policy == "token_range") return {at::randint(0, 50257, {37, 5}, at::kLong)};
  if (policy == "repetition") return {at::randn({37, 19}), at::randint(0, 3, {37, 70}, at::kLong)};
  if (policy == "temperature_floor") return {at::randn({37, 19}), at::rand({37})};
  if (policy == "quarantine") return {at::randn({37, 19}), at::randint(0, 3, {37}, at::kChar), at::arange(37)};
  return {at::randn({37, 19})};
}

/// In how many batches a bad sample changed others: those of the policy's own tests, and a larger one, with and without
/// samples that are bad from the start.
size_t batches_that_cross(const fs::path& path, const std::string& backend, size_t& checked) {
  const std::string source = read_bytes(path);
  const ScriptOptions options = test::script_options(path);
  LuaScript script(source, options);
  size_t crossing = 0;
  const auto check_one = [&](const Tensors& inputs, const Tensors& params) {
    PolicyUnderCheck policy = under_check(source, path.string(), backend);
    policy.params = params;
    policy.script.read_file = options.read_file;
    PolicySubject subject(policy);
    const Isolation found = check_isolation(subject, isolation_inputs(script.signature(), inputs));
    ++checked;
    crossing += !found.ok();
    CHECK_FALSE(found.restarted);
    for (const auto& output : found.outputs)
      for (const diagnose::IsolationLeak& leak : output.leaks) {
        INFO(output.name << " by " << diagnose::poison_text(leak.poison, leak.dtype) << " in sample " << leak.row
                         << " of " << leak.input << " " << leak.how);
        CHECK_FALSE(is_independent(source));
      }
    for (const auto& named : found.crossings) CHECK_MESSAGE(named.step, named.why_unnamed);
  };
  const auto check_all = [&](const Tensors& inputs, const Tensors& params) {
    for (const diagnose::StartBatch& start : diagnose::start_batches(isolation_inputs(script.signature(), inputs)))
      check_one(start.tensors, params);
  };
  for (size_t test = 0; test < script.test_count(); ++test) {
    const Tensors inputs = script.test_arguments(test), params = script.test_params(test);
    if (inputs[0].size(0) < 2 || inputs[0].size(0) > 1000) continue;  // a thousand samples take half a minute
    check_all(inputs, params);
  }
  check_all(larger_batch(path.stem().string()), policy::param_tensors(script.signature(), {}));
  return crossing;
}

}  // namespace

TEST_CASE("no bad sample touches its neighbours in the library's policies, but in those whose header says so") {
  at::manual_seed(3);
  std::vector<std::string> across;
  for (const std::string backend : {"eager", "fused"})
    for (const fs::path& path : library()) {
      CAPTURE(path.string());
      CAPTURE(backend);
      size_t checked = 0;
      const size_t crossing = batches_that_cross(path, backend, checked);
      CHECK(checked >= 2);
      if (is_independent(read_bytes(path))) {
        CHECK(crossing == 0);
        continue;
      }
      CHECK_MESSAGE(crossing > 0, "the header says that it computes across the batch");
      across.push_back(path.stem().string());
    }
  // By the count of bad samples, by the mean of the good ones, and by what rows of one request do.
  CHECK(across == std::vector<std::string>{"error_budget", "repair_mean", "quarantine", "training_loss", "error_budget",
                                           "repair_mean", "quarantine", "training_loss"});
}

TEST_CASE("the library's quarantine keeps requests apart that are in one row each") {
  const fs::path path = fs::path(test::source_dir()) / "scripts/policies/serving/quarantine.lua";
  PolicyUnderCheck policy = under_check(read_bytes(path), path.string(), "fused");
  policy.script.read_file = test::script_options(path).read_file;
  PolicySubject subject(policy);
  subject.policy().set_param("most", 1);
  const Isolation found =
      check_isolation(subject, isolation_inputs(subject.policy().signature(), larger_batch("quarantine")));
  CHECK(found.ok());
  CHECK(found.outputs.size() == 3);
}

TEST_CASE("policies that mix samples are found, and the operator that does it is named with its line") {
  struct Mix {
    const char *name, *body, *op;
    int line;
  };
  const Mix mixes[] = {
      {"batch norm", "local y = torch.batch_norm(z * 2, nil, nil, nil, nil, true, 0.1, 1e-5, false)\n  return y + 1",
       "aten::batch_norm", 2},
      {"centred", "local y = z * 2\n  return y - y:mean(0)", "aten::mean.dim", 3},
      {"softmax over the batch", "return (z + 1):softmax(0)", "aten::softmax.int", 2},
      {"sorted batch", "local s = z:exp()\n  local y = s:sort(0)\n  return y * 2", "aten::sort", 3},
      {"running sum", "return (z * 3):cumsum(0):relu()", "aten::cumsum", 2},
      {"similarities", "local n = z / z:norm(2, {-1}, true)\n  local t = n:t()\n  return n:matmul(t)", "aten::matmul",
       4},
      {"one check for all", "local y = z * 2\n  if z:isnan():any() then y = y * 0 end\n  return y", "aten::any", 3},
      {"shifted", "return z:roll(1, 0) * 2", "aten::roll", 2},
      {"largest of all", "return z / z:abs():max()", "aten::max", 2},
      {"scale of the batch", "local y = z:relu()\n  return y / (y:sum() + 1)", "aten::sum", 3},
      {"one feature's sum",
       "local y = z * torch.tensor({0.0, 1.0, 0.0, 0.0})\n  y = y:nan_to_num(0, 0, 0)\n  local s = y:sum(0)\n  return "
       "z:relu() + s",
       "aten::sum.dim_IntList", 4},
      {"differences",
       "local a, b = z:narrow(0, 1, 5), z:narrow(0, 0, 5)\n  return torch.cat({z:narrow(0, 0, 1), a - b})",
       "aten::sub.Tensor", 3},
      {"against the first", "local y = z * 2\n  return y - y[0]", "aten::sub.Tensor", 3},
      {"the first for all", "local y = z * 2\n  return y:select(0, 0):expand(6, 4)", "aten::expand", 3},
      {"reversed prefix", "return z:flip(0):cumsum(0):flip(0)", "aten::flip", 2},
  };
  for (const std::string backend : {"eager", "fused"})
    for (const Mix& mix : mixes) {
      CAPTURE(std::string(mix.name));
      CAPTURE(backend);
      const Isolation found =
          check("return function(z)\n  " + std::string(mix.body) + "\nend\n", {random_batch()}, backend);
      CHECK_FALSE(found.ok());
      CHECK_FALSE(found.restarted);
      REQUIRE_FALSE(found.crossings.empty());
      for (const diagnose::Crossing& crossing : found.crossings) {
        REQUIRE(crossing.step);
        CHECK(crossing.step->op == mix.op);
        CHECK(crossing.step->source.line == mix.line);
        CHECK(crossing.step->source.file == "mix.lua");
      }
    }
}

TEST_CASE("what keeps samples apart is isolated, wherever they lie on the way") {
  for (const char* body : {
           "return z:t():softmax(0):t()",                               // samples in dim 1
           "return z:reshape(-1):exp():reshape(z:size(0), z:size(1))",  // merged with the features
           "return z:t()",                                              // an output with the samples in dim 1
           "local mean = z:mean(0)\n  return z * 2",                    // computed, and not used
           "local f = flag_nan_and_inf(z, 'x')\n  return fix(z, f, 'x')",
           "return IF(z:isnan():any(-1), function() return z * 0 end):ELSE(function() return z end)",
           "return z:matmul(torch.ones({4, 3}))",
           "return torch.dropout(z, 0.5, true)",
       })
    for (const std::string backend : {"eager", "fused"})
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        if (dtype == at::kBFloat16 && std::string(body).find("ones") != std::string::npos) continue;
        if (dtype == at::kDouble && std::string(body).find("ones") != std::string::npos) continue;
        CAPTURE(std::string(body));
        CAPTURE(backend);
        const Isolation found =
            check("return function(z)\n  " + std::string(body) + "\nend\n", {random_batch(33, 4).to(dtype)}, backend);
        for (const auto& output : found.outputs) CHECK(output.leaks.empty());
        CHECK_FALSE(found.restarted);
      }
}

TEST_CASE("a square batch, where dim 1 is as long as dim 0, is no way around the check") {
  CHECK(check("return function(z) return z * 2 end", {random_batch(5, 5)}).ok());
  const Isolation found = check("return function(z)\n  return z + z:t()\nend", {random_batch(5, 5)});
  REQUIRE(found.crossings.size() == 1);
  CHECK(found.crossings[0].step->op == "aten::add.Tensor");
}

TEST_CASE("one sample that costs all their answer, or their places, is found") {
  const Isolation raised = check(
      "return function(z)\n  if z:isnan():any():item() then error('bad batch') end\n  return z\nend", {random_batch()});
  REQUIRE_FALSE(raised.ok());
  CHECK(raised.outputs[0].leaks[0].how.find("bad batch") != std::string::npos);
  REQUIRE(raised.crossings.size() == 1);
  REQUIRE(raised.crossings[0].step);
  CHECK(raised.crossings[0].step->op == "aten::any");

  const at::Tensor ids = at::arange(6, at::kLong);
  const Isolation looked_up = check(
      "local table = torch.ones({10, 3})\nreturn function(ids)\n  return torch.embedding(table, ids)\nend", {ids});
  REQUIRE_FALSE(looked_up.ok());
  REQUIRE(looked_up.crossings[0].step);
  CHECK(looked_up.crossings[0].step->op == "aten::embedding");
  CHECK(looked_up.crossings[0].step->source.line == 3);

  const Isolation dropped = check("return function(z)\n  return z[~z:isnan():any(-1)]\nend", {random_batch()});
  REQUIRE_FALSE(dropped.ok());
  CHECK(dropped.outputs[0].leaks[0].how == "float32 6x4 became float32 5x4");
}

TEST_CASE("a value for the whole batch that depends on a sample counts as touched") {
  const Isolation found = check("return function(z) return z, z:mean() end", {random_batch()});
  CHECK(found.outputs[0].leaks.empty());
  REQUIRE_FALSE(found.outputs[1].leaks.empty());
  CHECK(found.outputs[1].leaks[0].hurt.empty());
  REQUIRE(found.crossings.size() == 1);
  CHECK(found.crossings[0].step->op == "aten::mean");
}

TEST_CASE("what a script keeps for its next call is found there") {
  const Isolation carried = check(R"(local mean = nil
return function(z)
  local y = mean and z - mean or z
  mean = z:mean(0)
  return y
end)",
                                  {random_batch()});
  CHECK(carried.restarted);
  REQUIRE_FALSE(carried.ok());
  for (const diagnose::IsolationLeak& leak : carried.outputs[0].leaks) CHECK(leak.later);

  const Isolation counted =
      check("local calls = 0\nreturn function(z)\n  calls = calls + 1\n  return z * calls\nend", {random_batch()});
  CHECK(counted.restarted);
  CHECK(counted.ok());
}

TEST_CASE("several graphs, and none: the operators of the script are named") {
  const Isolation found = check(
      "return function(z)\n  local y = z * 2\n  triage.graph_break()\n  return y - y:mean(0)\nend", {random_batch()});
  REQUIRE(found.crossings.size() == 1);
  REQUIRE(found.crossings[0].step);
  CHECK(found.crossings[0].step->op == "aten::mean.dim");
  CHECK(found.crossings[0].step->source.line == 4);
}

TEST_CASE("inputs: which have samples, what they are made bad with, and two of them") {
  const char* two = "return policy { inputs = {'z', 'w'}, outputs = {'y'}, run = function(z, w) return z * 2 + w end }";
  CHECK(check(two, {random_batch(6, 4), random_batch(6, 4)}).ok());
  CHECK(check(two, {random_batch(6, 4), at::ones({4})}).ok());  // a weight
  const char* weights =
      "return policy { inputs = {'z', 'w'}, outputs = {'y'}, run = function(z, w) return z:matmul(w) end }";
  CHECK_FALSE(check(weights, {random_batch(4, 4), random_batch(4, 4)}).ok());
  CHECK(check(weights, {random_batch(4, 4), random_batch(4, 4)}, "eager", {"w"}).ok());
  CHECK(diagnose::poisons_for(at::kFloat, false).size() == 5);
  CHECK(diagnose::poisons_for(at::kLong, false).size() == 2);
  CHECK((diagnose::poisons_for(at::kLong, true) == std::vector{diagnose::Poison::error_record}));
  CHECK(diagnose::poisons_for(at::kQInt8, false).empty());
  const at::Tensor whole = diagnose::poisoned(at::ones({3, 2}, at::kInt), 1, diagnose::Poison::smallest);
  CHECK(whole[1][1].item<int64_t>() == std::numeric_limits<int32_t>::min());
  CHECK(whole[0][0].item<int64_t>() == 1);
  CHECK(diagnose::poisoned(at::ones({1}).expand({3}), 1, diagnose::Poison::nan).isnan().sum().item<int64_t>() == 1);
}

TEST_CASE("the input with the samples is found by its type, wherever it stands") {
  const auto samples = [](const char* types, const Tensors& inputs) {
    LuaScript script("return policy { inputs = {'a', 'b'}, outputs = {'y'}, signature = {" + std::string(types) +
                         "}, run = function(a, b) return a * 2, b end }",
                     {});
    std::string with;
    for (const diagnose::IsolationInput& input : isolation_inputs(script.signature(), inputs))
      if (input.has_samples) with += input.name;
    return with;
  };
  const at::Tensor row = at::ones({4}), batch = at::ones({6, 4}), square = at::ones({4, 4});
  CHECK(samples("a = Tensor(float32_t, {4}), b = Tensor(float32_t, {'N', 4})", {row, square}) == "b");
  CHECK(samples("a = Tensor(float32_t, {4, 4}), b = Tensor(float32_t, {'N', 4})", {square, square}) == "b");
  CHECK(samples("a = Tensor(float32_t, {'D'}), b = Tensor(float32_t, {'N', 'D'})", {row, square}) == "b");
  CHECK(samples("a = Tensor(float32_t, {'D', 'H'}), b = Tensor(float32_t, {'N', 'D'})", {square, square}) == "b");
  CHECK(samples("a = Tensor(float32_t, {'N', 4}), b = Tensor(float32_t, {'N', 'D'})", {batch, batch}) == "ab");
  CHECK(samples("a = Tensor(float32_t, {'N', 'N'}), b = Tensor(float32_t, {'N', 'N'})", {square, square}) == "ab");
  CHECK(samples("a = Tensor(float32_t, {4}), b = Tensor(float32_t, {6, 4})", {row, batch}) == "b");
  CHECK(samples("a = Tensor(float32_t, {6, 4}), b = Tensor(float32_t, {4})", {batch, row}) == "a");
}

TEST_CASE("flags that come in: one sample's record is its own") {
  const char* source =
      "return policy { inputs = {'z', 'f'}, outputs = {'z', 'f'},\n"
      "  signature = {z = Tensor(floating_t, {'N', 'D'}), f = Tensor(error_t, {'N', 'words'})},\n  run = function(z, "
      "f) return %s, f end }";
  const auto with = [&](const std::string& answer) {
    std::string text = source;
    text.replace(text.find("%s"), 2, answer);
    return check(text, {random_batch(), err::new_t(6)});
  };
  CHECK(with("err.take_ok_p(f, z)").ok());
  const Isolation found = with("torch.where(err.any_err(f), z * 0, z)");
  REQUIRE_FALSE(found.ok());
  CHECK(found.outputs[0].leaks[0].input == "f");
}

TEST_CASE("what cannot be checked is said") {
  CHECK_THROWS_WITH_AS(check("return function(z) return z end", {random_batch(1, 4)}),
                       doctest::Contains("at least 2 samples"), InputError);
  CHECK_THROWS_AS(check("return function(z) return z end", {at::ones({})}), InputError);
  CHECK_THROWS_WITH(check("return function(z) error('never') end", {random_batch()}), doctest::Contains("never"));
}

}  // namespace triage::lua
