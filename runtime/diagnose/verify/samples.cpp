#include "runtime/diagnose/verify/samples.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/flags.h>
#include <triage/location.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "runtime/diagnose/bits.h"

namespace triage::diagnose {
namespace {

constexpr size_t most_given = 64;     // samples of the batch given
constexpr int64_t few_elements = 16;  // of a sample: special values are put into each
constexpr int64_t most_places = 64;   // of a sample that a NaN is put into

struct FloatLimits {
  double smallest_normal, denormal, step;  // step: of 1 to the next number
};
FloatLimits range_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return {0x1p-14, 0x1p-24, 0x1p-10};
    case at::kBFloat16:
      return {0x1p-126, 0x1p-133, 0x1p-7};
    case at::kDouble:
      return {0x1p-1022, 0x1p-1074, 0x1p-52};
    default:
      return {0x1p-126, 0x1p-149, 0x1p-23};
  }
}

/// Of the integers of a dtype.
double end_of(at::ScalarType dtype, bool upper) {
  const at::Tensor end = poisoned(at::zeros({1, 1}, dtype), 0, upper ? Poison::largest : Poison::smallest);
  return end.to(at::kDouble).item<double>();
}

std::string name_of(double value, const FloatLimits& range) {
  if (std::isnan(value)) return "NaN";
  if (value == range.denormal) return "the smallest denormal";
  if (value == range.smallest_normal) return "the smallest normal number";
  if (value == 0) return std::signbit(value) ? "-0" : "0";
  if (std::isinf(value)) return value > 0 ? "Inf" : "-Inf";
  return fmt::format("{:.6g}", value);
}

/// Makes samples out of one of the batch.
class Maker {
 public:
  Maker(const std::vector<IsolationInput>& inputs, const TriedSample& good, TriedSamples& samples)
      : inputs_(inputs), good_(good), samples_(samples) {}

  void make_bad(size_t input, const std::vector<double>& numbers) {
    const at::ScalarType dtype = inputs_[input].tensor.scalar_type();
    if (good_.rows[input].numel() == 0) return;
    if (inputs_[input].is_flags)
      make_records(input);
    else if (is_real(dtype))
      make_floats(input, numbers);
    else if (dtype == at::kBool)
      make_masks(input);
    else if (at::isIntegralType(dtype, false))
      make_integers(input, numbers);
    else
      for (const Poison poison : poisons_for(dtype, false))
        add(input, poison_text(poison, dtype), [&](at::Tensor& row) { row = poisoned(row, 0, poison); });
  }

  void make_all_nan() {
    TriedSample sample{"NaN in all inputs", good_.rows};
    for (at::Tensor& row : sample.rows)
      if (row.defined() && is_real(row.scalar_type())) row = at::full_like(row, std::nan(""));
    samples_.push_back(std::move(sample));
  }

  /// Inputs of one form that are equal: what divides by their difference.
  void make_equal() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      for (size_t other = i + 1; other < inputs_.size(); ++other)
        if (has_floats(i) && has_floats(other) && same_kind(good_.rows[i], good_.rows[other]))
          add(other, fmt::format("{} itself", inputs_[i].name), [&](at::Tensor& row) { row = good_.rows[i].clone(); });
  }

 private:
  bool has_floats(size_t input) const {
    return good_.rows[input].defined() && !inputs_[input].is_flags && is_real(good_.rows[input].scalar_type());
  }
  void add(size_t input, const std::string& what, const std::function<void(at::Tensor& row)>& change) {
    TriedSample sample{fmt::format("{} in {}", what, inputs_[input].name), good_.rows};
    sample.rows[input] = sample.rows[input].clone(at::MemoryFormat::Contiguous);
    change(sample.rows[input]);
    samples_.push_back(std::move(sample));
  }
  void fill(size_t input, const at::Scalar& value, const std::string& name) {
    add(input, name, [&](at::Tensor& row) { row.fill_(value); });
  }
  /// In one place: of `most` places that are spread over the sample, the first and the last among them.
  void put(size_t input, const at::Scalar& value, const std::string& name, int64_t most) {
    const int64_t count = good_.rows[input].numel(), places = std::min(count, std::max<int64_t>(most, 2));
    for (int64_t i = 0; i < places; ++i) {
      const int64_t place = places == 1 ? 0 : i * (count - 1) / (places - 1);
      add(input, fmt::format("one {} (element {})", name, place),
          [&](at::Tensor& row) { row.view({-1})[place].fill_(value); });
    }
  }
  /// In the whole first part of a sample that has parts: a row of a matrix.
  void fill_part(size_t input, const at::Scalar& value, const std::string& name) {
    if (good_.rows[input].dim() < 3) return;
    add(input, name + " in the first part", [&](at::Tensor& row) { row.select(1, 0).fill_(value); });
    add(input, name + " in all parts but the first", [&](at::Tensor& row) {
      const at::Tensor first = row.select(1, 0).clone();
      row.fill_(value);
      row.select(1, 0).copy_(first);
    });
  }

  void make_masks(size_t input) {
    for (const bool value : {false, true}) {
      const char* const name = value ? "true" : "false";
      fill(input, value, name);
      put(input, value, name, few_elements);
      fill_part(input, value, name);
      add(input, fmt::format("one {} among others (element 0)", name), [&](at::Tensor& row) {
        row.fill_(!value);
        row.view({-1})[0].fill_(value);
      });
      add(input, fmt::format("one {} among others (the last element)", name), [&](at::Tensor& row) {
        row.fill_(!value);
        row.view({-1})[row.numel() - 1].fill_(value);
      });
    }
    add(input, "true and false in turn", [&](at::Tensor& row) {
      row.fill_(true);
      row.view({-1}).slice(0, 0, {}, 2).fill_(false);
    });
  }

  void make_floats(size_t input, const std::vector<double>& numbers) {
    const at::ScalarType dtype = inputs_[input].tensor.scalar_type();
    const FloatLimits range = range_of(dtype);
    const bool is_small = good_.rows[input].numel() <= few_elements;
    for (const double value : special_values(dtype, {})) {
      fill(input, value, name_of(value, range));
      put(input, value, name_of(value, range), std::isnan(value) ? most_places : is_small ? few_elements : 3);
    }
    for (const double value : near_numbers(dtype, numbers)) {
      fill(input, value, name_of(value, range));
      put(input, value, name_of(value, range), 2);
    }
    const double inf = std::numeric_limits<double>::infinity();
    for (const double value : {std::nan(""), 0.0, -inf}) fill_part(input, value, name_of(value, range));
    add(input, "Inf and -Inf", [&](at::Tensor& row) {
      row.view({-1})[0].fill_(inf);
      row.view({-1})[row.numel() - 1].fill_(-inf);
    });
    add(input, "NaN in all but the first place", [&](at::Tensor& row) {
      const at::Tensor first = row.view({-1})[0].clone();
      row.fill_(std::nan(""));
      row.view({-1})[0].copy_(first);
    });
    add(input, "zeros of both signs", [&](at::Tensor& row) {
      row.zero_();
      row.view({-1}).slice(0, 0, {}, 2).fill_(-0.0);
    });
    add(input, "a constant", [&](at::Tensor& row) { row.copy_(row.view({-1})[0].clone().expand_as(row)); });
    for (const double scale : {-1.0, 1e-3, 1e3, 1e6, std::sqrt(largest_of(dtype)) * 2})
      add(input, fmt::format("{:.3g} times a good sample", scale), [&](at::Tensor& row) { row.mul_(scale); });
    permute(input);
  }

  void make_integers(size_t input, const std::vector<double>& numbers) {
    const at::ScalarType dtype = inputs_[input].tensor.scalar_type();
    for (const Poison poison : poisons_for(dtype, false)) {
      add(input, poison_text(poison, dtype), [&](at::Tensor& row) { row = poisoned(row, 0, poison); });
      const at::Scalar value = samples_.back().rows[input].view({-1})[0].item();
      put(input, value, poison_text(poison, dtype), 2);
    }
    std::vector<int64_t> values = {0, 1};
    if (dtype != at::kByte) values.push_back(-1);
    for (const int64_t value : integers_near(dtype, numbers)) values.push_back(value);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (const int64_t value : values) {
      fill(input, value, std::to_string(value));
      put(input, value, std::to_string(value), 2);
    }
    permute(input);
  }

  void permute(size_t input) {
    if (good_.rows[input].numel() < 2) return;
    add(input, "a good sample back to front",
        [&](at::Tensor& row) { row.copy_(row.view({-1}).flip(0).view(row.sizes())); });
    add(input, "a good sample in rising order",
        [&](at::Tensor& row) { row.copy_(std::get<0>(row.view({-1}).sort(0, false)).view(row.sizes())); });
  }

  void make_records(size_t input) {
    add(input, "an error", [](at::Tensor& row) { row = err::push(row, err::nan, ErrorLocation::UNKNOWN); });
    add(input, "a repair", [](at::Tensor& row) { row = err::push(row, err::fallback_value, ErrorLocation::UNKNOWN); });
    add(input, "a full record", [](at::Tensor& row) {
      for (int i = 0; i < 32; ++i)
        row = err::push(row, err::value_clamped, 900 + i);  // ids without names: 32 errors of one kind
    });
  }

  const std::vector<IsolationInput>& inputs_;
  const TriedSample& good_;
  TriedSamples& samples_;
};

/// The first good one; where there is none, the first without its bad values.
TriedSample good_one(const TriedSamples& samples) {
  const auto found = std::find_if(samples.begin(), samples.end(), is_good);
  if (found != samples.end()) return *found;
  TriedSample good = samples.front();
  for (at::Tensor& row : good.rows)
    if (row.defined()) row = without_bad_values(row);
  good.what = "sample 0 with zeros in the place of its bad values";
  return good;
}

}  // namespace

size_t elements_of(const TriedSample& sample) {
  size_t elements = 0;
  for (const at::Tensor& row : sample.rows)
    if (row.defined()) elements += static_cast<size_t>(row.numel());
  return elements;
}

bool is_good(const TriedSample& sample) {
  return std::all_of(sample.rows.begin(), sample.rows.end(), [](const at::Tensor& row) {
    return !row.defined() || !is_real(row.scalar_type()) || row.mul(0).sum().item<double>() == 0;  // not NaN
  });
}

std::vector<double> special_values(at::ScalarType dtype, const std::vector<double>& numbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const FloatLimits range = range_of(dtype);
  std::vector<double> values = {
      std::nan(""), inf, -inf, largest_of(dtype), -largest_of(dtype), range.smallest_normal, range.denormal,     0.0,
      -0.0,         1.0, -1.0, 1 + range.step,    1 - range.step / 2, -1 - range.step,       -1 + range.step / 2};
  for (const double value : near_numbers(dtype, numbers)) values.push_back(value);
  return values;
}

std::vector<double> near_numbers(at::ScalarType dtype, const std::vector<double>& numbers) {
  const FloatLimits range = range_of(dtype);
  std::vector<double> values;
  for (const double number : numbers)
    for (const double value : {number, number * (1 + range.step), number * (1 - range.step), -number})
      if (std::abs(value) <= largest_of(dtype) && std::find(values.begin(), values.end(), value) == values.end())
        values.push_back(value);
  return values;
}

std::vector<int64_t> integers_near(at::ScalarType dtype, const std::vector<double>& numbers) {
  const double first = end_of(dtype, false), last = end_of(dtype, true);
  std::vector<int64_t> values;
  for (const double number : numbers)
    if (number == std::trunc(number) && std::abs(number) < 0x1p53)
      for (const double near : {number - 1, number, number + 1})
        if (near >= first && near <= last) values.push_back(static_cast<int64_t>(near));
  return values;
}

Tensors batch_of(const std::vector<IsolationInput>& inputs, const TriedSample* begin, const TriedSample* end) {
  Tensors batch;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].has_samples) {
      batch.push_back(inputs[i].tensor);
      continue;
    }
    Tensors rows;
    for (const TriedSample* sample = begin; sample != end; ++sample) rows.push_back(sample->rows[i]);
    batch.push_back(at::cat(rows, 0));
  }
  return batch;
}

TriedSamples samples_to_try(const std::vector<IsolationInput>& inputs, const std::vector<double>& numbers) {
  const at::NoGradGuard no_grad;
  TriedSamples samples;
  const auto first = std::find_if(inputs.begin(), inputs.end(), [](const auto& input) { return input.has_samples; });
  if (first == inputs.end() || first->tensor.size(0) == 0) return samples;
  const auto given = std::min<int64_t>(first->tensor.size(0), most_given);
  for (int64_t row = 0; row < given; ++row) {
    TriedSample sample{fmt::format("sample {} as given", row), Tensors(inputs.size()), /*is_given=*/true};
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].has_samples)
        sample.rows[i] = inputs[i].tensor.detach().narrow(0, row, 1).clone(at::MemoryFormat::Contiguous);
    samples.push_back(std::move(sample));
  }
  const TriedSample good = good_one(samples);
  Maker maker(inputs, good, samples);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].has_samples) maker.make_bad(i, numbers);
  maker.make_all_nan();
  maker.make_equal();
  return samples;
}

}  // namespace triage::diagnose
