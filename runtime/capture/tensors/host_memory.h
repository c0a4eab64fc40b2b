#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace triage::capture {

/// Memory that belongs to the host of a policy beyond the call in which it was seen: inputs, which the script may have
/// kept, and outputs. It is known as long as anybody has it. Not thread-safe: the script's calls come one after the
/// other.
class HostMemory {
 public:
  /// `name`: of a tensor that the host gave the script under it.
  void add(const at::Tensor& tensor, const std::string& name = {});
  bool has(const at::Tensor& tensor) const;
  /// Outputs belong to the host from now on, with memory apart from that of inputs. `kept`: the script may have stored
  /// them where it finds them in later calls.
  void take_over(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, bool kept = false);
  /// Adds the memory that its tensors have now: the host may have given them other (set_, set_data).
  void follow();
  /// Empty where it has none.
  std::string name_of(const at::Tensor& tensor) const;

 private:
  void forget_freed();
  struct KnownStorage {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps its address to itself
    std::string name;
  };
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct KnownTensor {
    WeakTensor tensor;
    std::string name;
  };
  std::unordered_map<const void*, KnownStorage> storages_;
  std::unordered_map<const void*, KnownTensor> tensors_;
  size_t most_ = 64;  // when so many are known, those that are gone are looked for
};

/// While alive on a thread, operators that write to memory of the host raise an error: to the inputs and params of the
/// call that runs, and to what is in `kept`, which gets them too. `kept` may be null; else it must live as long.
class ProtectInputs {
 public:
  explicit ProtectInputs(at::ArrayRef<at::Tensor> inputs, HostMemory* kept = nullptr);
  ~ProtectInputs();
  ProtectInputs(const ProtectInputs&) = delete;
  ProtectInputs& operator=(const ProtectInputs&) = delete;

  static bool active() noexcept;
  /// Whether the memory of `tensor` is protected.
  static bool covers(const at::Tensor& tensor);
  /// Protects what belongs to the host, too: a gradient of an input, what a function of the host keeps. Without effect
  /// where nothing is protected.
  static void add(const at::Tensor& tensor);
  /// Throws when `op`, called with `stack`, would write to protected memory.
  static void check(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  /// Throws where the memory of `tensor`, which `what` would change, is protected.
  static void refuse_change(const at::Tensor& tensor, const std::string& what);

 private:
  bool is_of_call(const at::Tensor& tensor) const;
  bool is_kept(const at::Tensor& tensor);

  std::vector<at::Tensor> inputs_;
  HostMemory* kept_;
  bool followed_ = false;  // `kept_` was asked to, since the host last ran
  ProtectInputs* previous_;
};

}  // namespace triage::capture
