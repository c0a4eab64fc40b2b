#include "model.h"

#include <ATen/ATen.h>

Model::Model()
    : hidden_(at::linspace(-1, 1, features * 16).sin().reshape({features, 16})),
      output_(at::linspace(-2, 2, 16 * classes).cos().reshape({16, classes})) {}

at::Tensor Model::operator()(const at::Tensor& x) const { return (x * x).matmul(hidden_).relu().matmul(output_); }
