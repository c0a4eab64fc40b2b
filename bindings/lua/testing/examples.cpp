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

/// What the declared types leave open.
struct ExampleForm {
  const char* what;
  int64_t samples, named;                // sizes of the first dim and of names in others
  at::ScalarType floating = at::kFloat;  // for floating_t
  std::vector<int64_t> rest = {};        // for "..."
  bool has_bad_rows = false;
};

ExampleForm usual_form() { return {"its declared types", 32, 512, at::kFloat, {512}, true}; }

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
std::vector<int64_t> shape_of(const TensorSpec& spec, const ExampleForm& form, std::map<std::string, int64_t>& sizes) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    const Dim& dim = spec.dims[i];
    if (dim.kind == Dim::Kind::size) {
      shape.push_back(dim.value);
    } else if (dim.kind == Dim::Kind::rest) {
      if (shape.empty()) shape.push_back(form.samples);
      shape.insert(shape.end(), form.rest.begin(), form.rest.end());
    } else {
      shape.push_back(sizes.emplace(dim.text(), i == 0 ? form.samples : form.named).first->second);
    }
  }
  return shape;
}

/// What making it takes: random floats become what is declared.
double bytes_of(const TensorSpec& spec, const std::vector<int64_t>& shape) {
  if (spec.flags) return operators::logical_bytes({shape.empty() ? 1 : shape[0], get_config().num_words()}, at::kLong);
  const at::ScalarType dtype = spec.kind == DTypeKind::exact ? spec.dtype : at::kLong;
  return operators::logical_bytes(shape, dtype);
}

at::Tensor made_of(const TensorSpec& spec, const ExampleForm& form, const std::vector<int64_t>& shape,
                   at::Generator& random) {
  if (spec.flags) return err::new_t(shape.empty() ? form.samples : shape[0]);
  const bool whole = spec.kind == DTypeKind::integer ||
                     (spec.kind == DTypeKind::exact && at::isIntegralType(spec.dtype, /*includeBool=*/true));
  if (whole) return at::ones(shape, spec.kind == DTypeKind::exact ? spec.dtype : at::kLong);
  at::Tensor floats = at::randn(shape, random).to(spec.kind == DTypeKind::exact ? spec.dtype : form.floating);
  return form.has_bad_rows ? with_bad_rows(std::move(floats)) : floats;
}

/// Nothing where an input has no declared type, or they take more memory than `most_bytes_of_types`.
std::optional<ExampleInputs> example_of_form(const Signature& signature, const ExampleForm& form,
                                             std::vector<at::Tensor> params) {
  if (signature.inputs.size() > signature.input_types.size()) return std::nullopt;
  ExampleInputs example{form.what, {}, std::move(params)};
  std::map<std::string, int64_t> sizes;
  std::vector<std::vector<int64_t>> shapes;
  double bytes = 0;
  for (const auto& type : signature.input_types) {
    if (!type) return std::nullopt;
    shapes.push_back(shape_of(*type, form, sizes));
    bytes += bytes_of(*type, shapes.back());
  }
  if (bytes > most_bytes_of_types) return std::nullopt;
  at::Generator random = at::detail::createCPUGenerator();  // the host's own draws nothing
  for (size_t i = 0; i < shapes.size(); ++i)
    example.inputs.push_back(made_of(*signature.input_types[i], form, shapes[i], random));
  return example;
}

/// Whether an input has what a form chooses, beside the number of samples.
bool is_open(const Signature& signature, const ExampleForm& form) {
  return std::any_of(signature.input_types.begin(), signature.input_types.end(), [&](const auto& type) {
    if (!type || type->flags) return false;
    if (form.floating != at::kFloat) return type->kind == DTypeKind::floating;
    for (size_t i = 0; i < type->dims.size(); ++i)
      if (type->dims[i].kind == Dim::Kind::rest || (i > 0 && type->dims[i].kind != Dim::Kind::size)) return true;
    return false;
  });
}

}  // namespace

std::vector<ExampleInputs> examples_of_tests(LuaScript& script) {
  std::vector<ExampleInputs> examples;
  for (size_t i = 0; i < script.test_count(); ++i)
    examples.push_back(
        {fmt::format("test \"{}\"", script.test_name(i)), script.test_arguments(i), script.test_params(i)});
  return examples;
}

std::optional<ExampleInputs> example_of_types(const Signature& signature, std::vector<at::Tensor> params) {
  return example_of_form(signature, usual_form(), std::move(params));
}

std::vector<ExampleInputs> examples_of_forms(const Signature& signature, const std::vector<at::Tensor>& params) {
  const ExampleForm forms[] = {{"its declared types with dims of size 1", 6, 1},
                               {"its declared types with dims of size 7", 6, 7, at::kFloat, {5, 3}},
                               {"its declared types in float16", 6, 8, at::kHalf, {8}},
                               {"its declared types in bfloat16", 6, 8, at::kBFloat16, {8}},
                               {"its declared types in float64", 6, 8, at::kDouble, {8}}};
  std::vector<ExampleInputs> examples;
  for (const ExampleForm& form : forms) {
    if (!is_open(signature, form)) continue;
    auto example = example_of_form(signature, form, params);
    if (!example || count_values(example->inputs) > most_values_of_types) continue;
    example->is_form = true;
    examples.push_back(std::move(*example));
  }
  return examples;
}

int64_t count_values(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
}

std::vector<ExampleInputs> examples_to_verify(LuaScript& script) {
  std::vector<ExampleInputs> examples = examples_of_tests(script);
  const Signature& signature = script.signature();
  const std::vector<at::Tensor> params = policy::param_tensors(signature, {});
  auto of_types = example_of_types(signature, params);
  if (of_types && count_values(of_types->inputs) <= most_values_of_types) examples.push_back(std::move(*of_types));
  for (ExampleInputs& form : examples_of_forms(signature, params)) examples.push_back(std::move(form));
  return examples;
}

}  // namespace triage::lua
