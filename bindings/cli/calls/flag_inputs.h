#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <string>

/// Inputs that may be flags of another process.
namespace triage::cli {

/// An input of a policy, as the command line gives it.
struct GivenInput {
  std::string name, source;
  const TensorSpec* type = nullptr;  // null: none is declared
};

/// The tensor that a file holds or a generator makes. Flags of a file get ids of this process, with the names that the
/// file has. `codes` are the names of codes in what is shown of the call, to which those of the file come. Throws
/// UsageError where it names a code otherwise.
at::Tensor read_input(const GivenInput& input, c10::Device device, CodeNames& codes);
/// The type that is declared for an input; null where there is none.
const TensorSpec* type_of(const Signature& signature, const std::string& input);

}  // namespace triage::cli
