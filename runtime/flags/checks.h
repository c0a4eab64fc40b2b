#pragma once
// What the operations refuse, at every level alike. Each check throws InputError that names the operation, what it
// wants, what came, and what to do. No check reads the data of a tensor.
#include <ATen/core/Tensor.h>
#include <runtime/flags/operators.h>
#include <triage/config.h>

namespace triage::flags::check {

/// Refuses a `policy` that is none, or that `num_slots` slots have no room for.
void policy(const char* op, int64_t packed, int64_t num_slots);
/// The accumulation policy of an operator's `policy` argument.
inline AccumulationConfig unpack(int64_t packed) {
  return {static_cast<Priority>(packed & 3), static_cast<Order>(packed >> 2 & 1), static_cast<Dedupe>(packed >> 3 & 3)};
}

/// Whole argument lists, as the operators of these names take them.
void new_flags(const Tensor& like, int64_t num_slots, ScalarType dtype);
void push(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots, int64_t policy);
void push(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
          int64_t policy);
void push(const Tensor& flags, int64_t code, int64_t location, int64_t severity, const Tensor& where, int64_t num_slots,
          int64_t policy);
void merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy);

/// int64, int32, float32 or float64, (N, words) with at least one word.
void flags(const char* op, const Tensor& flags);
/// What is wrong with a tensor of such a shape in the place of flags.
std::string no_flags_shape(const Tensor& tensor);
/// Also that the words are those of `num_slots` slots, and that the policy is one for so many.
void record(const char* op, const Tensor& flags, int64_t num_slots, int64_t policy);
void carrier(const char* op, ScalarType dtype);
void num_slots(const char* op, int64_t num_slots);
void code(const char* op, int64_t code);
void code(const char* op, const Tensor& flags, int64_t code);
void codes(const char* op, int64_t codes, int64_t min_severity);
void codes(const char* op, const Tensor& flags, int64_t codes, int64_t min_severity);
void domain(const char* op, const Tensor& flags, int64_t domain);
void location(const char* op, int64_t location);
void severity(const char* op, int64_t severity);
void slot(const char* op, const Tensor& flags, int64_t index);
/// A mask: bool, (N,) for the N of `like`, on its device.
void mask(const char* op, const char* name, const Tensor& mask, const Tensor& like);
/// Codes a sample: integers, (N,).
void code_tensor(const char* op, const Tensor& code, const Tensor& flags);
/// Data: strided, with the batch in front, N and device as those of `flags`.
void data(const char* op, const Tensor& z, const Tensor& flags);
void batch_in_front(const char* op, const char* name, const Tensor& z);
void same_form(const char* op, const Tensor& flags, const Tensor& other);
/// All of a flag_* operation's arguments but what is looked for.
void detection(const char* op, const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots,
               int64_t policy, ScalarType dtype);
/// Indices: integers (bool is none); and the size of the table they point into.
void indices(const Tensor& ids, int64_t num_embeddings);
/// All of fix's arguments but the fallback; returns nothing to compute, only refuses.
void fix(const Tensor& z, const Tensor& flags, int64_t location, int64_t codes, int64_t min_severity, int64_t num_slots,
         int64_t policy);
/// Whether a number lies within what elements of `dtype` can be; NaN and Inf do in every dtype that has them.
bool holds(ScalarType dtype, const Scalar& number);
/// A number that takes the place of elements of `z` must lie within the dtype that the result then has.
void fill(const char* op, const char* name, const Scalar& number, const Tensor& z);
/// A fallback must broadcast to z's shape (never enlarge it) and live on its device.
void fallback(const Tensor& z, const Tensor& fallback);
/// True where the condition selects rows, false where it selects the whole batch.
bool select(const Tensor& cond, const Tensor& a, const Tensor& b);
void guard_grad(const Tensor& z, const Tensor& taken);
void guard_elements(const Tensor& a, const Tensor& b, const Tensor& taken);

inline int64_t slots_per_word(ScalarType carrier) {
  return carrier == ScalarType::Int || carrier == ScalarType::Float ? 2 : 4;
}
inline int64_t words_for(int64_t num_slots, ScalarType carrier) {
  const int64_t per = slots_per_word(carrier);
  return (num_slots + per - 1) / per;
}

}  // namespace triage::flags::check
