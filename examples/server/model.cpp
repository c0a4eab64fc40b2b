#include "model.h"

#include <ATen/ATen.h>

Model::Model()
    : hidden_(at::linspace(0, 40, features * 16).sin().reshape({features, 16})),
      output_(at::linspace(0, 90, 16 * classes).cos().reshape({16, classes})) {}

at::Tensor Model::operator()(const at::Tensor& x) const { return (x * x).matmul(hidden_).relu().matmul(output_); }
