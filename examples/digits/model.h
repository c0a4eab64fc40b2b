#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

/// A small classifier of 8×8 digits, trained here and run the way mixed precision runs models: computed in f32,
/// activations stored as f16.
struct Model {
  at::Tensor w0, b0;  // encoder.0: 64 -> 64, then ReLU
  at::Tensor w2, b2;  // encoder.2: 64 -> 32, then ReLU
  at::Tensor w, b;    // head: 32 -> 10

  struct Output {
    at::Tensor hidden;  // f16 (N, 32), of encoder.2 before its ReLU
    at::Tensor logits;  // f16 (N, 10)
  };
  /// `images` f32 (N, 64). Values beyond 65504 do not fit f16 and become Inf; what follows makes NaN of them.
  Output forward(const at::Tensor& images) const;
};

/// Images f32 in 0..1 (N, 64) and digits i64 (N,).
struct Digits {
  at::Tensor images, labels;
  Digits slice(int64_t begin, int64_t end) const;
};
Digits load_digits(const std::string& path);

/// Mini-batch SGD with momentum in f32; about two seconds on one core.
Model train(const Digits& digits, int epochs);
