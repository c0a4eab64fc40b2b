#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <triage/files.h>
#include <triage/flags.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string_view>

#include "bindings/cli/calls/flag_inputs.h"
#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/terminal.h"
#include "runtime/operators/logical_bytes.h"
#include "runtime/policy/versions/version.h"

namespace triage::cli {
namespace {

const auto& kinds = *new std::vector<std::string>{"randn", "rand", "randint", "zeros", "ones", "arange"};
const auto& option_names = *new std::vector<std::string>{"seed", "dtype", "low", "high", "nan", "inf"};
const auto& dtypes = *new std::vector<at::ScalarType>{at::kBool, at::kByte, at::kChar,     at::kShort, at::kInt,
                                                      at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  for (size_t end; (end = text.find(separator, start)) != std::string::npos; start = end + 1)
    parts.push_back(text.substr(start, end - start));
  parts.push_back(text.substr(start));
  return parts;
}

int64_t integer(const std::string& text, const std::string& what) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UsageError(fmt::format("{} must be an integer, not \"{}\"", what, text));
  return value;
}

/// float32, and the short forms f32, i64, u8, bf16.
at::ScalarType parse_dtype(const std::string& text) {
  std::vector<std::string> names;
  for (at::ScalarType dtype : dtypes) {
    names.push_back(dtype_name(dtype));
    std::string name = names.back();
    size_t digits = name.find_first_of("0123456789");
    std::string shorter =
        digits == std::string::npos ? name : (name[0] == 'b' ? "bf" : name.substr(0, 1)) + name.substr(digits);
    if (text == name || text == shorter) return dtype;
  }
  throw UsageError(fmt::format("there is no dtype \"{}\"{}", text, did_you_mean(text, names)));
}

std::vector<int64_t> parse_shape(const std::string& text, const std::string& whole) {
  std::vector<int64_t> sizes;
  if (text.empty()) return sizes;
  double elements = 1;
  for (const std::string& size : split(text, 'x')) {
    sizes.push_back(integer(size, fmt::format("a size in \"{}\"", whole)));
    if (sizes.back() < 0) throw UsageError(fmt::format("\"{}\" has a negative size", whole));
    elements *= static_cast<double>(std::max<int64_t>(sizes.back(), 1));
  }
  if (elements > 1e11) throw UsageError(fmt::format("\"{}\" is too large: {:.3g} elements", whole, elements));
  return sizes;
}

struct GeneratorOptions {
  int64_t seed = 0, low = 0, high = 10, nan = 0, inf = 0;
  std::optional<at::ScalarType> dtype;
};

GeneratorOptions parse_options(const std::vector<std::string>& parts, const std::string& whole) {
  GeneratorOptions options;
  for (size_t i = 1; i < parts.size(); ++i) {
    size_t equals = parts[i].find('=');
    std::string name = parts[i].substr(0, equals);
    if (equals == std::string::npos ||
        std::find(option_names.begin(), option_names.end(), name) == option_names.end()) {
      throw UsageError(
          fmt::format("\"{}\" in \"{}\" is not a generator option (seed=, dtype=, low=, high=, nan=, inf=){}", parts[i],
                      whole, did_you_mean(name, option_names)));
    }
    std::string value = parts[i].substr(equals + 1);
    if (name == "dtype") {
      options.dtype = parse_dtype(value);
      continue;
    }
    int64_t& field = name == "seed"   ? options.seed
                     : name == "low"  ? options.low
                     : name == "high" ? options.high
                     : name == "nan"  ? options.nan
                                      : options.inf;
    field = integer(value, name);
  }
  if (options.low >= options.high) throw UsageError(fmt::format("\"{}\": low must be less than high", whole));
  return options;
}

/// One bad element in each of the first samples of a random order.
void spoil(at::Tensor& tensor, const GeneratorOptions& options, at::Generator& random, const std::string& whole) {
  if (options.nan == 0 && options.inf == 0) return;
  if (!tensor.is_floating_point())
    throw UsageError(fmt::format("\"{}\": only floating-point tensors can hold NaN and Inf", whole));
  int64_t samples = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (options.nan < 0 || options.inf < 0 || options.nan > samples || options.inf > samples - options.nan ||
      tensor.numel() == 0) {
    throw UsageError(
        fmt::format("\"{}\" requests {} bad samples, but the batch has {}", whole, options.nan + options.inf, samples));
  }
  at::Tensor rows = tensor.view({samples, -1});
  at::Tensor order = at::randperm(samples, random, at::TensorOptions(at::kLong));
  at::Tensor columns = at::randint(rows.size(1), {samples}, random, at::TensorOptions(at::kLong));
  for (int64_t i = 0; i < options.nan + options.inf; ++i) {
    double value = i < options.nan ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    rows[order[i].item<int64_t>()][columns[i].item<int64_t>()] = value;
  }
}

at::Tensor made_of(const std::string& kind, const std::vector<int64_t>& shape, const GeneratorOptions& options,
                   const std::string& text) {
  at::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(options.seed));
  // Made in float32 or int64 and then cast: LibTorch 1.13 cannot draw half-precision numbers on the CPU.
  at::TensorOptions real(options.dtype == at::kDouble ? at::kDouble : at::kFloat), whole(at::kLong);
  at::Tensor tensor;
  if (kind == "randn") tensor = at::randn(shape, random, real);
  if (kind == "rand") tensor = at::rand(shape, random, real);
  if (kind == "randint") tensor = at::randint(options.low, options.high, shape, random, whole);
  if (kind == "zeros") tensor = at::zeros(shape, real);
  if (kind == "ones") tensor = at::ones(shape, real);
  if (kind == "arange") {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    tensor = at::arange(count, whole).reshape(shape).to(at::kFloat);
  }
  if (options.dtype) tensor = tensor.to(*options.dtype);
  spoil(tensor, options, random, text);
  return tensor;
}

/// LibTorch has no type of its own for this error.
bool is_out_of_memory(const c10::Error& error) {
  return std::string_view(error.what()).find("alloc") != std::string::npos;
}

}  // namespace

std::optional<at::Tensor> generate(const std::string& text) {
  size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string kind = text.substr(0, colon);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) return std::nullopt;
  std::vector<std::string> parts = split(text.substr(colon + 1), ',');
  std::vector<int64_t> shape = parse_shape(parts[0], text);
  GeneratorOptions options = parse_options(parts, text);
  try {
    return made_of(kind, shape, options, text);
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) throw;
    const double bytes =
        operators::logical_bytes(shape, options.dtype.value_or(kind == "randint" ? at::kLong : at::kFloat));
    throw UsageError(fmt::format(
        "there is no memory for \"{}\": it takes {:.1f} GiB, and what makes it may take more; give a smaller shape",
        text, bytes / (1 << 30)));
  }
}

std::optional<ExampleInputs> example_of_types(const Signature& signature, const CallOptions& options) {
  return lua::example_of_types(
      signature, policy::param_tensors(signature, checked_params(options.params, signature, options.policy)));
}

std::vector<ExampleInputs> examples_for(lua::LuaScript& script, const CallOptions& options) {
  const Signature& signature = script.signature();
  const Params given = checked_params(options.params, signature, options.policy);
  const std::vector<at::Tensor> params = policy::param_tensors(signature, given);
  if (!options.inputs.empty()) {
    ExampleInputs example{"the inputs given", {}, params};
    CodeNames codes = signature.codes;
    for (const auto& [name, source] : match_inputs(options.inputs, signature.inputs, options.policy))
      example.inputs.push_back(read_input({name, source, type_of(signature, name)}, at::kCPU, codes));
    return {example};
  }
  if (std::vector<ExampleInputs> examples = lua::examples_of_tests(script); !examples.empty()) {
    for (ExampleInputs& example : examples)
      if (!given.empty()) example.params = params;
    return examples;
  }
  if (const auto example = example_of_types(signature, options)) return {*example};
  const std::string first = signature.inputs.empty() ? "z" : signature.inputs.front();
  throw UsageError(
      fmt::format("{}: triage found no inputs: the policy has no tests, and no declared input types of at most {:.0f} "
                  "MiB; give --input {}=FILE, or try --input {}=randn:32x512",
                  options.policy, lua::most_bytes_of_types / (1 << 20), first, first));
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
