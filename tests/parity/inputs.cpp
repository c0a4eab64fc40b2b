#include "inputs.h"

#include <ATen/ATen.h>
#include <triage/flags.h>

#include <limits>
#include <stdexcept>

namespace triage::parity {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Numbers between -2 and 2 that no generator is needed for.
at::Tensor values(at::IntArrayRef sizes, double salt) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return (at::arange(count, at::kDouble) * 0.7390851 + salt).sin().mul(2).view(sizes);
}

void spoil(at::Tensor& rows) {
  if (rows.size(0) == 0) return;
  at::Tensor flat = rows.view({rows.size(0), -1});
  for (int64_t row = 0; row < flat.size(0); ++row) {
    if (row % 5 == 1) flat[row][row % flat.size(1)] = nan;
    if (row % 7 == 2) flat[row][(row + 1) % flat.size(1)] = row % 2 ? inf : -inf;
    if (row % 11 == 3) flat[row].fill_(-1.0);
  }
}

/// The same values where every other element in memory is something else.
at::Tensor with_gaps(const at::Tensor& dense) {
  auto sizes = dense.sizes().vec();
  sizes.push_back(2);
  at::Tensor wide = at::full(sizes, 7, dense.options());
  at::Tensor view = wide.select(-1, 0);
  view.copy_(dense);
  return view;
}

at::Tensor some_flags(int64_t samples, int64_t salt) {
  at::Tensor f = err::new_t(samples), row = at::arange(samples);
  for (int64_t step = 0; step < 20; ++step) {
    const at::Tensor codes = (row * 7 + step * 3 + salt).remainder(16);
    PushOptions options;
    options.severity = Severity{1 + (step + salt) % 3};
    f = err::push(f, at::where((row + step).remainder(4) < (row.remainder(3)), codes, at::zeros_like(codes)),
                  Location((step * 37 + salt) % 1024), options);
  }
  return f;
}

at::Tensor dense(char name, int64_t n) {
  const auto data = [&](at::IntArrayRef sizes, at::ScalarType dtype) {
    at::Tensor x = values(sizes, name);
    if (name != 'y') spoil(x);
    return x.to(dtype);
  };
  const at::Tensor row = at::arange(n);
  switch (name) {
    case 'z':
    case 'y':
      return data({n, 7}, at::kFloat);
    case 'd':
      return data({n, 5}, at::kDouble);
    case 'h':
      return data({n, 6}, at::kHalf);
    case 'b':
      return data({n, 6}, at::kBFloat16);
    case 'q':
      return data({n, 3, 5}, at::kFloat);
    case 'v':
      return data({n, 1}, at::kFloat).view({n});
    case 'i':
      return (at::arange(n * 4).view({n, 4}) * 5).remainder(13) - row.remainder(6).eq(5).view({n, 1}).to(at::kLong);
    case 'c':
      return (row * 5).remainder(16);
    case 'm':
      return row.remainder(3).eq(1);
    case 'f':
      return some_flags(n, 1);
    case 'g':
      return some_flags(n, 5);
    default:
      throw std::invalid_argument(std::string("no input is named ") + name);
  }
}

}  // namespace

at::Tensor input(const std::string& name, int64_t samples, bool strided) {
  const at::Tensor tensor = dense(name.size() == 1 ? name[0] : '?', samples);
  return strided ? with_gaps(tensor) : tensor;
}

Tensors inputs(const std::vector<std::string>& names, int64_t samples, bool strided) {
  Tensors all;
  for (const auto& name : names) all.push_back(input(name, samples, strided));
  return all;
}

}  // namespace triage::parity
