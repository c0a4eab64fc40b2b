// Loops on a GPU: that of this machine, where TRIAGE_TEST_DEVICE names it, else the CPU as one (tests/gpu_on_host.h).
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/flags.h>
#include <triage/graph.h>
#include <triage/triage.h>

#include <cmath>
#include <thread>

#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/backends/fused/fused.h"
#include "runtime/backends/fused/gpu/accelerator.h"
#include "runtime/diagnose/bits.h"
#include "tests/cli/folder.h"
#include "tests/fused/programs.h"
#include "tests/gpu_on_host.h"
#include "tests/logs.h"
#include "tests/other_device.h"
#include "tests/policy_library.h"

using namespace triage;
using namespace triage::test;

namespace {

using fused::compiled, fused::run, fused::Program, fused::Tensors;
using fused::detect_repair, fused::softmax_repair, fused::zscore_clip;

/// While alive, the device that stands in for a GPU has loops.
class WithLoops {
 public:
  WithLoops() {
    if (!is_real_device()) fused::set_accelerator(OTHER_DEVICE.type(), &gpu_on_host());
  }
  ~WithLoops() { fused::set_accelerator(OTHER_DEVICE.type(), nullptr); }
};

Tensors there(const Tensors& tensors) {
  Tensors moved;
  for (const at::Tensor& tensor : tensors) moved.push_back(tensor.dim() == 0 ? tensor : to_other(tensor));
  return moved;
}

Tensors warm(const Executable& executable, const Tensors& inputs) {
  run(executable, inputs);
  executable.finish_compiling();  // the first call for rows as long as these asks for a kernel
  return run(executable, inputs);
}

/// Some rows with NaN and Inf, at the ends and inside.
at::Tensor with_bad_rows(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  at::Tensor x = (at::arange(c10::multiply_integers(sizes), at::kDouble) * 0.7390851 + 0.3).sin().mul(2).view(sizes);
  for (int64_t row = 0; row < x.size(0); ++row) {
    const at::Tensor flat = x[row].flatten();
    if (row % 5 == 1) flat[0].fill_(NAN);
    if (row % 7 == 2) flat[-1].fill_(-INFINITY);
    if (row % 11 == 4) flat[flat.numel() / 2].fill_(NAN), flat[-1].fill_(INFINITY);
  }
  return x.to(dtype);
}

/// The same bits, but for those of NaN, which processors make in their own ways.
void check_same(const Tensors& expected, const Tensors& got) {
  REQUIRE(expected.size() == got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].device().type() == OTHER_DEVICE.type());
    at::Tensor one = expected[i], other = from_other(got[i]);
    REQUIRE((one.scalar_type() == other.scalar_type()));
    REQUIRE(one.sizes() == other.sizes());
    if (one.is_floating_point() && is_real_device()) {
      CHECK(at::equal(one.isnan(), other.isnan()));
      one = one.nan_to_num(0, INFINITY, -INFINITY), other = other.nan_to_num(0, INFINITY, -INFINITY);
    }
    CHECK(diagnose::same_bits(one, other));
  }
}

/// The program gives there what the loops of the CPU give here.
void check_program(const Program& program, const Tensors& inputs) {
  const WithLoops loops;
  const auto here = compiled(program, inputs), on_gpu = compiled(program, there(inputs));
  CHECK(on_gpu->loops().kernels > 0);
  check_same(warm(*here, inputs), warm(*on_gpu, there(inputs)));
}

Tensors requiring_grad(const Tensors& tensors) {
  Tensors leaves;
  for (const at::Tensor& tensor : tensors) leaves.push_back(tensor.detach().requires_grad_());
  return leaves;
}

/// Of all outputs, by all inputs.
Tensors gradients(const Executable& executable, const Tensors& inputs) {
  Tensors roots, tangents;
  for (const at::Tensor& output : run(executable, inputs)) {
    roots.push_back(output);
    tangents.push_back(at::full_like(output, 0.5));
  }
  return torch::autograd::grad(roots, inputs, tangents);
}

/// The same for gradients, of which the first run records the other half. What is a loop there may be ATen's here, so
/// they may differ by rounding.
void check_gradients(const Program& program, const Tensors& inputs) {
  const WithLoops loops;
  const Tensors leaves = requiring_grad(inputs), leaves_there = requiring_grad(there(inputs));
  const auto here = compiled(program, leaves), on_gpu = compiled(program, leaves_there);
  for (int call = 0; call < 3; ++call) {
    const Tensors expected = gradients(*here, leaves), got = gradients(*on_gpu, leaves_there);
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(at::allclose(from_other(got[i]), expected[i], 1e-5, 1e-5, /*equal_nan=*/true));
    on_gpu->finish_compiling();
  }
  CHECK(on_gpu->loops().kernels > 1);
}

}  // namespace

TEST_CASE("loops on a GPU give the bits of the CPU's, for batches and rows of all sizes") {
  const std::pair<const char*, Program> programs[] = {
      {"detect_repair", detect_repair}, {"softmax_repair", softmax_repair}, {"zscore_clip", zscore_clip}};
  for (const auto& [title, program] : programs)
    for (const int64_t rows : {1, 2, 31, 32, 33})
      for (const int64_t positions : {1, 5, 16, 17, 64, 65, 1000, 2048, 2049, 5000}) {
        const std::string name = title;
        CAPTURE(name);
        CAPTURE(rows);
        CAPTURE(positions);
        check_program(program, {with_bad_rows({rows, positions})});
      }
}

TEST_CASE("loops on a GPU: rows that many blocks of threads share") {
  for (const int64_t positions : {40000, 152064, 1100000}) {
    CAPTURE(positions);
    for (const Program& program : {Program(detect_repair), Program(softmax_repair), Program(zscore_clip)})
      check_program(program, {with_bad_rows({13, positions})});
  }
}

TEST_CASE("loops on a GPU: gradients are those of the CPU's loops") {
  if (!has_autograd()) return;
  const Program network = [](const Tensors& in) {
    const at::Tensor y = (in[0] * in[1]).tanh() + in[0].sigmoid();
    return Tensors{y.softmax(-1) * 2 - y, (y - y.mean({-1}, true)).square()};
  };
  const Program repair = [](const Tensors& in) {
    const at::Tensor y = at::where(at::isfinite(in[0]).all(-1, true), in[0], at::zeros_like(in[0]));
    return Tensors{at::relu(y * in[1]) + y.exp()};
  };
  for (const Program& program : {network, repair})
    for (const int64_t rows : {1, 2, 31, 33, 300}) {
      CAPTURE(rows);
      check_gradients(program, {with_bad_rows({rows, 64}), at::linspace(-1, 1, 64)});
    }
}

TEST_CASE("loops on a GPU: a masked row reaches no weight") {
  if (!has_autograd()) return;
  const WithLoops loops;
  const Program layer = [](const Tensors& in) {
    const at::Tensor fine = at::isfinite(in[0]).all(-1, true), y = at::linear(in[0], in[1]).relu() * 3;
    return Tensors{at::where(fine, y, at::zeros_like(y)) * 2};
  };
  const Tensors inputs = requiring_grad(there({with_bad_rows({33, 16}), at::linspace(-1, 1, 128).view({8, 16})}));
  const auto on_gpu = compiled(layer, inputs);
  for (int call = 0; call < 3; ++call) {
    const Tensors found = gradients(*on_gpu, inputs);
    CHECK(at::isfinite(from_other(found[1])).all().item<bool>());
  }
}

TEST_CASE("loops on a GPU: every float type, and rows that lie apart") {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    CAPTURE(dtype);
    check_program(detect_repair, {with_bad_rows({33, 300}, dtype)});
    if (c10::elementSize(dtype) > 2)
      check_program(softmax_repair, {with_bad_rows({33, 300}, dtype)});  // LibTorch 1.13 has none
    check_program(detect_repair, {with_bad_rows({66, 300}, dtype).slice(0, 0, 66, 2)});
    check_program(detect_repair, {with_bad_rows({300, 33}, dtype).t()});
  }
}

TEST_CASE("loops on a GPU: elements alone, of data of any dims, beside columns and numbers") {
  const Program elements = [](const Tensors& in) { return Tensors{at::relu(in[0] * 2 - 1) + in[0].sigmoid()}; };
  check_program(elements, {with_bad_rows({3000, 3})});
  check_program(elements, {with_bad_rows({1, 300000})});
  check_program(elements, {with_bad_rows({4, 5, 6, 7})});
  const Program columns = [](const Tensors& in) { return Tensors{(in[0] - in[1]) * in[2] + in[0].abs()}; };
  check_program(columns, {with_bad_rows({9, 400}), with_bad_rows({400}), at::tensor(0.25)});
  const Program images = [](const Tensors& in) { return Tensors{in[0] - in[0].amax({1, 2, 3}, true)}; };
  check_program(images, {with_bad_rows({5, 3, 30, 40})});
  const Program dims = [](const Tensors& in) { return Tensors{in[0].softmax(-1) * 2}; };
  check_program(dims, {with_bad_rows({5, 7, 200})});
  check_program(dims, {with_bad_rows({5, 7, 9})});
}

TEST_CASE("loops on a GPU: what is written early where other rows are not read") {
  const Program rows_and_repair = [](const Tensors& in) {
    const at::Tensor some = at::where(in[1].unsqueeze(1), in[0], at::zeros_like(in[0]));
    auto [z, f] = fix(in[0], flag_nan(some, 1), 1);
    return Tensors{z, f, some};
  };
  for (const int64_t positions : {10, 300, 5000})
    check_program(rows_and_repair, {with_bad_rows({33, positions}), at::arange(33).remainder(3).eq(1)});
}

TEST_CASE("graphs with tensors of two devices: loops run where the inputs are, and results are where they belong") {
  const WithLoops loops;
  const Tensors host{with_bad_rows({8, 300})}, moved = there(host);
  const Program to_host = [](const Tensors& in) {
    return Tensors{in[0] * 2 + 1, at::zeros_like(in[0], at::TensorOptions(at::kCPU)) + 1};
  };
  const auto from_gpu = compiled(to_host, moved);
  const Tensors got = warm(*from_gpu, moved);
  CHECK(got[0].device().type() == OTHER_DEVICE.type());
  CHECK(got[1].device().is_cpu());
  const Program to_gpu = [](const Tensors& in) { return Tensors{(in[0] * 2 + 1).relu(), in[0].to(OTHER_DEVICE) + 1}; };
  const Tensors both = warm(*compiled(to_gpu, host), host);
  CHECK(both[0].device().is_cpu());
  CHECK(both[1].device().type() == OTHER_DEVICE.type());
}

TEST_CASE("loops on a GPU: calls from a thread that has not used the device before") {
  const WithLoops loops;
  const Tensors inputs = there({with_bad_rows({32, 300})});
  const auto executable = compiled(detect_repair, inputs);
  const Tensors expected = warm(*executable, inputs);
  Tensors got;
  std::thread([&] { got = run(*executable, inputs); }).join();
  for (size_t i = 0; i < got.size(); ++i) CHECK(diagnose::same_bits(from_other(expected[i]), from_other(got[i])));
}

TEST_CASE("loops on a GPU: one operation on flags by itself") {
  check_program([](const Tensors& in) { return Tensors{flag_nan(in[0], 1)}; }, {with_bad_rows({33, 300})});
  check_program([](const Tensors& in) { return Tensors{flag_nan_and_inf(in[0], 1)}; }, {with_bad_rows({5, 9000})});
}

TEST_CASE("a warm call of loops on a GPU calls no operator that computes, and waits for nothing") {
  if (is_real_device()) return;  // calls are counted on the device that stands in
  const WithLoops loops;
  const Tensors inputs = there({with_bad_rows({32, 300})});
  const auto executable = compiled(detect_repair, inputs);
  warm(*executable, inputs);
  const Calls calls = calls_of([&] { run(*executable, inputs); });
  for (const std::string& name : calls.made) CHECK_MESSAGE(name.rfind("aten::empty", 0) == 0, name);
  CHECK_MESSAGE(calls.waits.empty(), listed(calls.waits));
}

TEST_CASE("policies of the library give the bits of the CPU by loops on a GPU") {
  const WithLoops loops;
  RuntimeOptions options;
  options.trusted = true;  // the contracts of operators know no such device
  options.log = no_log();
  size_t kernels = 0;
  for (const std::filesystem::path& path : library()) {
    CAPTURE(path.string());
    lua::LuaScript script(read_bytes(path), script_options(path));
    const Policy here = Runtime(options).load(path), on_gpu = Runtime(options).load(path);
    for (size_t test = 0; test < script.test_count(); ++test) {
      CAPTURE(test);
      const Tensors params = script.test_params(test);
      Tensors inputs;
      for (const at::Tensor& input : script.test_arguments(test)) inputs.push_back(input.detach());
      for (size_t i = 0; i < params.size(); ++i)
        for (const Policy& policy : {here, on_gpu})
          policy.set_param(script.signature().params[i].name, params[i].item());
      for (const Policy& policy : {here, on_gpu}) policy.reset_state();
      on_gpu.prepare(there(inputs));  // waits for its kernels
      for (int call = 0; call < 3; ++call) {
        RunInfo info;
        RunOptions told;
        told.info = &info;
        const Tensors expected = here.run(inputs), got = on_gpu.run(there(inputs), told);
        kernels += info.loops.kernels;
        REQUIRE(got.size() == expected.size());
        for (size_t i = 0; i < got.size(); ++i)
          CHECK((is_real_device()
                     ? at::allclose(from_other(got[i]).to(at::kDouble), expected[i].to(at::kDouble), 1e-5, 1e-6, true)
                     : diagnose::same_bits(from_other(got[i]), expected[i])));
      }
    }
  }
  CHECK(kernels > 20);
}

TEST_CASE("without rows loops on a GPU give empty results") {
  const WithLoops loops;
  const auto executable = compiled(detect_repair, there({with_bad_rows({4, 300})}));
  const Tensors got = run(*executable, there({at::empty({0, 300})}));
  CHECK(got[0].sizes() == at::IntArrayRef{0, 300});
  CHECK(got[1].size(0) == 0);
}

TEST_CASE("what loops on a GPU cannot do, ATen does there") {
  const WithLoops loops;
  const auto on_gpu = [](const Program& program, const Tensors& inputs) {
    const auto executable = compiled(program, there(inputs));
    const Tensors got = warm(*executable, there(inputs)), expected = program(inputs);
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(at::allclose(from_other(got[i]).to(at::kDouble), expected[i].to(at::kDouble), 1e-5, 1e-6, true));
    return executable->loops().kernels;
  };
  // Real numbers as whole ones, where what is beyond the range is the device's; a reduction over dims in the middle.
  CHECK(on_gpu([](const Tensors& in) { return Tensors{(in[0] * 3).to(at::kLong)}; }, {at::rand({8, 300})}) == 0);
  CHECK(on_gpu([](const Tensors& in) { return Tensors{in[0] - in[0].mean({1}, true)}; }, {at::rand({8, 30, 40})}) == 0);
}
