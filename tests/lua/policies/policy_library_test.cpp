// scripts/policies: each policy passes its own tests and reaches all of its rules, plain and captured, on batches of
// every size; it holds what its header says; docs/policy-library.md lists it.
#include "tests/policy_library.h"
#include "bindings/lua/engine/policies/lua_script.h"
#include "bindings/lua/testing/agreement.h"
#include "bindings/lua/testing/policy_tests.h"
#include "runtime/diagnose/bits.h"
#include "runtime/policy/state/state_of_call.h"
#include "tests/cli/folder.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <algorithm>
#include <limits>

namespace triage::lua {
namespace {

namespace fs = std::filesystem;
using test::library;
using test::script_options;

const fs::path root = test::source_dir();

/// Which samples hold NaN or Inf in some input.
at::Tensor bad_samples(const std::vector<at::Tensor>& inputs) {
  at::Tensor bad = at::zeros({inputs[0].size(0)}, at::kBool);
  for (const at::Tensor& input : inputs)
    bad = bad.logical_or(at::isfinite(input).reshape({input.size(0), -1}).logical_not().any(1));
  return bad;
}

at::Tensor over_samples(const at::Tensor& mask, int64_t dims) {
  std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
  shape[0] = -1;
  return mask.reshape(shape);
}

}  // namespace

TEST_CASE("the library has what policies are most often wanted for") {
  std::vector<std::string> names;
  for (const fs::path& path : library()) names.push_back(path.stem().string());
  for (const char* name :
       {"repair_zero", "repair_mean",       "repair_last_good", "repair_neighbour", "clamp",
        "zscore_clip", "saturation",        "constant_output",  "index_range",      "probabilities",
        "logits",      "masked_attention",  "gradients",        "training_loss",    "nan_rows",
        "masked_rows", "flat_distribution", "token_range",      "repetition",       "temperature_floor",
        "quarantine"})
    CHECK_MESSAGE(std::count(names.begin(), names.end(), name) == 1, std::string(name));
}

TEST_CASE("each policy of the library passes its tests, captured in one graph, and every rule takes a sample") {
  for (const fs::path& path : library()) {
    CAPTURE(path.string());
    TestOptions options;
    options.script = script_options(path);
    options.batches = {0, 1, 2, 31, 32, 33};
    const PolicyTests report = run_policy_tests(read_bytes(path), options);
    CHECK(report.policy == path.stem().string());
    CHECK_FALSE(report.tests.empty());
    for (const TestResult& test : report.tests) CHECK_MESSAGE(test.failure.empty(), test.name << ": " << test.failure);
    CHECK_FALSE(report.rules.empty());
    for (const auto& taken : report.rules)
      CHECK_MESSAGE(!taken.samples.empty(), taken.rule.name << " in line " << taken.rule.line << " took no sample");
    CHECK(report.graph_breaks.empty());
    CHECK(report.graphs >= 1);
  }
}

TEST_CASE("a policy of the library is one graph for batches of every size") {
  for (const fs::path& path : library()) {
    CAPTURE(path.string());
    LuaScript script(read_bytes(path), script_options(path));
    const std::vector<at::Tensor> inputs = script.test_arguments(0);
    const int64_t samples = inputs[0].size(0);
    Runtime runtime;
    const Policy policy = runtime.load(path);
    for (const int64_t size : {33, 0, 32, 1, 2, 31}) {
      std::vector<at::Tensor> batch;
      for (const at::Tensor& input : inputs)
        batch.push_back(input.index_select(0, at::arange(size, at::kLong).remainder(samples)));
      policy.run(batch);
    }
    CHECK(policy.graphs().size() == 1);
    CHECK(policy.breaks().empty());
  }
}

TEST_CASE("the policies of the library name inputs and outputs, and ask for one graph") {
  for (const fs::path& path : library()) {
    CAPTURE(path.string());
    LuaScript script(read_bytes(path), script_options(path));
    CHECK(script.fullgraph());
    CHECK_FALSE(script.signature().outputs.empty());
    CHECK(script.signature().outputs.back() == "f");
  }
}

TEST_CASE("T21: the policies of the library declare their inputs: another dtype or number of dimensions is refused") {
  for (const fs::path& path : library()) {
    CAPTURE(path.string());
    Runtime runtime;
    const Policy policy = runtime.load(path);
    LuaScript script(read_bytes(path), script_options(path));
    const std::vector<at::Tensor> fine = script.test_arguments(0);
    const auto& types = script.signature().input_types;
    REQUIRE(types.size() == fine.size());
    for (size_t i = 0; i < fine.size(); ++i) {
      REQUIRE(types[i]);
      CHECK(types[i]->kind != DTypeKind::exact);  // no dtype of its kind is shut out
      const auto with = [&](const at::Tensor& input) {
        auto inputs = fine;
        inputs[i] = input;
        return policy.run(inputs);
      };
      const bool floating = types[i]->kind == DTypeKind::floating;
      CHECK_THROWS_AS(with(fine[i].to(floating ? at::kLong : at::kFloat)), DTypeMismatchError);
      CHECK_THROWS_AS(with(fine[i].to(at::kBool)), DTypeMismatchError);
      CHECK_THROWS_AS(with(at::ones({}, fine[i].options())), DimensionMismatchError);
      const auto& dims = types[i]->dims;
      const bool any_rank =
          std::any_of(dims.begin(), dims.end(), [](const Dim& d) { return d.kind == Dim::Kind::rest; });
      if (!any_rank) CHECK_THROWS_AS(with(fine[i].unsqueeze(-1)), DimensionMismatchError);
      if (fine.size() > 1) CHECK_THROWS_AS(with(fine[i].slice(0, 1)), DimensionMismatchError);
      with(fine[i].to(floating ? at::kDouble : at::kInt));
    }
  }
}

TEST_CASE("each param of the policies of the library is off its default in some test") {
  for (const fs::path& path : library()) {
    CAPTURE(path.string());
    LuaScript script(read_bytes(path), script_options(path));
    const auto& params = script.signature().params;
    for (size_t i = 0; i < params.size(); ++i) {
      bool varied = false;
      for (size_t test = 0; test < script.test_count(); ++test)
        varied |= script.test_params(test)[i].item().toDouble() != params[i].value.toScalar().toDouble();
      CHECK_MESSAGE(varied, params[i].name << " is never anything else than its default");
    }
  }
}

TEST_CASE("the header of each policy of the library says how its samples depend on each other") {
  // That it is true: isolation_test.cpp.
  int claims = 0;
  for (const fs::path& path : library()) {
    CAPTURE(path.string());
    const std::string source = read_bytes(path);
    const bool independent = source.find("\n-- Samples: each on its own.\n") != std::string::npos;
    CHECK(independent != (source.find("\n-- Samples: across the batch") != std::string::npos));
    claims += independent;
  }
  CHECK(claims >= 10);
}

TEST_CASE("policies of the library take floats of 16 bits, captured as in Lua, and make nothing bad of good samples") {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16})
    for (const fs::path& path : library()) {
      CAPTURE(path.string());
      CAPTURE(dtype);
      LuaScript script(read_bytes(path), script_options(path));
      Runtime runtime;
      const Policy policy = runtime.load(path);
      for (size_t test = 0; test < script.test_count(); ++test) {
        std::vector<at::Tensor> inputs = script.test_arguments(test);
        for (at::Tensor& input : inputs)
          if (input.is_floating_point()) input = input.detach().to(dtype);
        const std::vector<at::Tensor> params = script.test_params(test);
        for (size_t i = 0; i < params.size(); ++i)
          policy.set_param(script.signature().params[i].name, params[i].item());
        policy.reset_state();
        const std::vector<at::Tensor> plain = policy::call_alone(script, inputs, params), captured = policy.run(inputs);
        REQUIRE(plain.size() == captured.size());
        for (size_t i = 0; i < plain.size(); ++i) CHECK(diagnose::same_bits(plain[i], captured[i]));
        if (inputs[0].is_floating_point()) CHECK((captured[0].scalar_type() == inputs[0].scalar_type()));
        at::Tensor fine = at::isfinite(captured[0]);
        const auto& outputs = script.signature().outputs;
        const auto verdict = std::find(outputs.begin(), outputs.end(), "verdict");
        if (verdict != outputs.end()) {  // the logits of a request that ends are a mask
          const at::Tensor ended = captured[static_cast<size_t>(verdict - outputs.begin())].eq(2);
          fine = fine.logical_or(over_samples(ended, fine.dim()));
        }
        if (fine.dim() > 0) fine = fine.logical_or(over_samples(bad_samples(inputs), fine.dim()));
        CHECK(fine.all().item<bool>());
      }
    }
}

TEST_CASE("a mean of the library is finite at the end of the range of every dtype") {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble})
    for (const int64_t samples : {1, 3, 1001}) {
      const at::Tensor z = at::full({samples, 2}, std::numeric_limits<double>::infinity())
                               .to(dtype)
                               .nan_to_num();  // the largest number of the dtype
      z[0].fill_(samples > 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      Runtime runtime;
      const auto path = [](const char* name) { return root / "scripts" / "policies" / name; };
      const at::Tensor repaired = runtime.load(path("repair_mean.lua")).run({z})[0];
      const at::Tensor loss = runtime.load(path("training_loss.lua")).run({z.select(1, 0).contiguous()})[0];
      CHECK(repaired.to(at::kDouble).allclose(z[samples - 1].to(at::kDouble).expand_as(repaired), 1e-2));
      CHECK(loss.to(at::kDouble).allclose(z[samples - 1][0].to(at::kDouble), 1e-2));
    }
}

TEST_CASE("docs/policy-library.md lists every policy of the library, with its inputs, outputs and params") {
  std::string page = read_bytes(root / "docs" / "policy-library.md");
  page.resize(page.find("\n## "));
  size_t rows = 0;
  for (const fs::path& path : library()) {
    CAPTURE(path.string());
    LuaScript script(read_bytes(path), script_options(path));
    const size_t begin = page.find("| `" + path.stem().string() + "` |");
    REQUIRE(begin != std::string::npos);
    const std::string row = page.substr(begin, page.find('\n', begin) - begin);
    for (const std::string& name : script.signature().inputs)
      CHECK_MESSAGE(row.find("`" + name + "`") != std::string::npos, name);
    for (const std::string& name : script.signature().outputs)
      CHECK_MESSAGE(row.find("`" + name + "`") != std::string::npos, name);
    for (const Param& param : script.signature().params)
      CHECK_MESSAGE(row.find("`" + param.name + " = ") != std::string::npos, param.name);
  }
  for (size_t at = 0; (at = page.find("\n| `", at)) != std::string::npos; ++at) ++rows;
  CHECK(rows == library().size());
}

}  // namespace triage::lua
