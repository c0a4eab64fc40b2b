#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "runtime/diagnose/verify/samples.h"

/// The smallest sample that shows what a larger one shows.
namespace triage::diagnose {

constexpr int64_t most_elements = 64;  // that are looked at one by one; of more, blocks are

/// The first `count` elements of the last dim of each input; undefined where an input has none so long.
inline TriedSample cut_to(const TriedSample& sample, int64_t count) {
  TriedSample cut = sample;
  for (at::Tensor& row : cut.rows)
    if (row.defined() && row.dim() > 1 && row.size(-1) > count) row = row.narrow(-1, 0, count).contiguous();
  return cut;
}

inline bool is_same_size(const TriedSample& a, const TriedSample& b) {
  return std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), [](const at::Tensor& one, const at::Tensor& other) {
    return one.defined() == other.defined() && (!one.defined() || one.sizes() == other.sizes());
  });
}

/// `sample` with fewer elements, and 0 or 1 in the place of those that do not matter. `shows` says whether a sample shows the same.
template <class Shows>
TriedSample smallest(TriedSample sample, const std::vector<IsolationInput>& inputs, const Shows& shows) {
  for (const int64_t count : {1, 2, 4}) {
    TriedSample cut = cut_to(sample, count);
    if (is_same_size(cut, sample) || !shows(cut)) continue;
    sample = std::move(cut);
    break;
  }
  for (size_t i = 0; i < sample.rows.size(); ++i) {
    if (!sample.rows[i].defined() || inputs[i].is_flags || sample.rows[i].is_complex()) continue;
    const int64_t size = sample.rows[i].numel();
    for (const double value : {0.0, 1.0})
      for (int64_t block = size; block >= std::max<int64_t>(1, size / most_elements); block /= 2)
        for (int64_t begin = 0; begin < size; begin += block) {
          if (value != 0 && block > 1) continue;  // ones in the place of zeros would say less
          TriedSample simple = sample;
          simple.rows[i] = sample.rows[i].clone(at::MemoryFormat::Contiguous);
          const at::Tensor part = simple.rows[i].view({-1}).slice(0, begin, begin + block);
          if ((part.eq(0) | part.eq(value)).all().template item<bool>()) continue;
          part.fill_(value);
          if (shows(simple)) sample = std::move(simple);
        }
  }
  return sample;
}

}  // namespace triage::diagnose
