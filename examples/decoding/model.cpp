#include "model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

namespace {

/// x (rows, in) times weight (out, in).
at::Tensor product(const at::Tensor& x, const at::Tensor& weight) { return (x.unsqueeze(1) * weight).sum(-1); }

}  // namespace

Model::Model(uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto weight = [&](int64_t out, int64_t in, double size) {
    return at::randn({out, in}, generator, at::kFloat) * (size / std::sqrt(static_cast<double>(in)));
  };
  embedding_ = weight(vocabulary, width, 8);
  update_ = weight(width, 2 * width, 1);
  candidate_ = weight(width, 2 * width, 2);
  output_ = weight(vocabulary, width, 4);
}

at::Tensor Model::step(const at::Tensor& tokens, at::Tensor& hidden) const {
  const at::Tensor x = embedding_.index_select(0, tokens), both = at::cat({x, hidden}, 1);
  const at::Tensor gate = product(both, update_).sigmoid();
  hidden = gate * hidden + (1 - gate) * product(both, candidate_).tanh();
  return product(hidden, output_);
}
