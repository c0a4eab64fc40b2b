// Gradients of every program: where they are finite, each backend's are those of the interpreter, bit for bit; with
// `fused`, up to what docs/backends.md allows.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/backend.h>
#include <triage/triage.h>

#include <cmath>
#include <cstring>
#include <map>

#include "programs.h"
#include "tests/logs.h"
#include "tests/other_device.h"

namespace triage::parity {
namespace {

Tensors requiring_grad(const Tensors& given) {
  Tensors all;
  for (const at::Tensor& tensor : given)
    all.push_back(at::isFloatingType(tensor.scalar_type())
                      ? tensor.detach().clone(at::MemoryFormat::Preserve).requires_grad_()
                      : tensor);
  return all;
}

/// Of the sum of all outputs that have a gradient; undefined where an input has none.
Tensors gradients(const Policy& policy, const Tensors& given) {
  const Tensors inputs = requiring_grad(given);
  Tensors roots, ends, tangents;
  for (const at::Tensor& output : policy.run(inputs)) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    tangents.push_back((at::arange(output.numel()).remainder(5) - 2).view(output.sizes()).to(output.options()));
  }
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) ends.push_back(input);
  if (roots.empty()) return {};
  return torch::autograd::grad(roots, ends, tangents, false, false, true);
}

/// A device that stands in for a GPU takes policies only where they are trusted.
Policy load_with_breaks(const Program& program, const std::string& backend, bool trusted = false) {
  RuntimeOptions options;
  options.backend = backend;
  options.trusted = trusted;
  options.log = triage::test::no_log();
  return Runtime(options).load_source(program.source, "programs.lua");
}

/// Equal bits (or so many units in the last place of the largest gradient), or not finite in what is expected: there, a
/// backend may know better.
bool agree(const at::Tensor& got, const at::Tensor& expected, double ulps) {
  if (got.defined() != expected.defined()) return false;
  if (!got.defined()) return true;
  if (got.sizes() != expected.sizes() || got.scalar_type() != expected.scalar_type()) return false;
  const at::Tensor fine = at::isfinite(expected);
  const at::Tensor a = at::where(fine, got, at::zeros_like(got)), b = at::where(fine, expected, at::zeros_like(got));
  if (at::equal(a, b)) return true;
  const double unit = expected.scalar_type() == at::kDouble  ? 2.3e-16
                      : expected.scalar_type() == at::kFloat ? 1.2e-7
                                                             : 0;
  return ((a - b).abs().max() <= b.abs().max() * (unit * ulps)).item<bool>();
}

/// What spoils the gradient of a row that is not taken, in the ways to leave it out.
Program guarded_program(const std::string& way, const std::string& function) {
  const std::map<std::string, std::string> ways = {
      {"map_ok", "return err.map_ok(f, z, fn)"},
      {"and_then", "return (err.and_then(f, z, function(v) return fn(v), err.new(v) end))"},
      {"IF", "return IF(err.is_ok(f), function() return fn(z) end):ELSE(function() return z end)"},
      {"fix", "return fn((fix(z, f, 'x', {fallback = 1.0})))"}};
  return {way + " of " + function,
          "return function(z)\n  local function fn(v) return " + function +
              " end\n  local f = push(flag_nan_and_inf(z, 'x'), err.NAN, 1, {where = (z <= 0):any(-1)})\n  " +
              ways.at(way) + "\nend\n",
          false};
}

}  // namespace

TEST_CASE("D04 T11 T15 T31: loops keep what is not taken out of the gradients") {
  for (const std::string way : {"map_ok", "and_then", "IF", "fix"})
    for (const std::string function : {"v:log() * v:sqrt()", "1 / v", "v / v:norm(2, {-1}, true)"}) {
      const Program program = guarded_program(way, function);
      CAPTURE(program.name);
      const Policy fused = load_with_breaks(program, "fused"), eager = load_with_breaks(program, "eager");
      for (const int64_t n : {2, 33}) {
        at::Tensor z = at::linspace(0.5, 3.0, n * 3).view({n, 3});
        const at::Tensor healthy = gradients(eager, {z})[0].slice(0, 1).clone();
        for (const float bad : {0.f, -1.f, HUGE_VALF, std::nanf("")}) {
          z[0].fill_(bad);
          fused.prepare(requiring_grad({z}));
          gradients(fused, {z});  // records the other half
          fused.prepare(requiring_grad({z}));
          const Tensors got = gradients(fused, {z}), expected = gradients(eager, {z});
          REQUIRE(got.size() == 1);
          CHECK(at::isfinite(got[0]).all().item<bool>());
          CHECK(agree(got[0], expected[0], 64));
          CHECK(agree(got[0].slice(0, 1), healthy, 64));
        }
      }
    }
}

TEST_CASE("D04: gradients of every program with every backend") {
  int compared = 0;
  for (const Program& program : programs()) {
    const auto names = input_names(program);
    for (const std::string& backend : list_backends()) {
      if (backend == "eager") continue;
      const Policy policy = load_with_breaks(program, backend), eager = load_with_breaks(program, "eager");
      for (const int64_t n : {5, 1, 33, 5, 5}) {
        const Tensors given = inputs(names, n, n == 33);
        Tensors expected = gradients(eager, given), got = gradients(policy, given);
        if (backend == "fused" && n == 5) {  // recorded by the first backward run, compiled after it
          policy.prepare(requiring_grad(given));
          got = gradients(policy, given);
        }
        CHECK_MESSAGE(expected.size() == got.size(), program.name << " with " << backend);
        for (size_t i = 0; i < got.size() && i < expected.size(); ++i, ++compared)
          CHECK_MESSAGE(agree(got[i], expected[i], backend == "fused" ? 64 : 0),
                        program.name << " with " << backend << ", " << n << " samples, gradient " << i);
      }
    }
  }
  CHECK(compared > 50);
}

TEST_CASE("D04: gradients of every program on another device are those of the CPU") {
  if (triage::test::is_real_device()) return;  // its arithmetic rounds in its own way
  if (!triage::test::has_autograd()) return;
  int compared = 0;
  for (const Program& program : programs()) {
    const auto names = input_names(program);
    const Policy here = load_with_breaks(program, "eager");
    for (const char* const backend : {"aot_eager", "fused"}) {
      const Policy there = load_with_breaks(program, backend, true);
      for (const int64_t n : {5, 33, 5}) {
        const Tensors given = inputs(names, n, false);
        Tensors moved;
        for (const at::Tensor& tensor : given) moved.push_back(triage::test::to_other(tensor));
        const Tensors expected = gradients(here, given), got = gradients(there, moved);
        REQUIRE(expected.size() == got.size());
        for (size_t i = 0; i < got.size(); ++i, ++compared) {
          const at::Tensor found = got[i].defined() ? triage::test::from_other(got[i]) : got[i];
          CHECK_MESSAGE(agree(found, expected[i], 4),
                        program.name << " with " << backend << ", " << n << " samples, gradient " << i);
        }
      }
    }
  }
  CHECK(compared > 50);
}

}  // namespace triage::parity
