#pragma once
#include <ATen/SavedTensorHooks.h>

#include <optional>

namespace triage::python {

/// While alive, what autograd saves is kept as it is. Hooks of torch.utils.checkpoint count the tensors that a forward
/// saves, and end it by an exception of theirs; but the first call of a policy saves others than later ones, and a
/// policy takes exceptions for failures.
class WithoutSavedTensorHooks {
 public:
  WithoutSavedTensorHooks() {
    const auto& now = at::SavedTensorDefaultHooks::get_tls_state();
    if (now.stack.empty()) [[likely]]
      return;
    before_ = now;
    auto without = now;
    without.stack = {};
    at::SavedTensorDefaultHooks::set_tls_state(without);
  }
  ~WithoutSavedTensorHooks() {
    if (before_) at::SavedTensorDefaultHooks::set_tls_state(*before_);
  }
  WithoutSavedTensorHooks(const WithoutSavedTensorHooks&) = delete;
  WithoutSavedTensorHooks& operator=(const WithoutSavedTensorHooks&) = delete;

 private:
  std::optional<at::impl::SavedTensorDefaultHooksTLS> before_;
};

}  // namespace triage::python
