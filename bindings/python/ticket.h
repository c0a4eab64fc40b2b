#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

/// What ties the backward of a program to the forward call that it belongs to: a compiled program keeps tensors between
/// the two, so what autograd recorded of a call is owned by the memory of a tensor, and freed with it.
namespace triage::python {

struct ForwardCall {
  std::vector<at::Tensor> inputs;   // leaves: those with gradients
  std::vector<at::Tensor> outputs;  // as the policy gave them
};

/// A tensor of one byte on the CPU.
at::Tensor make_ticket(ForwardCall call);
/// Throws InputError for any other tensor, a copy among them. Valid as long as the ticket.
const ForwardCall& recorded_by(const at::Tensor& ticket);

}  // namespace triage::python
