#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triage::policy {

/// Tensors of one key by name. Calls share them, and nobody writes to them: a policy cannot, and no output of a call
/// has their memory. They require no grad, are no inference tensors, and have no more memory than their elements take.
using StateTensors = std::vector<std::pair<std::string, at::Tensor>>;
using KeptState = std::shared_ptr<const StateTensors>;  // null: as before the first call

/// The state of a policy in one call.
struct StateOfCall {
  KeptState before = {};
  std::vector<at::Tensor> given, after;  // of the version that ran last, in the order of its signature
  bool other_batch = false;              // something in `before` was of another batch size, and started anew

  /// Before another version is asked.
  void begin_again() {
    given.clear();
    after.clear();
    other_batch = false;
  }
};

/// As many bytes as a script's tensors may take, where nothing else is said.
inline constexpr int64_t most_state_bytes = int64_t{4} << 30;
/// Throws LimitError where the state of one key takes more bytes in a batch of this size; 0: any number.
void check_state_bytes(const Signature& signature, int64_t batch, int64_t most);

bool fits(const StateSpec& spec, const at::Tensor& tensor, int64_t batch);
/// The same for a batch of any size.
bool fits(const StateSpec& spec, const at::Tensor& tensor);
/// Null where `signature` declares none of this name.
const StateSpec* find_spec(const Signature& signature, const std::string& name);
/// Whether `signature` declares state of this name that `tensor` fits.
bool takes(const Signature& signature, const std::string& name, const at::Tensor& tensor);
/// As state is kept: see StateTensors.
at::Tensor as_kept(const at::Tensor& tensor);

/// Sets `given`: what fits from `before`, on the device of the first input, else the values at the beginning.
/// Throws LimitError where all of it takes more than `most` bytes (0: any number).
void begin_state(const Signature& signature, at::ArrayRef<at::Tensor> inputs, StateOfCall& state,
                 int64_t most = most_state_bytes);
/// What is wrong with the new state, as a clause; nothing where it is as declared.
std::optional<std::string> state_failure(const Signature& signature, at::ArrayRef<at::Tensor> inputs,
                                         at::ArrayRef<at::Tensor> state);
/// Takes the new state from the end of `outputs`, and sees to it that these share no memory with it or with `given`.
/// Returns what state_failure does.
std::optional<std::string> take_state(const Signature& signature, at::ArrayRef<at::Tensor> inputs, StateOfCall& state,
                                      std::vector<at::Tensor>& outputs);

/// What a script is called with besides inputs that make a batch of this size on this device: `params`, then the state
/// before the first call. Throws LimitError where that takes more than most_state_bytes.
std::vector<at::Tensor> with_first_state(const Signature& signature, int64_t batch, c10::Device device,
                                         std::vector<at::Tensor> params);
std::vector<at::Tensor> with_first_state(const Signature& signature, at::ArrayRef<at::Tensor> inputs,
                                         std::vector<at::Tensor> params);
/// A call of a script by itself, whose state is as before the first call, and goes nowhere.
std::vector<at::Tensor> call_alone(Script& script, at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor> params);

}  // namespace triage::policy
