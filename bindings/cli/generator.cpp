#include "bindings/cli/generator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <triage/files.h>

#include <charconv>
#include <limits>

#include "bindings/cli/command.h"

namespace triage::cli {
namespace {

const std::vector<std::string> kinds = {"randn", "rand", "randint", "zeros", "ones", "arange"};
const std::vector<std::string> option_names = {"seed", "dtype", "low", "high", "nan", "inf"};
const std::vector<at::ScalarType> dtypes = {at::kBool, at::kByte, at::kChar,     at::kShort, at::kInt,
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

struct Options {
  int64_t seed = 0, low = 0, high = 10, nan = 0, inf = 0;
  std::optional<at::ScalarType> dtype;
};

Options parse_options(const std::vector<std::string>& parts, const std::string& whole) {
  Options options;
  for (size_t i = 1; i < parts.size(); ++i) {
    size_t equals = parts[i].find('=');
    std::string name = parts[i].substr(0, equals);
    if (equals == std::string::npos ||
        std::find(option_names.begin(), option_names.end(), name) == option_names.end()) {
      throw UsageError(
          fmt::format("\"{}\" in \"{}\" is no option of a generator (seed=, dtype=, low=, high=, nan=, inf=){}",
                      parts[i], whole, did_you_mean(name, option_names)));
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
void spoil(at::Tensor& tensor, const Options& options, at::Generator& random, const std::string& whole) {
  if (options.nan == 0 && options.inf == 0) return;
  if (!tensor.is_floating_point())
    throw UsageError(fmt::format("\"{}\": only floating-point tensors can hold NaN and Inf", whole));
  int64_t samples = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (options.nan < 0 || options.inf < 0 || options.nan > samples || options.inf > samples - options.nan ||
      tensor.numel() == 0) {
    throw UsageError(
        fmt::format("\"{}\" asks for {} bad samples, but has {}", whole, options.nan + options.inf, samples));
  }
  at::Tensor rows = tensor.view({samples, -1});
  at::Tensor order = at::randperm(samples, random, at::TensorOptions(at::kLong));
  at::Tensor columns = at::randint(rows.size(1), {samples}, random, at::TensorOptions(at::kLong));
  for (int64_t i = 0; i < options.nan + options.inf; ++i) {
    double value = i < options.nan ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    rows[order[i].item<int64_t>()][columns[i].item<int64_t>()] = value;
  }
}

}  // namespace

const char* const generator_help =
    "A generator is randn, rand, randint, zeros, ones or arange, a shape, and options:\n"
    "  randn:32x512,seed=1,dtype=float16,nan=3,inf=2   3 samples with a NaN, 2 with an Inf\n"
    "  randint:32x8,low=0,high=100                     integers, 100 excluded\n";

std::optional<at::Tensor> generate(const std::string& text) {
  size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string kind = text.substr(0, colon);
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) return std::nullopt;
  std::vector<std::string> parts = split(text.substr(colon + 1), ',');
  std::vector<int64_t> shape = parse_shape(parts[0], text);
  Options options = parse_options(parts, text);
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

}  // namespace triage::cli
