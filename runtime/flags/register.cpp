// Registers every flags operation with LibTorch's dispatcher: CPU kernel, Meta kernel, composite for all other devices,
// and above them either gradients or, for results that are flags and masks, a step below autograd (without any Autograd
// registration LibTorch 1.13 cannot reach the Meta kernels).
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

#include "runtime/flags/branches/element_masks.h"
#include "runtime/flags/checks.h"
#include "runtime/flags/operators.h"

// Meta kernels: what comes out, in shape and dtype, without data.
namespace triage::flags::meta {
namespace {

Tensor like_flags(const Tensor& flags) { return at::empty(flags.sizes(), flags.options()); }
Tensor a_sample(const Tensor& flags, ScalarType dtype) {
  return at::empty({flags.size(0)}, flags.options().dtype(dtype));
}
Tensor a_sample(const char* op, const Tensor& flags, ScalarType dtype) {
  check::flags(op, flags);
  return a_sample(flags, dtype);
}

Tensor data(const Tensor& z, ScalarType dtype) { return at::empty_like(z, z.options().dtype(dtype)); }

Tensor detected(const char* op, const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots,
                int64_t policy, ScalarType dtype) {
  check::detection(op, z, flags, location, num_slots, policy, dtype);
  return flags ? like_flags(*flags) : new_flags(z, num_slots, dtype);
}

}  // namespace

Tensor new_flags(const Tensor& like, int64_t num_slots, ScalarType dtype) {
  check::new_flags(like, num_slots, dtype);
  return at::empty({like.size(0), check::words_for(num_slots, dtype)}, like.options().dtype(dtype));
}

Tensor push(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
            int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  return like_flags(flags);
}

Tensor push_where(const Tensor& flags, int64_t code, int64_t location, int64_t severity, const Tensor& where,
                  int64_t num_slots, int64_t policy) {
  check::push(flags, code, location, severity, where, num_slots, policy);
  return like_flags(flags);
}

Tensor push_scalar(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                   int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  return like_flags(flags);
}

Tensor merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy) {
  check::merge(flags, other, num_slots, policy);
  return like_flags(flags);
}

Tensor clear(const Tensor& flags, int64_t code) {
  check::code("clear", flags, code);
  return like_flags(flags);
}

Tensor is_ok(const Tensor& flags) { return a_sample("is_ok", flags, at::kBool); }
Tensor is_err(const Tensor& flags) { return a_sample("is_err", flags, at::kBool); }
Tensor has_critical(const Tensor& flags) { return a_sample("has_critical", flags, at::kBool); }
Tensor count_errors(const Tensor& flags) { return a_sample("count_errors", flags, at::kInt); }
Tensor max_severity(const Tensor& flags) { return a_sample("max_severity", flags, at::kLong); }
Tensor get_first_code(const Tensor& flags) { return a_sample("get_first_code", flags, at::kInt); }
Tensor get_first_location(const Tensor& flags) { return a_sample("get_first_location", flags, at::kInt); }
Tensor get_first_severity(const Tensor& flags) { return a_sample("get_first_severity", flags, at::kInt); }

Tensor all_ok(const Tensor& flags) {
  check::flags("all_ok", flags);
  return at::empty({}, flags.options().dtype(at::kBool));
}

Tensor any_err(const Tensor& flags) {
  check::flags("any_err", flags);
  return at::empty({}, flags.options().dtype(at::kBool));
}

Tensor has_code(const Tensor& flags, int64_t code) {
  check::code("has_code", flags, code);
  return a_sample(flags, at::kBool);
}

Tensor has_domain(const Tensor& flags, int64_t domain) {
  check::domain("has_domain", flags, domain);
  return a_sample(flags, at::kBool);
}

Tensor get_slot(const Tensor& flags, int64_t index) {
  check::slot("get_slot", flags, index);
  return a_sample(flags, at::kLong);
}

Tensor match(const Tensor& flags, int64_t codes, int64_t min_severity) {
  check::codes("match", flags, codes, min_severity);
  return a_sample(flags, at::kBool);
}

Tensor flag_nan(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detected("flag_nan", z, flags, location, num_slots, policy, dtype);
}

Tensor flag_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detected("flag_inf", z, flags, location, num_slots, policy, dtype);
}

Tensor flag_nan_and_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                        ScalarType dtype) {
  return detected("flag_nan_and_inf", z, flags, location, num_slots, policy, dtype);
}

Tensor flag_oob_indices(const Tensor& ids, int64_t num_embeddings, const MaybeTensor& flags, int64_t location,
                        int64_t num_slots, int64_t policy, ScalarType dtype) {
  check::indices(ids, num_embeddings);
  return detected("flag_oob_indices", ids, flags, location, num_slots, policy, dtype);
}

std::tuple<Tensor, Tensor> fix(const Tensor& z, const Tensor& flags, const Tensor& fallback, int64_t location,
                               int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fallback(z, fallback);
  return {data(z, at::result_type(z, fallback)), like_flags(flags)};
}

std::tuple<Tensor, Tensor> fix_scalar(const Tensor& z, const Tensor& flags, const Scalar& fallback, int64_t location,
                                      int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fill("fix", "fallback", fallback, z);
  return {data(z, at::result_type(z, fallback)), like_flags(flags)};
}

Tensor take_ok_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_ok_p", flags);
  check::data("take_ok_p", z, flags);
  check::fill("take_ok_p", "fill", fill, z);
  return data(z, at::result_type(z, fill));
}

Tensor take_err_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_err_p", flags);
  check::data("take_err_p", z, flags);
  check::fill("take_err_p", "fill", fill, z);
  return data(z, at::result_type(z, fill));
}

Tensor replace(const Tensor& z, const Scalar& value, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
               at::IntArrayRef integers) {
  check::fill("replace", "value", value, z);
  const bool any = nan || posinf || neginf || !values.empty() || !integers.empty();
  return data(z, any ? at::result_type(z, value) : z.scalar_type());
}

Tensor select(const Tensor& cond, const Tensor& a, const Tensor& b) {
  check::select(cond, a, b);
  return data(a, a.scalar_type());
}

Tensor guard_grad(const Tensor& z, const Tensor& taken) {
  check::guard_grad(z, taken);
  return at::alias(z);
}

Tensor guard_elements(const Tensor& a, const Tensor& b, const Tensor& taken) {
  return elements::broadcast(a, b, taken);
}

}  // namespace triage::flags::meta

namespace triage::flags {
namespace {

// One type an operator, to make templates of.
#define TRIAGE_NAMED(known, function, schema)  \
  struct function##_operator {                 \
    static constexpr const char* name = known; \
  };
TRIAGE_FLAGS_OPERATORS(TRIAGE_NAMED)
#undef TRIAGE_NAMED

// The step below autograd, with the signature of the operator: a boxed one for all would allocate a stack in every
// call.
template <class Operator, class Function>
struct Below;
template <class Operator, class Result, class... Args>
struct Below<Operator, Result(Args...)> {
  static Result run(c10::DispatchKeySet keys, Args... args) {
    static const auto op = [] {
      const std::string full = std::string("triage::") + Operator::name;
      const size_t dot = std::min(full.find('.'), full.size());
      const std::string overload = dot < full.size() ? full.substr(dot + 1) : "";
      return c10::Dispatcher::singleton()
          .findSchemaOrThrow(full.substr(0, dot).c_str(), overload.c_str())
          .template typed<Result(Args...)>();
    }();
    at::AutoDispatchBelowADInplaceOrView below;
    return op.redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
  }
};

bool differentiable(const char* name) {
#define TRIAGE_IS(known, function, schema) \
  if (std::string(name) == known) return true;
  TRIAGE_FLAGS_DIFFERENTIABLE(TRIAGE_IS)
#undef TRIAGE_IS
  return false;
}

}  // namespace

TORCH_LIBRARY(triage, m) {
#define TRIAGE_DEFINE(name, function, schema) m.def(name schema);
  TRIAGE_FLAGS_OPERATORS(TRIAGE_DEFINE)
#undef TRIAGE_DEFINE
}

TORCH_LIBRARY_IMPL(triage, CPU, m) {
#define TRIAGE_CPU(name, function, schema) m.impl(name, &cpu::function);
  TRIAGE_FLAGS_OPERATORS(TRIAGE_CPU)
#undef TRIAGE_CPU
}

TORCH_LIBRARY_IMPL(triage, Meta, m) {
#define TRIAGE_META(name, function, schema) m.impl(name, &meta::function);
  TRIAGE_FLAGS_OPERATORS(TRIAGE_META)
#undef TRIAGE_META
}

TORCH_LIBRARY_IMPL(triage, CompositeExplicitAutograd, m) {
#define TRIAGE_COMPOSITE(name, function, schema) m.impl(name, &composite::function);
  TRIAGE_FLAGS_OPERATORS(TRIAGE_COMPOSITE)
#undef TRIAGE_COMPOSITE
}

TORCH_LIBRARY_IMPL(triage, Autograd, m) {
#define TRIAGE_GRADIENT(name, function, schema) m.impl(name, &autograd::function);
  TRIAGE_FLAGS_DIFFERENTIABLE(TRIAGE_GRADIENT)
#undef TRIAGE_GRADIENT
#define TRIAGE_BELOW(name, function, schema) \
  if (!differentiable(name)) m.impl(name, TORCH_FN((Below<function##_operator, decltype(composite::function)>::run)));
  TRIAGE_FLAGS_OPERATORS(TRIAGE_BELOW)
#undef TRIAGE_BELOW
}

}  // namespace triage::flags
