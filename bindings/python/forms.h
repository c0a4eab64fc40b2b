#pragma once
#include <ATen/core/Tensor.h>
#include <triage/runtime.h>

#include <string>

/// What a policy returns for inputs whose sizes are open, as programs of torch.compile and torch.export have them: a
/// text of whole numbers, which a program keeps as an argument of the operator. The count of open sizes; the count of
/// inputs, and of each its dtype, its rank and its sizes (-1 - n: open size n); the count of outputs, and of each its
/// dtype, the input that is on its device (-1: the CPU), its rank, and of each size whether it is a product, the
/// constant and the factors. triage/_fake.py reads it, too.
namespace triage::python {

/// Learned by runs on made-up values, for tensors of a program that is traced: sizes that are symbols are open.
/// `autocast`: of the line that calls the policy (autocast.h). Throws what output_metadata throws, and PolicyError
/// where a size depends on values, or is neither a sum nor a product of open sizes.
std::string learn_form(const Policy& policy, at::TensorList inputs, const std::string& autocast);

/// Throws PolicyError where the outputs are not what the program was told (`form`) of such inputs: it would read other
/// memory.
void check_form(const Policy& policy, const std::string& form, at::TensorList inputs, at::TensorList outputs);

}  // namespace triage::python
