#pragma once
#include <ATen/core/Tensor.h>

/// A recurrent language model of random weights, small enough to be made at the start. A row's logits depend on nothing
/// but that row, to the bit: it multiplies and adds by rows, where a matrix product may add in another order for
/// another row; and rows are whole vectors of the processor, because LibTorch may round the function of an element
/// behind the last whole vector in another way.
class Model {
 public:
  static constexpr int64_t vocabulary = 512, width = 32, eos = 0;

  explicit Model(uint64_t seed);

  /// tokens int64 (rows,), hidden f32 (rows, width), which becomes the next one. Returns logits f32 (rows, vocabulary).
  at::Tensor step(const at::Tensor& tokens, at::Tensor& hidden) const;

 private:
  at::Tensor embedding_, update_, candidate_, output_;
};
