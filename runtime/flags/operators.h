#pragma once
// Every flags operation, once: its name, the function that does it, its schema. Each function exists at three levels
// with one signature: `cpu` (hand-written, one pass over the data), `meta` (shapes only), `composite` (plain ATen
// calls; serves every other device and is the operation's decomposition). What the arguments mean, and which are
// refused, is in checks.h.
//
// `policy` packs how errors accumulate: priority | order << 2 | dedupe << 3 | track_overflow << 5
// (ErrorConfig::policy).
#include <ATen/core/Tensor.h>
#include <c10/util/Optional.h>

#include <tuple>

// X(name with overload, function, arguments and results)
#define TRIAGE_FLAGS_OPERATORS(X)                                                                                    \
  X("new", new_flags, "(Tensor like, int num_slots, ScalarType dtype) -> Tensor")                                    \
  X("push", push, "(Tensor flags, Tensor code, int location, int severity, int num_slots, int policy) -> Tensor")    \
  X("push.where", push_where,                                                                                        \
    "(Tensor flags, int code, int location, int severity, Tensor where, int num_slots, int policy) -> Tensor")       \
  X("push.scalar", push_scalar,                                                                                      \
    "(Tensor flags, int code, int location, int severity, int num_slots, int policy) -> Tensor")                     \
  X("merge", merge, "(Tensor flags, Tensor other, int num_slots, int policy) -> Tensor")                             \
  X("clear", clear, "(Tensor flags, int code) -> Tensor")                                                            \
  X("is_ok", is_ok, "(Tensor flags) -> Tensor")                                                                      \
  X("is_err", is_err, "(Tensor flags) -> Tensor")                                                                    \
  X("has_critical", has_critical, "(Tensor flags) -> Tensor")                                                        \
  X("all_ok", all_ok, "(Tensor flags) -> Tensor")                                                                    \
  X("any_err", any_err, "(Tensor flags) -> Tensor")                                                                  \
  X("count_errors", count_errors, "(Tensor flags) -> Tensor")                                                        \
  X("max_severity", max_severity, "(Tensor flags) -> Tensor")                                                        \
  X("get_first_code", get_first_code, "(Tensor flags) -> Tensor")                                                    \
  X("get_first_location", get_first_location, "(Tensor flags) -> Tensor")                                            \
  X("get_first_severity", get_first_severity, "(Tensor flags) -> Tensor")                                            \
  X("has_code", has_code, "(Tensor flags, int code) -> Tensor")                                                      \
  X("has_domain", has_domain, "(Tensor flags, int domain) -> Tensor")                                                \
  X("get_slot", get_slot, "(Tensor flags, int index) -> Tensor")                                                     \
  X("match", match, "(Tensor flags, int codes, int min_severity) -> Tensor")                                         \
  X("flag_nan", flag_nan,                                                                                            \
    "(Tensor z, Tensor? flags, int location, int num_slots, int policy, ScalarType dtype) -> Tensor")                \
  X("flag_inf", flag_inf,                                                                                            \
    "(Tensor z, Tensor? flags, int location, int num_slots, int policy, ScalarType dtype) -> Tensor")                \
  X("flag_nan_and_inf", flag_nan_and_inf,                                                                            \
    "(Tensor z, Tensor? flags, int location, int num_slots, int policy, ScalarType dtype) -> Tensor")                \
  X("flag_oob_indices", flag_oob_indices,                                                                            \
    "(Tensor ids, int num_embeddings, Tensor? flags, int location, int num_slots, int policy, ScalarType dtype) -> " \
    "Tensor")                                                                                                        \
  TRIAGE_FLAGS_DIFFERENTIABLE(X)

// These pass a floating tensor through, and have gradients (autograd.cpp).
#define TRIAGE_FLAGS_DIFFERENTIABLE(X)                                                                                \
  X("fix", fix,                                                                                                       \
    "(Tensor z, Tensor flags, Tensor fallback, int location, int codes, int min_severity, int num_slots, int policy)" \
    " -> (Tensor, Tensor)")                                                                                           \
  X("fix.scalar", fix_scalar,                                                                                         \
    "(Tensor z, Tensor flags, Scalar fallback, int location, int codes, int min_severity, int num_slots, int policy)" \
    " -> (Tensor, Tensor)")                                                                                           \
  X("take_ok_p", take_ok_p, "(Tensor flags, Tensor z, Scalar fill) -> Tensor")                                        \
  X("take_err_p", take_err_p, "(Tensor flags, Tensor z, Scalar fill) -> Tensor")                                      \
  X("replace", replace,                                                                                               \
    "(Tensor z, Scalar value, bool nan, bool posinf, bool neginf, float[] values, int[] integers=[]) -> Tensor")      \
  X("select", select, "(Tensor cond, Tensor a, Tensor b) -> Tensor")                                                  \
  X("guard_grad", guard_grad, "(Tensor(a) z, Tensor taken) -> Tensor(a)")                                             \
  X("guard_grad.elements", guard_elements, "(Tensor(a) a, Tensor b, Tensor taken) -> Tensor(a)")

namespace triage::flags {

using at::Scalar;
using at::ScalarType;
using at::Tensor;
using MaybeTensor = c10::optional<Tensor>;

namespace cpu {
#include <runtime/flags/signatures.inc>
}
namespace meta {
#include <runtime/flags/signatures.inc>
}
namespace composite {
#include <runtime/flags/signatures.inc>
}
namespace autograd {
#include <runtime/flags/signatures_data.inc>
}

}  // namespace triage::flags
