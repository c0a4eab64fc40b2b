#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

/// What autograd and version counters know of a tensor, given to another one that has the same memory.
namespace triage::compat {

/// LibTorch 1.13 copies what it knows of a view; current ones own the function that makes the view again.
template <typename View>
View copy_of(const View& view) {
  if constexpr (requires { view.view_fn_->clone_and_set(); })
    return View(view.base_, view.view_fn_ ? view.view_fn_->clone_and_set() : nullptr, view.rev_view_fn_);
  else
    return view;
}

/// `target`, which nobody has used yet, stands for `source` from now on: its gradients go where those of `source` went,
/// it is a view of the same tensor, and a write to either is seen by what was saved of both. `source` is not a leaf
/// that requires grad: such a leaf collects gradients itself.
inline void take_history(const at::Tensor& target, const at::Tensor& source) {
  using namespace torch::autograd;
  if (source.is_inference()) return;
  c10::TensorImpl* const impl = target.unsafeGetTensorImpl();
  impl->set_autograd_meta(nullptr);
  impl->set_version_counter(impl::version_counter(source));
  if (const DifferentiableViewMeta* view = impl::get_view_autograd_meta(source)) {
    c10::optional<ViewInfo> backward, forward;
    if (view->has_bw_view()) backward.emplace(copy_of(view->get_backward_view()));
    if (view->has_fw_view() && !view->shared_view_info()) forward.emplace(copy_of(view->get_forward_view()));
    const CreationMeta made = view->has_bw_view() ? view->get_creation_meta() : CreationMeta::DEFAULT;
    impl->set_autograd_meta(std::make_unique<DifferentiableViewMeta>(impl, std::move(backward), std::move(forward),
                                                                     view->shared_view_info(), made));
  }
  if (const auto& node = source.grad_fn())
    impl::set_gradient_edge(target, {node, static_cast<uint32_t>(source.output_nr())});
}

}  // namespace triage::compat
