// triage::err and the helpers: thin calls of the registered operators, found once.
#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <runtime/flags/branches/branch_checks.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/forms.h>
#include <triage/flags.h>

#include <cmath>
#include <string_view>

namespace triage {
namespace {

using at::Tensor;

const ErrorConfig& chosen(const std::optional<ErrorConfig>& config) {
  if (!config) return get_config();
  config->validate();
  return *config;
}

template <class Signature>
auto operation(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

// Operators find their kernel by the device of their tensors, and so cannot refuse tensors that are none.
void defined(const char* op, const char* name, const Tensor& tensor) {
  if (!tensor.defined()) throw InputError(c10::str(op, ": `", name, "` is not a tensor (undefined)."));
}

void known_flags(const char* op, const Tensor& f, const Tensor* beside = nullptr) {
  defined(op, "f", f);
  flags::check::known(op, f, beside);
}
void known_flags(const char* op, const Tensor& f, const ConfigOptions& options) {
  flags::KnownForms::add(options.config);
  known_flags(op, f);
}

template <class Function>
const Function& callable(const char* op, const Function& function) {
  if (!function) throw InputError(c10::str(op, ": the function is empty; pass one that can be called."));
  return function;
}

template <const char* name>
Tensor ask(const Tensor& f, const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&)>(name);
  known_flags(name, f, options);
  return op.call(f);
}

// Bool data has two numbers: with them it stays bool.
at::Scalar number_for(const Tensor& z, const at::Scalar& number) {
  const bool is_truth = z.scalar_type() == at::kBool && number.isIntegral(/*includeBool=*/false) &&
                        (number.toLong() == 0 || number.toLong() == 1);
  return is_truth ? at::Scalar(number.toLong() == 1) : number;
}

Tensor rows_where(const Tensor& z, const Tensor& mask) {
  return at::index_select(z, 0, at::flatten(at::nonzero(mask)));
}

Tensor select(const Tensor& cond, const Tensor& a, const Tensor& b) {
  static const auto op = operation<Tensor(const Tensor&, const Tensor&, const Tensor&)>("triage::select");
  return op.call(cond, a, b);
}

Tensor guard_grad(const Tensor& z, const Tensor& taken) {
  static const auto op = operation<Tensor(const Tensor&, const Tensor&)>("triage::guard_grad");
  return op.call(z, taken);
}

// What a function made of `z`, where it is of its dtype, in its shape.
Tensor fitting(const char* op, const Tensor& z, const Tensor& made) {
  defined(op, "the result of fn", made);
  flags::check::hold(op, flags::check::fitting(z, made, flags::check::cpp), flags::check::cpp);
  if (made.sizes() == z.sizes()) return made;
  return made.expand(z.sizes());
}

// `fn(z)` for the rows of `taken`, z for the others.
Tensor mapped(const char* op, const Tensor& z, const Tensor& taken, const err::Transform& fn) {
  defined(op, "z", z);
  return select(taken, fitting(op, z, callable(op, fn)(guard_grad(z, taken))), z);
}

// The value of a chain, frozen where samples have errors, with the flags that the step made.
std::pair<Tensor, Tensor> chained(const char* op, const Tensor& z, const Tensor& fine, const err::Step& fn) {
  defined(op, "z", z);
  auto [value, flags] = callable(op, fn)(guard_grad(z, fine));
  defined(op, "the flags that fn returned", flags);
  return {select(fine, fitting(op, z, value), z), flags};
}

Tensor pushed(const Tensor& f, Code code, int64_t location, Severity severity, const Tensor& where,
              const ErrorConfig& config) {
  static const auto masked =
      operation<Tensor(const Tensor&, int64_t, int64_t, int64_t, const Tensor&, int64_t, int64_t)>("triage::push",
                                                                                                   "where");
  static const auto all =
      operation<Tensor(const Tensor&, int64_t, int64_t, int64_t, int64_t, int64_t)>("triage::push", "scalar");
  const int64_t policy = config.policy();
  defined("err.push", "f", f);
  const int64_t number = to_int(code), rank = to_int(severity);
  return where.defined() ? masked.call(f, number, location, rank, where, config.num_slots, policy)
                         : all.call(f, number, location, rank, config.num_slots, policy);
}

int64_t code_set(const std::vector<Code>& codes) {
  if (codes.empty()) return 0xFFFF;
  int64_t set = 0;
  for (const Code code : codes) {
    flags::check::code("fix", to_int(code));
    set |= int64_t{1} << to_int(code);
  }
  return set;
}

// What `fix` takes besides the tensors.
struct Repair {
  Location location;
  int64_t codes;
  int64_t min_severity;
  int64_t num_slots;
  int64_t policy;
};
using Repaired = std::tuple<Tensor, Tensor>;

/// `fallback`: a Tensor, or a Scalar.
template <class Fallback>
std::pair<Tensor, Tensor> repaired(const char* name, const Tensor& z, const Tensor& f, const Fallback& fallback,
                                   const Repair& how) {
  constexpr bool is_number = std::is_same_v<Fallback, at::Scalar>;
  static const auto op =
      operation<Repaired(const Tensor&, const Tensor&, const Fallback&, int64_t, int64_t, int64_t, int64_t, int64_t)>(
          "triage::fix", is_number ? "scalar" : "");
  defined(name, "z", z);
  defined(name, "f", f);
  if constexpr (!is_number) defined(name, "fallback", fallback);
  auto [value, flags] =
      op.call(z, f, fallback, how.location.id, how.codes, how.min_severity, how.num_slots, how.policy);
  return {std::move(value), std::move(flags)};
}

template <class Fallback>
std::pair<Tensor, Tensor> recovered(const Tensor& f, const Tensor& z, const Fallback& fallback, Location location,
                                    const SeverityOptions& options) {
  const ErrorConfig& config = chosen(options.config);
  const Repair repair{location, code_set({}), to_int(err::warn), config.num_slots, config.policy()};
  auto result = repaired("err.recover_with_fallback", z, f, fallback, repair);
  const Severity severity = options.severity.value_or(err::warn);
  if (severity != err::warn)
    result.second = pushed(f, err::fallback_value, location.id, severity, err::is_err(f), config);
  return result;
}

template <const char* name>
Tensor detected(const Tensor& z, Location location, const Tensor& f, const ConfigOptions& options) {
  static const auto op =
      operation<Tensor(const Tensor&, const c10::optional<Tensor>&, int64_t, int64_t, int64_t, at::ScalarType)>(name);
  const ErrorConfig& config = chosen(options.config);
  defined(name, "z", z);
  return op.call(z, f.defined() ? c10::optional<Tensor>(f) : c10::nullopt, location.id, config.num_slots,
                 config.policy(), config.flag_dtype);
}

#define TRIAGE_NAME(function) constexpr char function##_name[] = "triage::" #function;
TRIAGE_NAME(is_ok)
TRIAGE_NAME(is_err)
TRIAGE_NAME(has_critical)
TRIAGE_NAME(all_ok)
TRIAGE_NAME(any_err)
TRIAGE_NAME(count_errors)
TRIAGE_NAME(max_severity)
TRIAGE_NAME(get_first_code)
TRIAGE_NAME(get_first_location)
TRIAGE_NAME(get_first_severity)
TRIAGE_NAME(flag_nan)
TRIAGE_NAME(flag_inf)
TRIAGE_NAME(flag_nan_and_inf)
#undef TRIAGE_NAME

}  // namespace

namespace err {

Tensor new_(const Tensor& x, const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&, int64_t, at::ScalarType)>("triage::new");
  const ErrorConfig& config = chosen(options.config);
  defined("err.new", "x", x);
  return op.call(x, config.num_slots, config.flag_dtype);
}

Tensor new_t(int64_t samples, const NewOptions& options) {
  if (samples < 0)
    throw InputError("err.new_t: the number of samples must be 0 or more; got " + std::to_string(samples) + ".");
  const ErrorConfig& config = chosen(options.config);
  flags::KnownForms::add(config.flag_dtype, config.num_words());
  return at::zeros({samples, config.num_words()}, at::TensorOptions(config.flag_dtype).device(options.device));
}

Tensor from_code(Code code, Location location, int64_t samples, const FromCodeOptions& options) {
  const auto empty = new_t(samples, {options.device, options.config});
  return pushed(empty, code, location.id, options.severity.value_or(default_severity(code)), {},
                chosen(options.config));
}

Tensor push(const Tensor& f, Code code, Location location, const PushOptions& options) {
  return pushed(f, code, location.id, options.severity.value_or(default_severity(code)), options.where,
                chosen(options.config));
}

Tensor push(const Tensor& f, const Tensor& codes, Location location, const PushOptions& options) {
  static const auto op =
      operation<Tensor(const Tensor&, const Tensor&, int64_t, int64_t, int64_t, int64_t)>("triage::push");
  const ErrorConfig& config = chosen(options.config);
  defined("err.push", "f", f);
  defined("err.push", "codes", codes);
  Tensor chosen_codes = codes;
  if (options.where.defined()) {
    flags::check::flags("push", f);
    flags::check::mask("push", "where", options.where, f);
    flags::check::code_tensor("push", codes, f);
    chosen_codes = at::where(options.where, codes, at::zeros({}, codes.options()));
  }
  return op.call(f, chosen_codes, location.id, to_int(options.severity.value_or(config.default_severity)),
                 config.num_slots, config.policy());
}

Tensor push_scalar(const Tensor& f, Code code, Location location, const SeverityOptions& options) {
  return pushed(f, code, location.id, options.severity.value_or(default_severity(code)), {}, chosen(options.config));
}

Tensor merge(at::ArrayRef<Tensor> flags, const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&, const Tensor&, int64_t, int64_t)>("triage::merge");
  if (flags.empty()) throw InputError("err.merge: at least one flags tensor is needed; got none.");
  const ErrorConfig& config = chosen(options.config);
  for (const Tensor& each : flags) defined("err.merge", "f", each);
  Tensor result = flags[0];
  if (flags.size() == 1) {  // a result is never its argument
    flags::check::record("merge", result, config.num_slots, config.policy());
    return at::clone(result, at::MemoryFormat::Contiguous);
  }
  for (const Tensor& other : flags.slice(1)) result = op.call(result, other, config.num_slots, config.policy());
  return result;
}

Tensor clear(const Tensor& f, Code code, const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&, int64_t)>("triage::clear");
  known_flags("triage::clear", f, options);
  return op.call(f, to_int(code));
}

Tensor is_ok(const Tensor& f, const ConfigOptions& options) { return ask<is_ok_name>(f, options); }
Tensor is_err(const Tensor& f, const ConfigOptions& options) { return ask<is_err_name>(f, options); }
Tensor has_critical(const Tensor& f, const ConfigOptions& options) { return ask<has_critical_name>(f, options); }
Tensor all_ok(const Tensor& f, const ConfigOptions& options) { return ask<all_ok_name>(f, options); }
Tensor any_err(const Tensor& f, const ConfigOptions& options) { return ask<any_err_name>(f, options); }
Tensor count_errors(const Tensor& f, const ConfigOptions& options) { return ask<count_errors_name>(f, options); }
Tensor max_severity(const Tensor& f, const ConfigOptions& options) { return ask<max_severity_name>(f, options); }
Tensor get_first_code(const Tensor& f, const ConfigOptions& options) { return ask<get_first_code_name>(f, options); }
Tensor get_first_location(const Tensor& f, const ConfigOptions& options) {
  return ask<get_first_location_name>(f, options);
}
Tensor get_first_severity(const Tensor& f, const ConfigOptions& options) {
  return ask<get_first_severity_name>(f, options);
}

Tensor has_code(const Tensor& f, Code code, const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&, int64_t)>("triage::has_code");
  known_flags("triage::has_code", f, options);
  return op.call(f, to_int(code));
}

Tensor has_nan(const Tensor& f, const ConfigOptions& options) { return has_code(f, nan, options); }
Tensor has_inf(const Tensor& f, const ConfigOptions& options) { return has_code(f, inf, options); }
Tensor has_fallback(const Tensor& f, const ConfigOptions& options) { return has_code(f, fallback_value, options); }

Tensor has_domain(const Tensor& f, Domain domain, const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&, int64_t)>("triage::has_domain");
  known_flags("triage::has_domain", f, options);
  return op.call(f, static_cast<int64_t>(domain));
}

Tensor get_slot(const Tensor& f, int64_t index, const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&, int64_t)>("triage::get_slot");
  known_flags("triage::get_slot", f, options);
  return op.call(f, index);
}

Tensor get_ok(const Tensor& f) { return rows_where(f, is_ok(f)); }
Tensor get_err(const Tensor& f) { return rows_where(f, is_err(f)); }

Tensor take_ok(const Tensor& f, const Tensor& z) {
  known_flags("triage::take_ok", f, &z);
  flags::check::flags("take_ok", f);
  flags::check::data("take_ok", z, f);
  return rows_where(z, is_ok(f));
}

Tensor take_err(const Tensor& f, const Tensor& z) {
  known_flags("triage::take_err", f, &z);
  flags::check::flags("take_err", f);
  flags::check::data("take_err", z, f);
  return rows_where(z, is_err(f));
}

std::pair<Tensor, Tensor> partition(const Tensor& f, const Tensor& z) { return {take_ok(f, z), take_err(f, z)}; }

std::pair<std::vector<Tensor>, std::vector<Tensor>> partition_many(const Tensor& f, at::ArrayRef<Tensor> zs) {
  std::pair<std::vector<Tensor>, std::vector<Tensor>> result;
  for (const Tensor& z : zs) {
    auto [ok_rows, bad_rows] = partition(f, z);
    result.first.push_back(std::move(ok_rows));
    result.second.push_back(std::move(bad_rows));
  }
  return result;
}

Tensor take_ok_p(const Tensor& f, const Tensor& z, const at::Scalar& fill) {
  static const auto op = operation<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("triage::take_ok_p");
  known_flags("triage::take_ok_p", f, &z);
  defined("triage::take_ok_p", "z", z);
  return op.call(f, z, number_for(z, fill));
}

Tensor take_err_p(const Tensor& f, const Tensor& z, const at::Scalar& fill) {
  static const auto op = operation<Tensor(const Tensor&, const Tensor&, const at::Scalar&)>("triage::take_err_p");
  known_flags("triage::take_err_p", f, &z);
  defined("triage::take_err_p", "z", z);
  return op.call(f, z, number_for(z, fill));
}

Tensor map_ok(const Tensor& f, const Tensor& z, const Transform& fn) {
  known_flags("err.map_ok", f, &z);
  return mapped("err.map_ok", z, is_ok(f), fn);
}

Tensor map_err(const Tensor& f, const Tensor& z, const Transform& fn) {
  known_flags("err.map_err", f, &z);
  return mapped("err.map_err", z, is_err(f), fn);
}

Tensor map_err_flags(const Tensor& f, const Transform& fn) {
  const auto bad = is_err(f);
  const auto made = callable("err.map_err_flags", fn)(f);
  defined("err.map_err_flags", "the result of fn", made);
  return select(bad, made, f);
}

std::pair<Tensor, Tensor> and_then(const Tensor& f, const Tensor& z, const Step& fn, const ConfigOptions& options) {
  known_flags("err.and_then", f, &z);
  const auto fine = is_ok(f);
  const auto [value, made] = chained("err.and_then", z, fine, fn);
  return {value, select(fine, merge({f, made}, options), f)};
}

std::pair<Tensor, Tensor> bind(const Tensor& f, const Tensor& z, const Step& fn, const ConfigOptions& options) {
  known_flags("err.bind", f, &z);
  const auto [value, made] = chained("err.bind", z, is_ok(f), fn);
  return {value, merge({f, made}, options)};
}

Tensor ensure_mask(const Tensor& f, const Tensor& fine, Code code, Location location, const SeverityOptions& options) {
  flags::check::flags("ensure_mask", f);
  flags::check::mask("ensure_mask", "mask", fine, f);
  return pushed(f, code, location.id, options.severity.value_or(default_severity(code)), at::logical_not(fine),
                chosen(options.config));
}

Tensor guard(const Tensor& f, const Tensor& z, const Transform& predicate, Code code, Location location,
             const SeverityOptions& options) {
  defined("err.guard", "z", z);
  const auto fine = callable("err.guard", predicate)(z);
  defined("err.guard", "the result of the predicate", fine);
  return ensure_mask(f, fine.to(at::kBool), code, location, options);
}

std::pair<Tensor, Tensor> recover_with_fallback(const Tensor& f, const Tensor& z, const Tensor& fallback,
                                                Location location, const SeverityOptions& options) {
  return recovered(f, z, fallback, location, options);
}

std::pair<Tensor, Tensor> recover_with_fallback(const Tensor& f, const Tensor& z, const at::Scalar& fallback,
                                                Location location, const SeverityOptions& options) {
  return recovered(f, z, fallback, location, options);
}

Tensor replace(const Tensor& z, const at::Scalar& value, const ReplaceTargets& targets) {
  static const auto op =
      operation<Tensor(const Tensor&, const at::Scalar&, bool, bool, bool, at::ArrayRef<double>, at::IntArrayRef)>(
          "triage::replace");
  defined("err.replace", "z", z);
  if (!targets.nan && !targets.posinf && !targets.neginf && targets.values.empty() && targets.integers.empty()) {
    throw InputError("err.replace: no targets were given; name at least one of NaN, infinities and values to replace.");
  }
  return op.call(z, number_for(z, value), targets.nan, targets.posinf, targets.neginf, targets.values,
                 targets.integers);
}

Tensor replace(const Tensor& z, const at::Scalar& value, std::initializer_list<ReplaceTarget> list) {
  ReplaceTargets targets;
  for (const ReplaceTarget& target : list) target.add_to(targets);
  return replace(z, value, targets);
}

}  // namespace err

ReplaceTarget::ReplaceTarget(Code code) : target_(code == err::nan ? "nan" : "inf") {
  if (code != err::nan && code != err::inf)
    throw InputError(c10::str(
        "err.replace: code ", to_int(code),
        " does not describe a value; targets are err::nan, err::inf, 'nan', 'inf', 'posinf', 'neginf', or numbers."));
}

void ReplaceTarget::add_to(ReplaceTargets& targets) const {
  if (const auto* number = std::get_if<double>(&target_)) {
    if (std::isnan(*number))
      targets.nan = true;
    else
      targets.values.push_back(*number);
    return;
  }
  if (const auto* integer = std::get_if<int64_t>(&target_)) return targets.integers.push_back(*integer);
  const char* const text = std::get<const char*>(target_);
  const std::string_view name = text ? text : "";
  if (name == "nan") {
    targets.nan = true;
  } else if (name == "inf") {
    targets.posinf = targets.neginf = true;
  } else if (name == "posinf" || name == "neginf") {
    (name == "posinf" ? targets.posinf : targets.neginf) = true;
  } else {
    throw InputError(c10::str("err.replace: there is no target '", name,
                              "'; targets are err::nan, err::inf, 'nan', 'inf', 'posinf', 'neginf', or numbers."));
  }
}

bool has_err(const Tensor& f, const ConfigOptions& options) { return err::any_err(f, options).item<bool>(); }

Tensor find(const Tensor& f, Code code, const ConfigOptions& options) { return err::has_code(f, code, options); }

Tensor push(const Tensor& f, Code code, Location location, const PushOptions& options) {
  return err::push(f, code, location, options);
}

std::pair<Tensor, Tensor> fix(const Tensor& z, const Tensor& f, Location location, const FixOptions& options) {
  const ErrorConfig& config = chosen(options.config);
  const Repair repair{location, code_set(options.codes), to_int(options.min_severity), config.num_slots,
                      config.policy()};
  if (const auto* number = std::get_if<double>(&options.fallback)) {
    // 0 is zero in every dtype: without a fallback of their own, integers stay integers.
    const bool zero = *number == 0.0 && !std::signbit(*number) && z.defined() && !z.is_floating_point();
    return repaired("fix", z, f, zero ? at::Scalar(false) : at::Scalar(*number), repair);
  }
  if (const auto* tensor = std::get_if<Tensor>(&options.fallback)) return repaired("fix", z, f, *tensor, repair);
  return repaired("fix", z, f, callable("fix", std::get<std::function<Tensor()>>(options.fallback))(), repair);
}

Tensor flag_nan(const Tensor& z, Location location, const Tensor& f, const ConfigOptions& options) {
  return detected<flag_nan_name>(z, location, f, options);
}

Tensor flag_inf(const Tensor& z, Location location, const Tensor& f, const ConfigOptions& options) {
  return detected<flag_inf_name>(z, location, f, options);
}

Tensor flag_nan_and_inf(const Tensor& z, Location location, const Tensor& f, const ConfigOptions& options) {
  return detected<flag_nan_and_inf_name>(z, location, f, options);
}

Tensor flag_oob_indices(const Tensor& ids, int64_t num_embeddings, Location location, const Tensor& f,
                        const ConfigOptions& options) {
  static const auto op = operation<Tensor(const Tensor&, int64_t, const c10::optional<Tensor>&, int64_t, int64_t,
                                          int64_t, at::ScalarType)>("triage::flag_oob_indices");
  const ErrorConfig& config = chosen(options.config);
  defined("flag_oob_indices", "ids", ids);
  return op.call(ids, num_embeddings, f.defined() ? c10::optional<Tensor>(f) : c10::nullopt, location.id,
                 config.num_slots, config.policy(), config.flag_dtype);
}

}  // namespace triage
