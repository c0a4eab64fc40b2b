#include "runtime/diagnose/verify/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/provenance.h>

#include <algorithm>

namespace triage::diagnose {
namespace {

bool has_gradient(const IsolationInput& input, const at::Tensor& tensor) {
  return input.has_samples && !input.is_flags && tensor.is_floating_point();
}

Tensors with_grad(const std::vector<IsolationInput>& inputs, Tensors batch) {
  for (size_t i = 0; i < batch.size(); ++i)
    if (has_gradient(inputs[i], batch[i])) batch[i] = batch[i].detach().clone().set_requires_grad(true);
  return batch;
}

Tensors roots_of(Tensors outputs) {
  std::erase_if(outputs, [](const at::Tensor& output) {
    return !output.defined() || !output.requires_grad() || !output.is_floating_point();
  });
  return outputs;
}

}  // namespace

Tensors gradients_of(IsolationSubject& subject, const std::vector<IsolationInput>& inputs, const Tensors& batch,
                     std::string& why_not) {
  const Tensors given = with_grad(inputs, batch);
  Tensors leaves, roots, all(batch.size());
  for (size_t i = 0; i < given.size(); ++i)
    if (has_gradient(inputs[i], given[i])) leaves.push_back(given[i]);
  if (leaves.empty()) {
    why_not = "no input of floats has samples";
    return all;
  }
  const at::AutoGradMode grad(true);
  for (const at::Tensor& output : roots_of(subject.call(given))) roots.push_back(output.sum());
  if (roots.empty()) {
    why_not = "no output depends on an input that requires grad";
    return all;
  }
  const Tensors gradients = torch::autograd::grad(roots, leaves, {}, {}, false, /*allow_unused=*/true);
  for (size_t i = 0, k = 0; i < given.size(); ++i)
    if (has_gradient(inputs[i], given[i])) all[i] = gradients[k++];
  return all;
}

std::optional<RecordedStep> broke_gradient(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                                           const Tensors& batch) {
  const at::AutoGradMode grad(true);
  const GradientTrace lines;
  const Tensors roots = roots_of(subject.call(with_grad(inputs, batch)));
  if (roots.empty()) return std::nullopt;
  for (const Producer& producer : gradient_provenance(roots).producers) {
    if (producer.kind != Producer::Kind::operation || producer.source.file.empty()) continue;
    RecordedStep step;
    step.op = producer.name;
    step.source = producer.source;
    return step;
  }
  return std::nullopt;
}

}  // namespace triage::diagnose
