#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "runtime/diagnose/verify/samples.h"

/// The smallest samples that show what larger ones show.
namespace triage::diagnose {

constexpr int64_t most_elements = 64;       // that are looked at one by one; of more, blocks are
constexpr size_t most_looked_into = 4;      // samples; of more, each is taken as a whole
constexpr size_t most_tries_to_omit = 400;  // calls

/// Dims of inputs that are cut together: those of one size, as of scores and their mask; then each by itself.
using Dims = std::vector<std::pair<size_t, int64_t>>;  // input, dim

inline std::vector<Dims> dims_to_cut(const TriedSample& sample, const std::vector<IsolationInput>& inputs) {
  Dims all;
  std::set<int64_t> sizes;
  for (size_t i = 0; i < sample.rows.size(); ++i)
    for (int64_t dim = 1; sample.rows[i].defined() && !inputs[i].is_flags && dim < sample.rows[i].dim(); ++dim) {
      if (sample.rows[i].size(dim) < 2) continue;
      all.emplace_back(i, dim);
      sizes.insert(sample.rows[i].size(dim));
    }
  std::vector<Dims> groups;
  for (const int64_t size : sizes) {
    Dims group;
    for (const auto& [input, dim] : all)
      if (sample.rows[input].size(dim) == size) group.emplace_back(input, dim);
    groups.push_back(std::move(group));
  }
  for (const auto& one : all) groups.push_back({one});
  return groups;
}

/// Where along a dim the largest value lies; NaN counts as such.
inline int64_t place_of_largest(const at::Tensor& row, int64_t dim) {
  if (row.is_complex()) return 0;
  const at::Tensor sizes =
      row.to(at::kDouble)
          .abs()
          .nan_to_num(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity());
  return sizes.transpose(0, dim).flatten(1).amax(1).argmax().item<int64_t>();
}

inline TriedSamples cut_to(const TriedSamples& samples, const Dims& dims, int64_t begin, int64_t count) {
  TriedSamples cut = samples;
  for (TriedSample& sample : cut)
    for (const auto& [input, dim] : dims)
      sample.rows[input] = sample.rows[input].narrow(dim, begin, count).contiguous();
  return cut;
}

/// `samples` with fewer elements in each. `shows` says whether samples show the same.
template <class Shows>
TriedSamples shortest(TriedSamples samples, const std::vector<IsolationInput>& inputs, const Shows& shows) {
  for (const Dims& dims : dims_to_cut(samples.front(), inputs)) {
    const auto size_of = [&](const auto& dim) { return samples.front().rows[dim.first].size(dim.second); };
    const int64_t size = size_of(dims.front());  // that may have been cut since
    if (std::any_of(dims.begin(), dims.end(), [&](const auto& dim) { return size_of(dim) != size; })) continue;
    const int64_t largest = place_of_largest(samples.front().rows[dims.front().first], dims.front().second);
    for (int64_t count = 1; count < size; count *= 2) {
      bool found = false;
      for (const int64_t begin : std::set<int64_t>{0, std::min(largest, size - count)}) {
        TriedSamples cut = cut_to(samples, dims, begin, count);
        found = shows(cut);
        if (!found) continue;
        samples = std::move(cut);
        break;
      }
      if (found) break;
    }
  }
  return samples;
}

/// 0 or 1 in the place of the elements of one sample that do not matter.
template <class Shows>
void simplify(TriedSamples& samples, size_t which, size_t input, const Shows& shows) {
  const auto row = [&]() -> at::Tensor& { return samples[which].rows[input]; };
  const int64_t size = row().numel();
  const int64_t least = samples.size() > most_looked_into ? size : std::max<int64_t>(1, size / most_elements);
  for (const double value : {0.0, 1.0})
    for (int64_t block = size; block >= least && block > 0; block /= 2)
      for (int64_t begin = 0; begin < size; begin += block) {
        if (value != 0 && block > 1) continue;  // ones in the place of zeros would say less
        TriedSamples simple = samples;
        simple[which].rows[input] = row().clone(at::MemoryFormat::Contiguous);
        const at::Tensor part = simple[which].rows[input].view({-1}).slice(0, begin, begin + block);
        if ((part.eq(0) | part.eq(value)).all().template item<bool>()) continue;
        part.fill_(value);
        if (shows(simple)) samples = std::move(simple);
      }
}

/// Samples of a batch with fewer elements, and 0 or 1 in the place of those that do not matter. The last `kept` samples
/// keep their values.
template <class Shows>
TriedSamples smallest(TriedSamples samples, const std::vector<IsolationInput>& inputs, const Shows& shows,
                      size_t kept = 0) {
  samples = shortest(std::move(samples), inputs, shows);
  for (size_t which = 0; which + kept < samples.size(); ++which)
    for (size_t input = 0; input < inputs.size(); ++input) {
      const at::Tensor& row = samples[which].rows[input];
      if (row.defined() && !inputs[input].is_flags && !row.is_complex()) simplify(samples, which, input, shows);
    }
  return samples;
}

template <class Shows>
TriedSample smallest(TriedSample sample, const std::vector<IsolationInput>& inputs, const Shows& shows) {
  const auto shows_one = [&](const TriedSamples& samples) { return shows(samples.front()); };
  return smallest(TriedSamples{std::move(sample)}, inputs, shows_one).front();
}

inline size_t place_of(size_t which, const std::vector<size_t>& batch) {
  return static_cast<size_t>(std::find(batch.begin(), batch.end(), which) - batch.begin());
}

/// `which` of `batch`, and as few others as `shows` needs.
template <class Shows>
std::vector<size_t> fewest(std::vector<size_t> batch, size_t which, const Shows& shows) {
  size_t tries = 0;
  for (size_t chunk = (batch.size() + 1) / 2;; chunk = (chunk + 1) / 2) {
    for (size_t begin = 0; begin < batch.size() && tries < most_tries_to_omit;) {
      std::vector<size_t> fewer;
      for (size_t i = 0; i < batch.size(); ++i)
        if (i < begin || i >= begin + chunk || batch[i] == which) fewer.push_back(batch[i]);
      const bool is_fewer = fewer.size() < batch.size() && fewer.size() > 1;
      tries += is_fewer ? 1 : 0;
      if (is_fewer && shows(fewer))
        batch = std::move(fewer);
      else
        begin += chunk;
    }
    if (chunk == 1) return batch;
  }
}

}  // namespace triage::diagnose
