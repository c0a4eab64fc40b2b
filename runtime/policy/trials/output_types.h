#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>
#include <triage/typing.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triage::policy {

bool declares_outputs(const Signature& signature);

/// The declared types of the outputs, in a form in which two signatures that declare the same have the same: names of
/// sizes that no input has are replaced by numbers.
using OutputDeclaration = std::vector<std::optional<TensorSpec>>;
OutputDeclaration outputs_declared_by(const Signature& signature);

/// The names of the outputs, with the types that are declared: "(y = Tensor(float32_t, {"N", 3}), f)".
std::string outputs_text(const Signature& signature);

/// What of these outputs does not fit the declared types; nothing where all does.
std::optional<std::string> output_failure(const Signature& signature, at::ArrayRef<at::Tensor> inputs,
                                          at::ArrayRef<at::Tensor> outputs);

/// The declared types of a policy's outputs as every call asks for them: without an allocation.
class OutputTypes {
 public:
  explicit OutputTypes(const Signature& signature);
  bool empty() const noexcept { return types_.empty(); }
  /// False: ask `output_failure`, which looks at what this leaves out (flags, devices), too.
  bool fit(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs) const noexcept;

 private:
  struct SignatureDim {  // of a size; a negative `dim` counts from the end
    size_t tensor;
    bool of_output;
    int64_t dim;
  };
  struct Type {
    size_t output;
    TensorSpec spec;
    int64_t rank;  // at least, where `open`
    bool open;
    std::vector<std::pair<int64_t, int64_t>> fixed;
    std::vector<std::pair<int64_t, SignatureDim>> same;
  };
  std::vector<Type> types_;
};

}  // namespace triage::policy
