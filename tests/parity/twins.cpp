// What a C++ host writes for the programs of the table: the same names, arguments in the same order.
#include <ATen/ATen.h>
#include <triage/control_flow.h>
#include <triage/flags.h>

#include "programs.h"

namespace triage::parity {
namespace {

ErrorConfig with(at::ScalarType dtype, int64_t slots) {
  ErrorConfig config;
  config.flag_dtype = dtype;
  config.num_slots = slots;
  return config;
}

PushOptions only(const at::Tensor& mask, std::optional<Severity> severity = {},
                 std::optional<ErrorConfig> config = {}) {
  PushOptions options;
  options.where = mask;
  options.severity = severity;
  options.config = std::move(config);
  return options;
}

SeverityOptions severity(Severity level) { return {level, {}}; }

Tensors fix_in_three_ways(const Tensors& in) {
  const auto &z = in[0], &f = in[1], &y = in[2];
  auto [a, g] = fix(z, f, 1);
  FixOptions to_y;
  to_y.fallback = y;
  auto [b, h] = fix(z, f, 2, to_y);
  FixOptions narrow;
  narrow.fallback = -1.0;
  narrow.codes = {err::nan, err::oob};
  narrow.min_severity = err::error;
  auto [c, k] = fix(z, f, 3, narrow);
  return {a, g, b, h, c, k};
}

/// The flags that guarded tensors carry along, beside their data.
Tensors guarded(const Tensors& in) {
  const at::Tensor &z = in[0], &m = in[2];
  const at::Tensor x = z * 2, f = flag_nan_and_inf(x, 8, in[1]);
  const at::Tensor y = x.flip(0).relu(), g = err::push_scalar(f.flip(0), err::overflow, 77);
  const auto [repaired, h] = fix(at::cat({x, z, y}), at::cat({f, err::new_(z), g}), 9);
  const auto [chosen, k] = IF(m, [&] { return std::pair(x, f); }).ELSE([&] { return std::pair(z, err::new_(z)); });
  return {repaired, h, chosen, k, x.softmax(-1) + y, err::merge({f, g})};
}

Tensors every_carrier(const Tensors& in) {
  Tensors results;
  for (const auto& config :
       {with(at::kLong, 16), with(at::kInt, 5), with(at::kFloat, 3), with(at::kDouble, 9), with(at::kLong, 1)}) {
    PushOptions plain;
    plain.config = config;
    const at::Tensor f = err::push(flag_nan_and_inf(in[0], 4, {}, {config}), in[1], 5, plain);
    results.push_back(err::push(f, err::overflow, 6, only(in[2], {}, config)));
  }
  return results;
}

Tensors recover(const Tensors& in) {
  auto [a, g] = err::recover_with_fallback(in[0], in[1], in[2], 31);
  auto [b, h] = err::recover_with_fallback(in[0], in[1], at::scalar_tensor(4.0, at::kFloat), 32, severity(err::error));
  return {a, g, b, h};
}

Tensors partition(const Tensors& in) {
  auto [good, bad] = err::partition(in[0], in[1]);
  auto [goods, bads] = err::partition_many(in[0], {in[1], in[2]});
  return {good, bad, goods[1], bads[0]};
}

err::Step step(at::Tensor (*fn)(const at::Tensor&), Location location) {
  return [fn, location](const at::Tensor& x) { return std::pair(fn(x), flag_nan_and_inf(fn(x), location)); };
}

}  // namespace

const std::vector<Twin>& twins() {
  using T = Tensors;
  static const std::vector<Twin> list = {
      {"T04 new", [](const T& in) { return T{err::new_(in[0])}; }},
      {"T04 new, other carrier and width", [](const T& in) { return T{err::new_(in[0], {with(at::kFloat, 7)})}; }},
      {"T05 push where", [](const T& in) { return T{err::push(in[0], err::nan, 3, only(in[1]))}; }},
      {"T05 push codes", [](const T& in) { return T{err::push(in[0], in[1], 5)}; }},
      {"T05 push codes where", [](const T& in) { return T{err::push(in[0], in[1], 5, only(in[2], err::warn))}; }},
      {"T05 push scalar",
       [](const T& in) { return T{err::push_scalar(in[0], err::out_of_bounds, 1023, severity(err::critical))}; }},
      {"T06 merge",
       [](const T& in) {
         return T{err::merge({in[0], in[1], in[0]})};
       }},
      {"T07 questions",
       [](const T& in) {
         const auto& f = in[0];
         return T{err::is_ok(f),
                  err::is_err(f),
                  err::all_ok(f),
                  err::any_err(f),
                  err::has_nan(f),
                  err::has_inf(f),
                  err::has_code(f, err::oob),
                  err::has_critical(f),
                  err::has_domain(f, Domain::index),
                  err::has_fallback(f),
                  err::count_errors(f),
                  err::max_severity(f)};
       }},
      {"T08 rows that are fine",
       [](const T& in) {
         return T{err::take_ok(in[0], in[1]), err::take_err(in[0], in[1]), err::get_ok(in[0]), err::get_err(in[0])};
       }},
      {"T08 partition", partition},
      {"T09 take_ok_p",
       [](const T& in) {
         return T{err::take_ok_p(in[0], in[1]), err::take_err_p(in[0], in[1], -1.5), err::take_ok_p(in[0], in[2], 2)};
       }},
      {"T10 first slot",
       [](const T& in) {
         const auto& f = in[0];
         return T{err::get_first_code(f), err::get_first_location(f), err::get_first_severity(f), err::get_slot(f, 1),
                  err::get_slot(f, 15)};
       }},
      {"T10 clear", [](const T& in) { return T{err::clear(in[0], err::nan)}; }},
      {"T11 map_ok and map_err",
       [](const T& in) {
         return T{err::map_ok(in[0], in[1], [](const at::Tensor& x) { return x * 2; }),
                  err::map_err(in[0], in[1], [](const at::Tensor& x) { return at::zeros_like(x); })};
       }},
      {"T11 map_err_flags",
       [](const T& in) {
         return T{err::map_err_flags(in[0], [](const at::Tensor& g) { return err::push(g, err::saturated, 9); })};
       }},
      {"T11 and_then", [](const T& in) { return both(err::and_then(in[0], in[1], step(at::log, 12))); }},
      {"T11 bind", [](const T& in) { return both(err::bind(in[0], in[1], step(at::sqrt, 13))); }},
      {"T11 replace",
       [](const T& in) {
         ReplaceTargets a, b;
         a.nan = a.posinf = b.posinf = b.neginf = true;
         a.values = {-1.0};
         return T{err::replace(in[0], 0.25, a), err::replace(in[1], -7, b)};
       }},
      {"T12 ensure_mask and guard",
       [](const T& in) {
         const at::Tensor g = err::ensure_mask(in[0], in[1], err::saturated, 21);
         const auto fine = [](const at::Tensor& x) { return (x > -0.5).all(-1); };
         return T{err::guard(g, in[2], fine, err::zero_output, 22, severity(err::error))};
       }},
      {"T12 recover_with_fallback", recover},
      {"T15 per sample",
       [](const T& in) {
         const at::Tensor &z = in[0], f = flag_nan_and_inf(z, Location("hidden"));
         const at::Tensor y = IF(err::has_nan(f), [&] {
                                return at::zeros_like(z);
                              }).ELIF(err::has_inf(f), [&] {
                                  return z.nan_to_num(0.0, 1e4, -1e4).clamp(-10, 10);
                                }).ELSE([&] { return z.tanh(); });
         return T{y, f};
       }},
      {"T15 the batch",
       [](const T& in) {
         const auto &z = in[0], &f = in[1];
         return IF(AND(HAS(f), NOT(IS(err::saturated, f))),
                   [&] {
                     return T{z + 1, f};
                   })
             .ELIF(OR(IS(err::inf, f), IS(err::nan, f)),
                   [&] {
                     return T{z + 2, f};
                   })
             .ELSE([&] {
               return T{z, err::push_scalar(f, err::unknown, 0)};
             });
       }},
      {"T15 tables and nesting",
       [](const T& in) {
         const auto &z = in[0], &y = in[1], &m = in[2];
         const auto twice = [&] {
           return IF(err::is_ok(flag_nan(z, 1)), [&] { return z * 2; }).ELSE([&] { return y; });
         };
         const auto [a, b] = IF(m, [&] { return std::pair(z, y); }).ELSE([&] { return std::pair(twice(), y - 1); });
         return T{a, b};
       }},
      {"T15 by element",
       [](const T& in) {
         const auto &z = in[0], &y = in[1], &m = in[2];
         const at::Tensor a = IF(z > 0, [&] { return z.sqrt(); }).ELIF(m, [&] { return z * y; }).ELSE([&] {
           return (y.abs() + 1).log();
         });
         return T{a,
                  WHERE(
                      z.isfinite(), [&] { return z / (z.abs() + 1); }, -1.5),
                  WHERE(m, 2, z)};
       }},
      {"T14 detection",
       [](const T& in) {
         return T{flag_nan(in[0], 1),         flag_inf(in[0], 2),         flag_nan_and_inf(in[0], 3),
                  flag_nan_and_inf(in[1], 4), flag_nan_and_inf(in[2], 5), flag_nan(in[3], 6)};
       }},
      {"T14 detection goes on with flags",
       [](const T& in) { return T{flag_nan_and_inf(in[1], 8, flag_inf(in[0], 7, in[2]))}; }},
      {"T14 indices",
       [](const T& in) {
         return T{flag_oob_indices(in[0], 10, 2), flag_oob_indices(in[0], 3, 4, in[1])};
       }},
      {"T14 find and push",
       [](const T& in) {
         return T{find(in[0], err::inf), push(in[0], err::overflow, 77, only(in[1]))};
       }},
      {"T14 fix", fix_in_three_ways},
      {"T14 guarded tensors", guarded},
      {"T26 every carrier", every_carrier},
  };
  return list;
}

}  // namespace triage::parity
