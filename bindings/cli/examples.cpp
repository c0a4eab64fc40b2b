#include "bindings/cli/examples.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/flags.h>

#include <algorithm>
#include <limits>
#include <map>

#include "bindings/cli/command.h"
#include "runtime/operators/logical_bytes.h"
#include "runtime/policy/version.h"

namespace triage::cli {
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

constexpr double most_bytes = 1 << 30;  // of all inputs that are made

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

at::Tensor made_of(const TensorSpec& spec, const std::vector<int64_t>& shape) {
  if (spec.flags) return err::new_t(shape.empty() ? batch : shape[0]);
  const bool whole = spec.kind == DTypeKind::integer ||
                     (spec.kind == DTypeKind::exact && at::isIntegralType(spec.dtype, /*includeBool=*/true));
  if (whole) return at::ones(shape, spec.kind == DTypeKind::exact ? spec.dtype : at::kLong);
  return with_bad_rows(at::randn(shape).to(spec.kind == DTypeKind::exact ? spec.dtype : at::kFloat));
}

std::vector<Example> of_tests(lua::LuaScript& script) {
  std::vector<Example> examples;
  for (size_t i = 0; i < script.test_count(); ++i)
    examples.push_back(
        {fmt::format("test \"{}\"", script.test_name(i)), script.test_arguments(i), script.test_params(i)});
  return examples;
}

}  // namespace

std::optional<Example> example_of_types(const Signature& signature, const CallOptions& options) {
  if (signature.inputs.size() > signature.input_types.size()) return std::nullopt;
  Example example{"its declared types",
                  {},
                  policy::param_tensors(signature, parse_params(options.params, signature, options.policy))};
  std::map<std::string, int64_t> sizes;
  std::vector<std::vector<int64_t>> shapes;
  double bytes = 0;
  for (const auto& type : signature.input_types) {
    if (!type) return std::nullopt;
    shapes.push_back(shape_of(*type, sizes));
    bytes += bytes_of(*type, shapes.back());
  }
  if (bytes > most_bytes) return std::nullopt;
  for (size_t i = 0; i < shapes.size(); ++i) example.inputs.push_back(made_of(*signature.input_types[i], shapes[i]));
  return example;
}

std::vector<Example> examples_for(lua::LuaScript& script, const CallOptions& options) {
  const Signature& signature = script.signature();
  const Params given = parse_params(options.params, signature, options.policy);
  const std::vector<at::Tensor> params = policy::param_tensors(signature, given);
  if (!options.inputs.empty()) {
    Example example{"the inputs given", {}, params};
    for (const auto& [name, source] : match_inputs(options.inputs, signature.inputs, options.policy))
      example.inputs.push_back(read_input(source, at::kCPU));
    return {example};
  }
  if (std::vector<Example> examples = of_tests(script); !examples.empty()) {
    for (Example& example : examples)
      if (!given.empty()) example.params = params;
    return examples;
  }
  if (const auto example = example_of_types(signature, options)) return {*example};
  const std::string first = signature.inputs.empty() ? "z" : signature.inputs.front();
  throw UsageError(
      fmt::format("{} has no tests to take inputs from, and no declared types to make them of, or only types of more "
                  "than {:.0f} MiB; "
                  "give --input {}=FILE, or try --input {}=randn:32x512",
                  options.policy, most_bytes / (1 << 20), first, first));
}

namespace {

/// Is the tensor as large as one row of one of the inputs, or of its last dimensions? Then it stands beside every row.
bool is_one_row(const at::Tensor& tensor, const std::vector<at::Tensor>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
    return input.dim() > tensor.dim() &&
           input.sizes().slice(static_cast<size_t>(input.dim() - tensor.dim())) == tensor.sizes();
  });
}

}  // namespace

std::vector<at::Tensor> with_rows(const std::vector<at::Tensor>& inputs, int64_t rows) {
  if (inputs.empty() || inputs[0].dim() == 0 || inputs[0].size(0) == 0) return {};
  const int64_t own = inputs[0].size(0);
  const at::Tensor index = at::arange(rows, at::kLong).remainder(own);
  std::vector<at::Tensor> result;
  for (const at::Tensor& input : inputs) {
    const bool follows = input.dim() > 0 && input.size(0) == own && !is_one_row(input, inputs);
    result.push_back(follows ? input.detach().index_select(0, index.to(input.device())) : input.detach());
    result.back().set_requires_grad(input.requires_grad());
  }
  return result;
}

}  // namespace triage::cli
