#include "model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <triage/files.h>

#include <cmath>

Model::Output Model::forward(const at::Tensor& images) const {
  c10::NoGradGuard no_grad;
  auto stored = [](const at::Tensor& activation) { return activation.to(at::kHalf); };
  at::Tensor first = stored(at::relu(at::linear(images, w0, b0)));
  at::Tensor hidden = stored(at::linear(first.to(at::kFloat), w2, b2));
  at::Tensor logits = stored(at::linear(at::relu(hidden.to(at::kFloat)), w, b));
  return {hidden, logits};
}

Digits Digits::slice(int64_t begin, int64_t end) const {
  return {images.slice(0, begin, end), labels.slice(0, begin, end)};
}

Digits load_digits(const std::string& path) {
  at::Tensor table = triage::load_tensor(path);
  return {table.slice(1, 0, 64).to(at::kFloat).div(16), table.select(1, 64).to(at::kLong)};
}

Model train(const Digits& digits, int epochs) {
  auto weight = [](int64_t out, int64_t in) {
    return (at::randn({out, in}) * std::sqrt(2.0 / in)).set_requires_grad(true);
  };
  auto bias = [](int64_t out) { return at::zeros({out}).set_requires_grad(true); };
  Model model{weight(64, 64), bias(64), weight(32, 64), bias(32), weight(10, 32), bias(10)};
  std::vector<at::Tensor> parameters = {model.w0, model.b0, model.w2, model.b2, model.w, model.b}, velocity;
  for (const auto& parameter : parameters) velocity.push_back(at::zeros_like(parameter));

  const int64_t batch = 64;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    at::Tensor order = at::randperm(digits.labels.size(0), at::kLong);
    for (int64_t begin = 0; begin + batch <= order.size(0); begin += batch) {
      at::Tensor rows = order.slice(0, begin, begin + batch);
      at::Tensor h = at::relu(at::linear(digits.images.index_select(0, rows), model.w0, model.b0));
      h = at::relu(at::linear(h, model.w2, model.b2));
      at::Tensor loss = at::cross_entropy_loss(at::linear(h, model.w, model.b), digits.labels.index_select(0, rows));
      loss.backward();
      c10::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) {
        velocity[i].mul_(0.9).add_(parameters[i].grad());
        parameters[i].sub_(velocity[i], 0.05);
        parameters[i].mutable_grad().zero_();
      }
    }
  }
  for (at::Tensor* parameter : {&model.w0, &model.b0, &model.w2, &model.b2, &model.w, &model.b})
    *parameter = parameter->detach();
  return model;
}
