// Gradients. A repaired row contributes nothing to any gradient: its own gradient at `z` is exactly 0, whatever came
// from below (0 * NaN is NaN: multiplying by a mask would not do). Flags never require grad.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <limits>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/flags/branches/gradients.h"
#include "runtime/flags/checks.h"
#include "runtime/flags/composites/composite_slots.h"
#include "runtime/flags/context.h"
#include "runtime/flags/operators.h"

namespace triage::flags::autograd {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Guards gradients on their way out of a branch.
class GuardOut : public torch::autograd::FunctionPostHook {
 public:
  GuardOut(std::vector<size_t> leaving, elements::BranchMasks taken)
      : leaving_(std::move(leaving)), taken_(std::move(taken)) {}

  variable_list operator()(const variable_list& outputs, const variable_list& /*inputs*/) override {
    variable_list guarded = outputs;
    if (const at::Tensor& rows = taken_.rows; rows.defined())
      for (size_t edge : leaving_) {
        at::Tensor& grad = guarded[edge];
        // What holds no row for each sample (a weight, a sum over the batch) is nobody's row.
        if (grad.defined() && (rows.dim() == 0 || (grad.dim() > 0 && grad.size(0) == rows.size(0))))
          grad = guarded_gradient(grad, rows);
      }
    for (const at::Tensor& mask : taken_.elements)
      for (at::Tensor& grad : guarded)
        if (grad.defined()) grad = guarded_elements(grad, mask);
    return guarded;
  }

 private:
  std::vector<size_t> leaving_;
  elements::BranchMasks taken_;
};

/// Numbers are those of the thread. Leaves have the largest, whenever they were made.
bool is_of_branch(const Node* node, uint64_t start, uint64_t thread) {
  return node && node->thread_id() == thread && node->sequence_nr() >= start &&
         node->sequence_nr() != std::numeric_limits<uint64_t>::max();
}

}  // namespace

uint64_t branch_start() { return at::sequence_number::peek(); }

void guard_branch(const at::Tensor& result, uint64_t start, const elements::BranchMasks& taken) {
  const uint64_t thread = at::RecordFunction::currentThreadId();
  if (!result.requires_grad() || !is_of_branch(result.grad_fn().get(), start, thread)) return;
  std::vector<Node*> open{result.grad_fn().get()};
  std::unordered_set<Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    std::vector<size_t> leaving;
    const auto& edges = node->next_edges();
    for (size_t i = 0; i < edges.size(); ++i) {
      Node* next = edges[i].function.get();
      if (!is_of_branch(next, start, thread)) {
        if (next) leaving.push_back(i);
      } else if (seen.insert(next).second) {
        open.push_back(next);
      }
    }
    if (!leaving.empty() || !taken.elements.empty())
      node->add_post_hook(std::make_unique<GuardOut>(std::move(leaving), taken));
  }
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;

// The operator as registered, by its C++ signature; looked up once.
template <class Signature>
auto operation(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

/// Throws where `z` has a tangent of forward mode, which would be lost.
bool wants_grad(const Tensor& z) {
  if (z._fw_grad(/*level=*/0).defined())
    throw InputError(
        "Operations on flags have no forward-mode derivative, and a tensor has a tangent (forward_ad, torch.func.jvp): "
        "take gradients by "
        "backward, or pass the tensor detached.");
  return at::GradMode::is_enabled() && z.requires_grad();
}

/// `grad` where `mask` holds, else 0. LibTorch 1.13 has no `where` for Meta tensors.
Tensor kept_where(const Tensor& mask, const Tensor& grad) {
  if (grad.is_meta()) return at::empty(at::infer_size(mask.sizes(), grad.sizes()), grad.options());
  return at::where(mask, grad, at::zeros({}, grad.options()));
}

// `grad` where the mask over rows holds, else 0.
Tensor keep_rows(const Tensor& grad, const Tensor& mask) {
  return kept_where(composite::over_rows(mask, grad.dim()), grad);
}

Tensor bad_rows(const Tensor& flags, int64_t codes, int64_t min_severity) {
  static auto op = operation<Tensor(const Tensor&, int64_t, int64_t)>("triage::match");
  return op.call(flags, codes, min_severity);
}

using FixResult = std::tuple<Tensor, Tensor>;

FixResult fix_below(const Tensor& z, const Tensor& flags, const Tensor& fallback, int64_t location, int64_t codes,
                    int64_t min_severity, int64_t num_slots, int64_t policy) {
  static auto op =
      operation<FixResult(const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, int64_t, int64_t, int64_t)>(
          "triage::fix");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(z, flags, fallback, location, codes, min_severity, num_slots, policy);
}

FixResult fix_scalar_below(const Tensor& z, const Tensor& flags, const Scalar& fallback, int64_t location,
                           int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  static auto op =
      operation<FixResult(const Tensor&, const Tensor&, const Scalar&, int64_t, int64_t, int64_t, int64_t, int64_t)>(
          "triage::fix", "scalar");
  at::AutoDispatchBelowADInplaceOrView below;
  return op.call(z, flags, fallback, location, codes, min_severity, num_slots, policy);
}

struct Fix : Function<Fix> {
  static variable_list forward(AutogradContext* ctx, const Tensor& z, const Tensor& flags, const Tensor& fallback,
                               int64_t location, int64_t codes, int64_t min_severity, int64_t num_slots,
                               int64_t policy) {
    auto [repaired, updated] = fix_below(z, flags, fallback, location, codes, min_severity, num_slots, policy);
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({bad_rows(flags, codes, min_severity)});
    ctx->saved_data["z"] = z.scalar_type();
    ctx->saved_data["fallback"] = fallback.scalar_type();
    ctx->saved_data["sizes"] = fallback.sizes().vec();
    ctx->mark_non_differentiable({updated});
    return {repaired, updated};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list result(8);
    if (!grads[0].defined()) return result;
    const auto bad = ctx->get_saved_variables()[0];
    const auto sizes = ctx->saved_data["sizes"].toIntVector();
    result[0] = keep_rows(grads[0], at::bitwise_not(bad)).to(ctx->saved_data["z"].toScalarType());
    result[2] = at::sum_to(keep_rows(grads[0], bad), sizes).to(ctx->saved_data["fallback"].toScalarType());
    return result;
  }
};

// What keeps some of `z` and overwrites the rest with a constant: the gradient passes where `kept` holds, a mask over
// rows or over elements.
struct Keep : Function<Keep> {
  using Run = std::function<Tensor(const Tensor&)>;
  static Tensor forward(AutogradContext* ctx, const Tensor& z, const Run& run, const Tensor& kept) {
    ctx->save_for_backward({kept});
    ctx->saved_data["z"] = z.scalar_type();
    at::AutoDispatchBelowADInplaceOrView below;
    return run(z);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor(), Tensor()};
    const auto kept = ctx->get_saved_variables()[0];
    const auto mask = kept.dim() == 1 ? composite::over_rows(kept, grads[0].dim()) : kept;
    const auto grad = kept_where(mask, grads[0]);
    return {grad.to(ctx->saved_data["z"].toScalarType()), Tensor(), Tensor()};
  }
};

struct Select : Function<Select> {
  static Tensor forward(AutogradContext* ctx, const Tensor& cond, const Tensor& a, const Tensor& b) {
    static auto op = operation<Tensor(const Tensor&, const Tensor&, const Tensor&)>("triage::select");
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({cond});
    return op.call(cond, a, b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor(), Tensor()};
    const auto cond = ctx->get_saved_variables()[0];
    return {Tensor(), keep_rows(grads[0], cond), keep_rows(grads[0], at::bitwise_not(cond))};
  }
};

// One branch for the whole batch, which is known: the other is no part of autograd's graph, as it is none of the
// script's.
struct Take : Function<Take> {
  using Run = std::function<Tensor()>;
  static Tensor forward(AutogradContext*, const Tensor& /*taken*/, const Run& run) { return run(); }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0], Tensor()}; }
};

struct GuardGrad : Function<GuardGrad> {
  static Tensor forward(AutogradContext* ctx, const Tensor& z, const Tensor& taken) {
    ctx->save_for_backward({taken});
    return z;  // autograd makes a proper view of it
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor()};
    return {guarded_gradient(grads[0], ctx->get_saved_variables()[0]), Tensor()};
  }
};

// What is broadcast has a gradient for each element before it is summed up.
struct GuardElements : Function<GuardElements> {
  static Tensor forward(AutogradContext* ctx, const Tensor& a, const std::vector<int64_t>& sizes, const Tensor& taken) {
    ctx->save_for_backward({taken});
    ctx->saved_data["sizes"] = a.sizes().vec();
    return a.sizes() == sizes ? a : a.expand(sizes);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {Tensor(), Tensor(), Tensor()};
    const Tensor grad = guarded_elements(grads[0], ctx->get_saved_variables()[0]);
    return {at::sum_to(grad, ctx->saved_data["sizes"].toIntVector()), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor guarded_gradient(const Tensor& grad, const Tensor& taken) {
  return kept_where(at::logical_or(composite::over_rows(taken, grad.dim()), at::isfinite(grad)), grad);
}

Tensor guarded_elements(const Tensor& grad, const Tensor& taken) {
  if (grad.layout() != c10::kStrided || grad.device() != taken.device()) return grad;
  const auto mask = elements::over(taken, grad.sizes());
  return mask ? kept_where(at::logical_or(*mask, at::isfinite(grad)), grad) : grad;
}

FixResult fix(const Tensor& z, const Tensor& flags, const Tensor& fallback, int64_t location, int64_t codes,
              int64_t min_severity, int64_t num_slots, int64_t policy) {
  if (!wants_grad(z) && !wants_grad(fallback)) {
    return fix_below(z, flags, fallback, location, codes, min_severity, num_slots, policy);
  }
  auto results = Fix::apply(z, flags, fallback, location, codes, min_severity, num_slots, policy);
  return {results[0], results[1]};
}

FixResult fix_scalar(const Tensor& z, const Tensor& flags, const Scalar& fallback, int64_t location, int64_t codes,
                     int64_t min_severity, int64_t num_slots, int64_t policy) {
  if (!wants_grad(z)) return fix_scalar_below(z, flags, fallback, location, codes, min_severity, num_slots, policy);
  const auto good = at::bitwise_not(bad_rows(flags, codes, min_severity));
  Tensor updated;
  auto run = [&](const Tensor& data) {
    auto results = fix_scalar_below(data, flags, fallback, location, codes, min_severity, num_slots, policy);
    updated = std::get<1>(results);
    return std::get<0>(results);
  };
  auto repaired = Keep::apply(z, Keep::Run(run), good);
  return {repaired, updated};
}

Tensor take_ok_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  static auto op = operation<Tensor(const Tensor&, const Tensor&, const Scalar&)>("triage::take_ok_p");
  auto run = [&](const Tensor& data) {
    at::AutoDispatchBelowADInplaceOrView below;
    return op.call(flags, data, fill);
  };
  if (!wants_grad(z)) return run(z);
  check::flags("take_ok_p", flags);
  return Keep::apply(z, Keep::Run(run), at::bitwise_not(bad_rows(flags, 0xFFFF, 0)));
}

Tensor take_err_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  static auto op = operation<Tensor(const Tensor&, const Tensor&, const Scalar&)>("triage::take_err_p");
  auto run = [&](const Tensor& data) {
    at::AutoDispatchBelowADInplaceOrView below;
    return op.call(flags, data, fill);
  };
  if (!wants_grad(z)) return run(z);
  check::flags("take_err_p", flags);
  return Keep::apply(z, Keep::Run(run), bad_rows(flags, 0xFFFF, 0));
}

Tensor replace(const Tensor& z, const Scalar& value, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
               at::IntArrayRef integers) {
  static auto op =
      operation<Tensor(const Tensor&, const Scalar&, bool, bool, bool, at::ArrayRef<double>, at::IntArrayRef)>(
          "triage::replace");
  auto run = [&](const Tensor& data) {
    at::AutoDispatchBelowADInplaceOrView below;
    return op.call(data, value, nan, posinf, neginf, values, integers);
  };
  if (!wants_grad(z)) return run(z);
  Tensor kept;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto hit = composite::replaced(z, nan, posinf, neginf, values, integers);
    kept = hit.defined() ? at::bitwise_not(hit) : at::ones_like(z, z.options().dtype(at::kBool));
  }
  return Keep::apply(z, Keep::Run(run), kept);
}

Tensor select(const Tensor& cond, const Tensor& a, const Tensor& b) {
  const auto run = [&] {
    static auto op = operation<Tensor(const Tensor&, const Tensor&, const Tensor&)>("triage::select");
    at::AutoDispatchBelowADInplaceOrView below;
    return op.call(cond, a, b);
  };
  if (!wants_grad(a) && !wants_grad(b)) return run();
  const bool known = cond.dim() == 0 && cond.scalar_type() == at::kBool && !cond.is_meta() && !context.of_all_branches;
  if (!known) return Select::apply(cond, a, b);
  const Tensor& taken = cond.item<bool>() ? a : b;
  return wants_grad(taken) ? Take::apply(taken, Take::Run(run)) : run();
}

OfAllBranches::OfAllBranches() : before_(std::exchange(context.of_all_branches, true)) {}
OfAllBranches::~OfAllBranches() { context.of_all_branches = before_; }

// What holds no row for each sample of `taken` (a weight, a sum over the batch) is nobody's row, and passes as it is.
Tensor guard_grad(const Tensor& z, const Tensor& taken) {
  check::guard_grad(z, taken);
  const bool has_rows = taken.dim() == 0 || (z.dim() > 0 && z.size(0) == taken.size(0));
  if (wants_grad(z)) return has_rows ? GuardGrad::apply(z, taken) : at::alias(z);
  at::AutoDispatchBelowADInplaceOrView below;
  return at::alias(z);
}

Tensor guard_elements(const Tensor& a, const Tensor& b, const Tensor& taken) {
  check::guard_elements(a, b, taken);
  if (wants_grad(a)) return GuardElements::apply(a, at::infer_size(a.sizes(), b.sizes()), taken);
  at::AutoDispatchBelowADInplaceOrView below;
  return elements::broadcast(a, b, taken);
}

}  // namespace triage::flags::autograd
