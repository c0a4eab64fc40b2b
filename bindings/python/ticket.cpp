#include "bindings/python/ticket.h"

#include <ATen/ATen.h>
#include <triage/error.h>

#include <memory>
#include <utility>

namespace triage::python {
namespace {

/// Aligned as compilers want their inputs: they copy those that are not.
struct alignas(64) AlignedByte {
  uint8_t byte = 1;
};
struct Ticket {
  AlignedByte memory;
  ForwardCall call;
};

void free_ticket(void* ticket) { delete static_cast<Ticket*>(ticket); }

}  // namespace

at::Tensor make_ticket(ForwardCall call) {
  auto ticket = std::make_unique<Ticket>(Ticket{{}, std::move(call)});
  Ticket* const owned = ticket.get();
  c10::DataPtr data(&owned->memory, ticket.release(), &free_ticket, at::kCPU);
  const auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), sizeof(uint8_t), std::move(data),
                                            /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({1});
  return tensor;
}

const ForwardCall& recorded_by(const at::Tensor& ticket) {
  const bool has_memory = ticket.defined() && ticket.has_storage();
  if (has_memory && ticket.storage().data_ptr().get_deleter() == &free_ticket)
    return static_cast<const Ticket*>(ticket.storage().data_ptr().get_context())->call;
  throw InputError(
      "The backward of a policy in a compiled program got a copy of the tensor that ties it to its call: saved tensors "
      "were moved or "
      "written to a file in between. Keep the policy out of what is offloaded: "
      "torch.compiler.disable(policy.__call__).");
}

}  // namespace triage::python
