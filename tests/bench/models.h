#pragma once
// The models of the table `models`, each as a policy in Lua and as a TorchScript module, with the same parameters.
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "work.h"

namespace triage::bench {

struct Model {
  std::string name, shape;   // "MLP", "256x512"
  std::string source;        // in Lua: a function `forward(look, x, p)`; p[i] is the i-th parameter
  at::Tensor input, target;  // of one batch
  Tensors parameters;        // leaves that require grad, those of `script`
  torch::jit::Module script{"Model"};
};

/// For training, BatchNorm takes the statistics of the batch; else those that it has.
std::vector<Model> models(bool training);

/// `forward` as a policy that takes the input and the parameters, and gives the output; with flags after each layer and
/// a repair of the output, where asked.
std::string policy_source(const Model& model, bool with_flags);

}  // namespace triage::bench
