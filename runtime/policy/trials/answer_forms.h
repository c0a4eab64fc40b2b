#pragma once
#include "runtime/policy/trials/form.h"

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <vector>

namespace triage::policy {

/// The forms of the answers that callers got, for each kind of inputs: what they rely on beside the names. A form is
/// the number of the outputs, and of each whether it is flags, its dtype, device, rank and sizes. A kind is the dtypes,
/// devices and sizes of the inputs, where a batch has no rows, one, or several, and the autocast and default dtype of
/// the thread. The first size of an output is free, and so is one that was seen to depend on values. Thread-safe.
class AnswerForms {
 public:
  enum class Seen : uint8_t {
    fits,    // callers got this form before, or nothing is known
    unsure,  // the same but for sizes, or for flags of the same dtype as data
    other,   // for inputs of this kind callers got another number, dtype, device or rank
    unlike,  // of this kind nothing is known, and it is so for inputs of other sizes
  };
  struct AnswerOutputs {
    at::ArrayRef<at::Tensor> tensors;
    const std::vector<bool>& is_flags;
    const Signature& signature;  // each answer was held to what that declares; what it leaves open may differ

    bool defined() const noexcept;  // all of them
    bool is_declared(size_t output) const noexcept;
    bool are_flags(size_t output) const noexcept { return output < is_flags.size() && is_flags[output]; }
  };
  /// Looks at an answer to inputs of this kind; the first of a kind becomes known.
  Seen look(at::ArrayRef<at::Tensor> inputs, const AnswerOutputs& outputs);
  /// From now on such an answer fits.
  void accept(at::ArrayRef<at::Tensor> inputs, const AnswerOutputs& outputs);
  /// The first form that is known for inputs of this kind, or of other sizes.
  std::optional<Form> known(at::ArrayRef<at::Tensor> inputs) const;
  /// What callers know of another version.
  void inherit(const AnswerForms& before);
  void forget();

 private:
  struct OfKind {
    std::vector<capture::InputShape> inputs;
    uint64_t modes;  // of the thread
    std::vector<Form> forms;
    OpenSizes open;
  };
  using Kinds = std::list<OfKind>;

  Kinds::iterator find(at::ArrayRef<at::Tensor> inputs, bool any_sizes);
  void add(at::ArrayRef<at::Tensor> inputs, Form form);

  mutable std::mutex mutex_;  // short: what follows
  Kinds kinds_;               // found last first
};

/// The version gave an answer of another form than callers know from it.
class FormChanged final : public PolicyError {
  using PolicyError::PolicyError;
};

}  // namespace triage::policy
