// Policies on a real GPU: what they give there, that no call waits for it, and that their warm calls can be recorded in
// a CUDA graph. Without a GPU there is nothing to test, and the program says so. More of it: TRIAGE_TEST_DEVICE=cuda
// with test_flags, test_parity and the other file here (tests/other_device.h).
#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/diagnose/bits.h"
#include "runtime/policy/state/state_of_call.h"
#include "tests/cli/folder.h"
#include "tests/cuda_graph.h"
#include "tests/logs.h"
#include "tests/policy_library.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <functional>

namespace triage {
namespace {

using Tensors = std::vector<at::Tensor>;

bool no_gpu() {
  if (at::hasCUDA()) return false;
  MESSAGE("no GPU: nothing is tested");
  return true;
}

RuntimeOptions options_for(const std::string& backend) {
  RuntimeOptions options_for;
  options_for.backend = backend;
  options_for.log = test::no_log();
  return options_for;
}

Tensors on(const Tensors& tensors, c10::Device device) {
  Tensors moved;
  for (const at::Tensor& tensor : tensors) moved.push_back(tensor.detach().to(device));
  return moved;
}

/// Flags and other whole numbers bit for bit; floats as close as two orders of summation are.
void check_close(const Tensors& expected, const Tensors& got) {
  REQUIRE(expected.size() == got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].is_cuda());
    const at::Tensor here = got[i].cpu();
    REQUIRE((here.scalar_type() == expected[i].scalar_type()));
    REQUIRE(here.sizes() == expected[i].sizes());
    if (here.is_floating_point())
      CHECK(at::allclose(here.to(at::kDouble), expected[i].detach().to(at::kDouble), 1e-5, 1e-6, /*equal_nan=*/true));
    else
      CHECK(at::equal(here, expected[i]));
  }
}

void check_same_bits(const Tensors& expected, const Tensors& got) {
  REQUIRE(expected.size() == got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(diagnose::same_bits(expected[i].cpu(), got[i].cpu()));
  }
}

/// One test of a policy of the library, with its params set.
struct Example {
  Policy policy;
  Tensors inputs, expected;
};

void for_each_example(const std::string& backend, const std::function<void(const Example&)>& run) {
  for (const std::filesystem::path& path : test::library()) {
    CAPTURE(path.string());
    CAPTURE(backend);
    lua::LuaScript script(read_bytes(path), test::script_options(path));
    const Policy policy = Runtime(options_for(backend)).load(path);
    for (size_t test = 0; test < script.test_count(); ++test) {
      CAPTURE(test);
      const Tensors params = script.test_params(test), inputs = script.test_arguments(test);
      for (size_t i = 0; i < params.size(); ++i) policy.set_param(script.signature().params[i].name, params[i].item());
      policy.reset_state();
      const at::NoGradGuard no_grad;
      const Tensors expected = on(policy::call_alone(script, inputs, params), at::kCPU);
      CHECK_NOTHROW(run({policy, on(inputs, at::kCPU), expected}));
    }
  }
}

}  // namespace

TEST_CASE("on a GPU the policies of the library give what they give on the CPU, recorded and captured") {
  if (no_gpu()) return;
  for (const char* backend : {"eager", "fused"})
    for_each_example(backend, [](const Example& example) {
      const Tensors there = on(example.inputs, at::kCUDA);
      const Tensors recorded = example.policy.run(there);
      example.policy.reset_state();
      check_close(example.expected, recorded);
      check_same_bits(recorded, example.policy.run(there));
      CHECK(example.policy.breaks().empty());
    });
}

TEST_CASE("on a GPU warm calls of the policies of the library are a CUDA graph, which computes what a call does") {
  if (no_gpu() || !test::CudaGraph::available()) return;
  for_each_example("fused", [](const Example& example) {
    const Tensors there = on(example.inputs, at::kCUDA);
    example.policy.run(there);
    const Tensors expected = example.policy.run(there);
    Tensors inputs, outputs;
    for (const at::Tensor& input : there) inputs.push_back(at::zeros_like(input));
    test::CudaGraph graph([&] { outputs = example.policy.run(inputs); });
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(there[i]);
    graph.replay();
    check_same_bits(expected, outputs);
  });
}

TEST_CASE("on a GPU a policy finds the bad samples of logits, repairs them, and says so, in every float type") {
  if (no_gpu()) return;
  const Policy policy = Runtime(options_for("fused")).load_source(R"(return function(z)
    local f = flag_nan_and_inf(z, 'logits')
    return fix(z, f, 'logits', {fallback = 0.0})
  end)");
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const int64_t rows : {0, 1, 2, 31, 32, 33})
      for (const bool strided : {false, true}) {
        CAPTURE(dtype);
        CAPTURE(rows);
        CAPTURE(strided);
        at::Tensor z = at::randn({rows, 1000}).to(dtype);
        for (int64_t row = 1; row < rows; row += 5) z[row][row] = row % 2 ? NAN : -INFINITY;
        if (strided) z = z.t().contiguous().t();
        const Tensors here = policy.run({z}), there = policy.run({z.to(at::kCUDA)});
        check_same_bits(here, there);
      }
}

}  // namespace triage
