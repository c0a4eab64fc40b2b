// Meta kernels: what comes out, in shape and dtype, without data.
#include <ATen/ATen.h>
#include <runtime/flags/checks.h>

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

}  // namespace triage::flags::meta
