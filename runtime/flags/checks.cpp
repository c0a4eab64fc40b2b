#include "runtime/flags/checks.h"

#include <c10/util/StringUtil.h>
#include <triage/location.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/compat/readable_memory.h"
#include "runtime/flags/forms.h"

namespace triage::flags::check {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const char* op, const Parts&... parts) {
  throw InputError(c10::str("triage::", op, ": ", parts...));
}

void strided(const char* op, const char* name, const Tensor& tensor) {
  if (!tensor.defined()) refuse(op, "`", name, "` is not a tensor (undefined).");
  if (tensor.layout() != c10::kStrided) {
    refuse(op, "`", name, "` must be a dense tensor; got layout ", tensor.layout(), ". Call to_dense() first.");
  }
  if (compat::lacks_memory(tensor)) {
    refuse(op, "`", name, "` has no memory for its ", tensor.numel(),
           " elements: its storage was freed or made smaller, or it was made of a null pointer.");
  }
}

void same_device(const char* op, const char* name, const Tensor& tensor, const Tensor& like, const char* like_name) {
  if (tensor.device() != like.device()) {
    refuse(op, "`", name, "` is on ", tensor.device(), " but `", like_name, "` is on ", like.device(),
           ". Move one of them with to(device).");
  }
}

void same_batch(const char* op, const char* name, const Tensor& tensor, const Tensor& like, const char* like_name) {
  if (tensor.size(0) != like.size(0)) {
    refuse(op, "`", name, "` has ", tensor.size(0), " samples, `", like_name, "` has ", like.size(0), " (shapes ",
           tensor.sizes(), " and ", like.sizes(), "). Both must come from the same batch.");
  }
}

void rows(const char* op, const char* name, const Tensor& tensor, const Tensor& like, const char* like_name) {
  strided(op, name, tensor);
  if (tensor.dim() != 1 || tensor.size(0) != like.size(0)) {
    refuse(op, "`", name, "` must have one element a sample, shape (", like.size(0), ",); got shape ", tensor.sizes(),
           tensor.dim() > 1 ? ". Reduce the other dims first, e.g. with flatten(1).any(1), in Lua flatten(1):any(1)."
                            : ".");
  }
  same_device(op, name, tensor, like, like_name);
}

}  // namespace

void policy(const char* op, int64_t packed, int64_t num_slots) {
  if (packed < 0 || packed >= 2 * TRACK_OVERFLOW || (packed & 3) == 3) {
    refuse(op,
           "`policy` must be priority | order << 2 | dedupe << 3 | track_overflow << 5 with priority 0..2, order 0..1, "
           "dedupe 0..3, track_overflow 0..1; got ",
           packed, ". ErrorConfig::policy() makes it.");
  }
  if ((packed & TRACK_OVERFLOW) && num_slots < 2) {
    refuse(op, "`num_slots` must be 2 or more with track_overflow, whose record is the last slot; got ", num_slots,
           ".");
  }
}

void carrier(const char* op, ScalarType dtype) {
  if (dtype != ScalarType::Long && dtype != ScalarType::Int && dtype != ScalarType::Float &&
      dtype != ScalarType::Double) {
    refuse(op, "a flags tensor has dtype int64, int32, float32 or float64; got ", dtype, ".");
  }
}

std::string no_flags_shape(const Tensor& tensor) {
  return c10::str("a flags tensor has shape (N, num_words); got shape ", tensor.sizes(), ". err.new(x) makes one.");
}

void flags(const char* op, const Tensor& flags) {
  strided(op, "flags", flags);
  if (flags.dim() != 2 || flags.size(1) < 1) refuse(op, no_flags_shape(flags));
  carrier(op, flags.scalar_type());
}

void num_slots(const char* op, int64_t num_slots) {
  if (num_slots < 1 || num_slots > MAX_SLOTS)
    refuse(op, "`num_slots` must be 1..", MAX_SLOTS, "; got ", num_slots, ".");
}

void record(const char* op, const Tensor& flags, int64_t slots, int64_t how) {
  check::flags(op, flags);
  num_slots(op, slots);
  const int64_t words = words_for(slots, flags.scalar_type());
  if (flags.size(1) != words) {
    refuse(op, "flags of ", slots, " slots in ", flags.scalar_type(), " words have shape (N, ", words, "); got shape ",
           flags.sizes(), ". Pass the config that the flags were made with.");
  }
  policy(op, how, slots);
  KnownForms::add(flags.scalar_type(), words);
}

void code(const char* op, int64_t code) {
  if (code < 0 || code > 15) refuse(op, "an error code is 0..15; got ", code, ".");
}

void code(const char* op, const Tensor& flags, int64_t which) {
  check::flags(op, flags);
  code(op, which);
}

void codes(const char* op, int64_t codes, int64_t min_severity) {
  if (codes < 0 || codes > 0xFFFF) {
    refuse(op, "`codes` is a set of codes, bit c for code c, 0..65535; got ", codes, ".");
  }
  severity(op, min_severity);
}

void codes(const char* op, const Tensor& flags, int64_t which, int64_t min_severity) {
  check::flags(op, flags);
  codes(op, which, min_severity);
}

void domain(const char* op, const Tensor& flags, int64_t domain) {
  check::flags(op, flags);
  if (domain < 0 || domain > 3) {
    refuse(op, "an error domain is NUMERIC 0, INDEX 1, QUALITY 2 or RUNTIME 3; got ", domain, ".");
  }
}

void location(const char* op, int64_t location) {
  if (location < 0 || location > ErrorLocation::MAX_LOCATION_ID) {
    refuse(op, "a location id is 0..", ErrorLocation::MAX_LOCATION_ID, "; got ", location, ".");
  }
}

void severity(const char* op, int64_t severity) {
  if (severity < 0 || severity > 3) {
    refuse(op, "a severity is OK 0, WARN 1, ERROR 2 or CRITICAL 3; got ", severity, ".");
  }
}

void slot(const char* op, const Tensor& flags, int64_t index) {
  check::flags(op, flags);
  const int64_t slots = flags.size(1) * slots_per_word(flags.scalar_type());
  if (index < 0 || index >= slots) refuse(op, "these flags have slots 0..", slots - 1, "; got ", index, ".");
}

void mask(const char* op, const char* name, const Tensor& mask, const Tensor& like) {
  rows(op, name, mask, like, "flags");
  if (mask.scalar_type() != ScalarType::Bool) {
    refuse(op, "`", name, "` must be a bool mask; got ", mask.scalar_type(), ". Compare it with something first.");
  }
}

void code_tensor(const char* op, const Tensor& code, const Tensor& flags) {
  rows(op, "code", code, flags, "flags");
  if (!c10::isIntegralType(code.scalar_type(), /*includeBool=*/false)) {
    refuse(op, "a tensor of codes must be of an integer dtype; got ", code.scalar_type(),
           ". To push one code under a mask, pass the code as a number and the mask as `where`.");
  }
}

void batch_in_front(const char* op, const char* name, const Tensor& z) {
  strided(op, name, z);
  if (z.dim() < 1) {
    refuse(op, "`", name, "` must have the batch as its first dim; got a 0-dim tensor. Give it one with unsqueeze(0).");
  }
}

void data(const char* op, const Tensor& z, const Tensor& flags) {
  batch_in_front(op, "z", z);
  same_batch(op, "z", z, flags, "flags");
  same_device(op, "z", z, flags, "flags");
}

void same_form(const char* op, const Tensor& flags, const Tensor& other) {
  check::flags(op, other);
  if (other.scalar_type() != flags.scalar_type() || other.size(1) != flags.size(1)) {
    refuse(op, "both flags tensors must be of one carrier and width; got ", flags.scalar_type(), " ", flags.sizes(),
           " and ", other.scalar_type(), " ", other.sizes(), ".");
  }
  same_batch(op, "other", other, flags, "flags");
  same_device(op, "other", other, flags, "flags");
}

void new_flags(const Tensor& like, int64_t slots, ScalarType dtype) {
  batch_in_front("new", "like", like);
  num_slots("new", slots);
  carrier("new", dtype);
  KnownForms::add(dtype, words_for(slots, dtype));
}

void push(const Tensor& flags, const Tensor& codes, int64_t where, int64_t how_bad, int64_t slots, int64_t policy) {
  record("push", flags, slots, policy);
  code_tensor("push", codes, flags);
  location("push", where);
  severity("push", how_bad);
}

void push(const Tensor& flags, int64_t which, int64_t where, int64_t how_bad, int64_t slots, int64_t policy) {
  record("push", flags, slots, policy);
  code("push", which);
  location("push", where);
  severity("push", how_bad);
}

void push(const Tensor& flags, int64_t which, int64_t where, int64_t how_bad, const Tensor& samples, int64_t slots,
          int64_t policy) {
  push(flags, which, where, how_bad, slots, policy);
  mask("push", "where", samples, flags);
}

void merge(const Tensor& flags, const Tensor& other, int64_t slots, int64_t policy) {
  record("merge", flags, slots, policy);
  same_form("merge", flags, other);
}

void detection(const char* op, const Tensor& z, const MaybeTensor& flags, int64_t where, int64_t slots, int64_t how,
               ScalarType dtype) {
  batch_in_front(op, "z", z);
  if (flags) {
    record(op, *flags, slots, how);
    data(op, z, *flags);
  } else {
    num_slots(op, slots);
    policy(op, how, slots);
    carrier(op, dtype);
    KnownForms::add(dtype, words_for(slots, dtype));
  }
  location(op, where);
}

void indices(const Tensor& ids, int64_t num_embeddings) {
  if (num_embeddings < 0) refuse("flag_oob_indices", "`num_embeddings` must be 0 or more; got ", num_embeddings, ".");
  if (ids.defined() && !c10::isIntegralType(ids.scalar_type(), /*includeBool=*/false)) {
    refuse("flag_oob_indices", "`ids` must be of an integer dtype; got ", ids.scalar_type(),
           ". Check them for NaN and Inf first (flag_nan), then convert them.");
  }
}

void fix(const Tensor& z, const Tensor& flags, int64_t where, int64_t which, int64_t min_severity, int64_t slots,
         int64_t policy) {
  record("fix", flags, slots, policy);
  data("fix", z, flags);
  location("fix", where);
  codes("fix", which, min_severity);
}

namespace {

template <class T>
bool is_within(const Scalar& number) {
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<T>) {
    if (!number.isIntegral(/*includeBool=*/true)) return true;
    const int64_t whole = number.toLong();
    return whole >= static_cast<int64_t>(Limits::lowest()) && whole <= static_cast<int64_t>(Limits::max());
  } else {
    const double real = number.toDouble();
    return !std::isfinite(real) || std::abs(real) <= static_cast<double>(Limits::max());
  }
}

}  // namespace

bool holds(ScalarType dtype, const Scalar& number) {
  if (number.isComplex()) return true;
  switch (dtype) {
#define TRIAGE_WITHIN(T, name) \
  case ScalarType::name:       \
    return is_within<T>(number);
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, TRIAGE_WITHIN)
#undef TRIAGE_WITHIN
    default:
      return true;
  }
}

void fill(const char* op, const char* name, const Scalar& number, const Tensor& z) {
  strided(op, "z", z);
  const auto dtype = at::result_type(z, number);
  if (holds(dtype, number)) return;
  refuse(op, "`", name, "` is ", number, ", which ", dtype,
         " cannot hold; pass a number in its range, or convert z first, for example with to(at::kFloat).");
}

void fallback(const Tensor& z, const Tensor& fallback) {
  strided("fix", "fallback", fallback);
  const auto wanted = z.sizes();
  const auto got = fallback.sizes();
  bool fits = got.size() <= wanted.size();
  for (size_t i = 0; fits && i < got.size(); ++i) {
    const int64_t size = got[got.size() - 1 - i];
    fits = size == 1 || size == wanted[wanted.size() - 1 - i];
  }
  if (!fits) refuse("fix", "`fallback` of shape ", got, " does not broadcast to z's shape ", wanted, ".");
  if (fallback.dim() > 0 || !fallback.device().is_cpu()) same_device("fix", "fallback", fallback, z, "z");
}

bool select(const Tensor& cond, const Tensor& a, const Tensor& b) {
  strided("select", "cond", cond);
  strided("select", "a", a);
  strided("select", "b", b);
  if (cond.scalar_type() != ScalarType::Bool || cond.dim() > 1) {
    refuse("select", "a condition is a bool of shape (N,) (selects samples) or () (selects the batch); got ",
           cond.scalar_type(), " of shape ", cond.sizes(), ".");
  }
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    refuse("select", "both branches must agree in shape and dtype; got ", a.scalar_type(), " ", a.sizes(), " and ",
           b.scalar_type(), " ", b.sizes(), ".");
  }
  same_device("select", "b", b, a, "a");
  same_device("select", "cond", cond, a, "a");
  if (cond.dim() == 0) return false;
  batch_in_front("select", "a", a);
  same_batch("select", "cond", cond, a, "a");
  return true;
}

void guard_grad(const Tensor& z, const Tensor& taken) {
  strided("guard_grad", "z", z);
  strided("guard_grad", "taken", taken);
  if (taken.scalar_type() != ScalarType::Bool || taken.dim() > 1) {
    refuse("guard_grad", "`taken` must be a bool of shape (N,) or (); got ", taken.scalar_type(), " of shape ",
           taken.sizes(), ".");
  }
  same_device("guard_grad", "taken", taken, z, "z");
}

void guard_elements(const Tensor& a, const Tensor& b, const Tensor& taken) {
  strided("guard_grad", "a", a);
  strided("guard_grad", "b", b);
  strided("guard_grad", "taken", taken);
  if (taken.scalar_type() != ScalarType::Bool)
    refuse("guard_grad", "`taken` must be a bool mask; got ", taken.scalar_type(), " of shape ", taken.sizes(), ".");
  same_device("guard_grad", "taken", taken, a, "a");
}

}  // namespace triage::flags::check

namespace triage::flags {

thread_local constinit FlagsThreadContext context{};

KnownForms KnownForms::of_process_;

namespace check {

bool has_known_form(const Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.dim() != 2) return false;
  const ErrorConfig& in_force = get_config();
  return (tensor.scalar_type() == in_force.flag_dtype && tensor.size(1) == in_force.num_words()) ||
         KnownForms::has(tensor.scalar_type(), tensor.size(1));
}

namespace {

bool could_be_flags(const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return tensor.dim() == 2 && tensor.size(1) >= 1 &&
         (dtype == ScalarType::Long || dtype == ScalarType::Int || dtype == ScalarType::Float ||
          dtype == ScalarType::Double);
}

[[noreturn]] void refuse_unknown(const char* op, const Tensor& flags, const Tensor* beside) {
  const ErrorConfig& config = get_config();
  throw InputError(c10::str(op, ": `f` is not a flags tensor: ", flags.scalar_type(), " of shape ", flags.sizes(),
                            beside && has_known_form(*beside) ? "; are the two swapped?" : ".",
                            " Flags of the configuration are ", config.flag_dtype, " of shape (N, ", config.num_words(),
                            "). triage knows flags of another configuration if the script made that configuration "
                            "(ErrorConfig{...}), recorded with it, or declares an input of type Tensor(error_t)."));
}

}  // namespace

void known(const char* op, const Tensor& flags, const Tensor* beside) {
  if (has_known_form(flags)) return;
  if (!flags.defined() || flags.layout() != c10::kStrided) return;
  if (flags.dim() != 2) throw InputError(c10::str(op, ": ", no_flags_shape(flags)));
  if (could_be_flags(flags)) refuse_unknown(op, flags, beside);
}

}  // namespace check

}  // namespace triage::flags
