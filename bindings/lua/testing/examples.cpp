#include "bindings/lua/testing/examples.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <triage/config.h>
#include <triage/flags.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/operators/logical_bytes.h"
#include "runtime/policy/versions/version.h"

namespace triage::lua {
namespace {

constexpr int64_t batch = 32, named_size = 512;

/// Some rows of floats with a NaN or an Inf, as batches in production have.
at::Tensor with_bad_rows(at::Tensor tensor) {
  if (!tensor.is_floating_point() || tensor.dim() == 0 || tensor.numel() == 0) return tensor;
  const at::Tensor rows = tensor.view({tensor.size(0), -1});
  for (int64_t row = 0, bad = 0; row < rows.size(0); row += std::max<int64_t>(1, rows.size(0) / 4), ++bad)
    rows[row][row * 7 % rows.size(1)] =
        bad % 2 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return tensor;
}

/// Sizes of the declared type. A name stands for one size in all inputs; the first dim is the batch.
std::vector<int64_t> shape_of(const TensorSpec& spec, std::map<std::string, int64_t>& sizes) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    const Dim& dim = spec.dims[i];
    if (dim.kind == Dim::Kind::size) {
      shape.push_back(dim.value);
    } else if (dim.kind == Dim::Kind::rest) {
      if (shape.empty()) shape.push_back(batch);
      shape.push_back(named_size);
    } else {
      shape.push_back(sizes.emplace(dim.text(), i == 0 ? batch : named_size).first->second);
    }
  }
  return shape;
}

/// What making it takes: random floats become what is declared.
double bytes_of(const TensorSpec& spec, const std::vector<int64_t>& shape) {
  if (spec.flags)
    return operators::logical_bytes({shape.empty() ? batch : shape[0], get_config().num_words()}, at::kLong);
  const at::ScalarType dtype = spec.kind == DTypeKind::exact ? spec.dtype : at::kLong;
  return operators::logical_bytes(shape, dtype);
}

at::Tensor made_of(const TensorSpec& spec, const std::vector<int64_t>& shape, at::Generator& random) {
  if (spec.flags) return err::new_t(shape.empty() ? batch : shape[0]);
  const bool whole = spec.kind == DTypeKind::integer ||
                     (spec.kind == DTypeKind::exact && at::isIntegralType(spec.dtype, /*includeBool=*/true));
  if (whole) return at::ones(shape, spec.kind == DTypeKind::exact ? spec.dtype : at::kLong);
  return with_bad_rows(at::randn(shape, random).to(spec.kind == DTypeKind::exact ? spec.dtype : at::kFloat));
}

}  // namespace

std::vector<Example> examples_of_tests(LuaScript& script) {
  std::vector<Example> examples;
  for (size_t i = 0; i < script.test_count(); ++i)
    examples.push_back(
        {fmt::format("test \"{}\"", script.test_name(i)), script.test_arguments(i), script.test_params(i)});
  return examples;
}

std::optional<Example> example_of_types(const Signature& signature, std::vector<at::Tensor> params) {
  if (signature.inputs.size() > signature.input_types.size()) return std::nullopt;
  Example example{"its declared types", {}, std::move(params)};
  std::map<std::string, int64_t> sizes;
  std::vector<std::vector<int64_t>> shapes;
  double bytes = 0;
  for (const auto& type : signature.input_types) {
    if (!type) return std::nullopt;
    shapes.push_back(shape_of(*type, sizes));
    bytes += bytes_of(*type, shapes.back());
  }
  if (bytes > most_bytes_of_types) return std::nullopt;
  at::Generator random = at::detail::createCPUGenerator();  // the host's own draws nothing
  for (size_t i = 0; i < shapes.size(); ++i)
    example.inputs.push_back(made_of(*signature.input_types[i], shapes[i], random));
  return example;
}

int64_t count_values(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
}

std::vector<Example> examples_to_verify(LuaScript& script) {
  std::vector<Example> examples = examples_of_tests(script);
  const Signature& signature = script.signature();
  auto of_types = example_of_types(signature, policy::param_tensors(signature, {}));
  if (of_types && count_values(of_types->inputs) <= most_values_of_types) examples.push_back(std::move(*of_types));
  return examples;
}

}  // namespace triage::lua
