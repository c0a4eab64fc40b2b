// Registers every flags operation with LibTorch's dispatcher: CPU kernel, Meta kernel, composite for all other devices, and
// above them either gradients or, for results that are flags and masks, a step below autograd (without any Autograd
// registration LibTorch 1.13 cannot reach the Meta kernels).
#include <ATen/core/LegacyTypeDispatch.h>
#include <runtime/flags/operators.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

namespace triage::flags {
namespace {

// One type an operator, to make templates of.
#define TRIAGE_NAMED(known, function, schema)  \
  struct function##_operator {                 \
    static constexpr const char* name = known; \
  };
TRIAGE_FLAGS_OPERATORS(TRIAGE_NAMED)
#undef TRIAGE_NAMED

// The step below autograd, with the signature of the operator: a boxed one for all would allocate a stack in every call.
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
