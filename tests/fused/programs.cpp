#include "tests/fused/programs.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/fused.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string>

namespace triage::fused {

at::Tensor data(at::IntArrayRef sizes, at::ScalarType dtype) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble) * 0.7390851 + 0.3).sin().mul(2).view(sizes).to(dtype);
}

at::Tensor with_bad_rows(at::IntArrayRef sizes, at::ScalarType dtype) {
  at::Tensor x = data(sizes, dtype);
  for (int64_t row = 0; row < x.size(0); ++row) {
    if (row % 5 == 1) x[row].flatten()[0].fill_(std::numeric_limits<float>::quiet_NaN());
    if (row % 7 == 2) x[row].flatten()[-1].fill_(-std::numeric_limits<float>::infinity());
  }
  return x;
}

std::unique_ptr<Executable> compiled(const Program& program, const Tensors& examples) {
  auto executable = compile_fused(graph::trace(program, examples), examples);
  executable->finish_compiling();
  return executable;
}

Tensors run(const Executable& executable, const Tensors& inputs, const CallContext& call) {
  Tensors outputs;
  executable.run(inputs, outputs, call);
  return outputs;
}

std::set<std::string> operators_called(const Executable& executable, const Tensors& inputs, Tensors* outputs) {
  thread_local std::set<std::string> called;
  called.clear();
  const auto note = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    called.emplace(function.name());
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}));
  Tensors made = run(executable, inputs);
  at::removeCallback(handle);
  if (outputs) *outputs = std::move(made);
  return called;
}

Tensors run_in_loops(const Executable& executable, const Tensors& inputs) {
  run(executable, inputs);  // after which it knows the order in memory that ATen's results of such inputs have
  Tensors outputs;
  const auto called = operators_called(executable, inputs, &outputs);
  const std::set<std::string> copies{"aten::contiguous",          "aten::clone",      "aten::empty_like",
                                     "aten::empty.memory_format", "aten::empty",      "aten::copy_",
                                     "aten::empty_strided",       "aten::as_strided", "aten::permute"};
  const auto computed =
      std::find_if(called.begin(), called.end(), [&](const auto& name) { return !copies.count(name); });
  CHECK_MESSAGE(computed == called.end(), "ATen computed " << (computed == called.end() ? "" : *computed));
  return outputs;
}

std::pair<size_t, size_t> shares(const Program& program, const Tensors& examples) {
  std::pair<size_t, size_t> count;
  for (const FusionGroup& part : cut(graph::trace(program, examples)))
    (part.fused ? count.first : count.second) += part.graph.nodes().size();
  return count;
}

bool same(const at::Tensor& a, const at::Tensor& b, double ulps) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (!at::isFloatingType(a.scalar_type())) return a.equal(b);
  const double half = a.scalar_type() == at::kBFloat16 ? 0x1p-8 : a.scalar_type() == at::kHalf ? 0x1p-11 : 0;
  return at::allclose(a.to(at::kDouble), b.to(at::kDouble), 2e-6 + ulps * half, 1e-5 + ulps * half, /*equal_nan=*/true);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0);
}

Tensors detect_repair(const Tensors& in) {
  auto [z, f] = fix(in[0], flag_nan_and_inf(in[0], 1), 1);
  return {z, f};
}

Tensors softmax_repair(const Tensors& in) {
  const at::Tensor f = flag_nan_and_inf(in[0], 1);
  auto [z, g] = fix(in[0], f, 1);
  return {at::softmax(z, -1), g};
}

Tensors zscore_clip(const Tensors& in) {
  const at::Tensor f = flag_nan_and_inf(in[0], 1), z = err::take_ok_p(f, in[0]);
  const at::Tensor mean = z.mean(-1, true), spread = z.std(-1, true, true) + 1e-6;
  const at::Tensor far = (z - mean).abs() > spread * 3;
  PushOptions options;
  options.where = far.any(-1);
  return {at::where(far, mean + spread * 3 * at::sign(z - mean), z), err::push(f, err::value_clamped, 1, options)};
}

}  // namespace triage::fused
