#include "bindings/lua/engine/policies/policy_ranges.h"

#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/describe.h"
#include "runtime/diagnose/isolation/poison.h"
#include "runtime/policy/params/param_values.h"
#include "runtime/policy/ranges/violations.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace triage::lua {
namespace {

constexpr std::array<std::string_view, 4> range_fields = {"name", "finite", "min", "max"};

void check_range_fields(lua_State* L, const std::string& where) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    const bool is_text = lua_type(L, -2) == LUA_TSTRING;
    const std::string key = is_text ? lua_tostring(L, -2) : "";
    if (std::find(range_fields.begin(), range_fields.end(), key) != range_fields.end()) continue;
    throw LoadError(
        where + ": " +
        (is_text ? "there is no field '" + key + "'" +
                       did_you_mean(close_words(key, {range_fields.begin(), range_fields.end()})) +
                       " (fields: name, finite, min, max)"
                 : "expected named fields, as in { name = \"z\", finite = true }, got the key " + describe(L, -2)));
  }
}

std::optional<c10::Scalar> read_bound(lua_State* L, const std::string& where, const char* field) {
  std::optional<c10::Scalar> bound;
  if (push_own_field(L, -1, field) != LUA_TNIL) {
    if (lua_type(L, -1) != LUA_TNUMBER || std::isnan(lua_tonumber(L, -1)))
      throw LoadError(fmt::format("{}: field '{}': expected a number, got {}", where, field, describe(L, -1)));
    if (lua_isinteger(L, -1))
      bound = static_cast<int64_t>(lua_tointeger(L, -1));
    else
      bound = static_cast<double>(lua_tonumber(L, -1));
  }
  lua_pop(L, 1);
  return bound;
}

bool read_finite(lua_State* L, const std::string& where) {
  if (const int type = push_own_field(L, -1, "finite"); type != LUA_TNIL && type != LUA_TBOOLEAN)
    throw LoadError(fmt::format("{}: field 'finite': expected true or false, got {}", where, describe(L, -1)));
  const bool finite = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return finite;
}

using Bounds = std::pair<std::optional<c10::Scalar>, std::optional<c10::Scalar>>;

/// Whole numbers as int64; what none of them is beyond is no bound.
Bounds whole_bounds_of(const OutputRange& range) {
  const auto as_whole = [](const std::optional<c10::Scalar>& bound, bool is_lower) -> std::optional<c10::Scalar> {
    if (!bound || bound->isIntegral(false)) return bound;
    const double number = is_lower ? std::ceil(bound->toDouble()) : std::floor(bound->toDouble());
    if (std::abs(number) < 0x1p63) return static_cast<int64_t>(number);
    if ((number < 0) == is_lower) return std::nullopt;
    return is_lower ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
  };
  return {as_whole(range.min, true), as_whole(range.max, false)};
}

/// Numbers of this floating dtype. A finite bound beyond the last of them still keeps Inf out.
Bounds bounds_of(const OutputRange& range, at::ScalarType dtype) {
  const double last = diagnose::largest_of(dtype);
  const auto held = [&](const std::optional<c10::Scalar>& bound, double end) -> std::optional<c10::Scalar> {
    if (!bound) return range.finite ? std::optional<c10::Scalar>(end) : std::nullopt;
    const double number = bound->toDouble();
    return range.finite || std::isfinite(number) ? c10::Scalar(std::clamp(number, -last, last)) : *bound;
  };
  return {held(range.min, -last), held(range.max, last)};
}

class Masks {
 public:
  Masks(lua_State* L, const std::string& output) : L_(L), output_(output) {}

  at::Tensor mask(at::Tensor z, const OutputRange& range) const {
    if (z.layout() != c10::kStrided) refuse("is a sparse tensor; return a dense one");
    if (z.dim() == 0) z = run_for_tensor(L_, "aten::unsqueeze", "", {z, int64_t{0}});
    const bool bounded = range.min || range.max;
    if (!z.is_complex()) return bounded ? outside(z, range) : not_finite(z);
    if (bounded) refuse("has complex numbers, which are in no order; declare it finite only");
    return not_finite(run_for_tensor(L_, "aten::view_as_real", "", {z}));
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw PolicyError(fmt::format("the output '{}' has a declared range, and {}", output_, what));
  }

  /// What detection of NaN and Inf does in a loop over the rows, of one bit a row.
  at::Tensor not_finite(const at::Tensor& z) const {
    const at::Tensor record =
        run_for_tensor(L_, "triage::flag_nan_and_inf", "",
                       {z, c10::IValue(), int64_t{0}, int64_t{1}, int64_t{0}, static_cast<int64_t>(at::kInt)});
    return run_for_tensor(L_, "triage::is_err", "", {record});
  }

  /// A search for what is not within the bounds: in a loop one pass at most, that nothing is kept for.
  at::Tensor outside(at::Tensor z, const OutputRange& range) const {
    const bool is_whole = at::isIntegralType(z.scalar_type(), /*includeBool=*/true);
    // A bound would become a number of the dtype, in which it may be another one.
    if (is_whole)
      z = run_for_tensor(L_, "aten::to", "dtype", {z, static_cast<int64_t>(at::kLong), false, false, c10::IValue()});
    const auto [low, high] = is_whole ? whole_bounds_of(range) : bounds_of(range, z.scalar_type());
    if (!low && !high) return not_finite(z);
    at::Tensor inside;
    if (low) inside = run_for_tensor(L_, "aten::ge", "Scalar", {z, *low});
    if (high) {
      const at::Tensor below = run_for_tensor(L_, "aten::le", "Scalar", {z, *high});
      inside = inside.defined() ? run_for_tensor(L_, "aten::logical_and", "", {inside, below}) : below;
    }
    return any_of_row(run_for_tensor(L_, "aten::logical_not", "", {inside}));
  }

  at::Tensor any_of_row(at::Tensor condition) const {
    if (condition.dim() > 2)
      condition = run_for_tensor(L_, "aten::flatten", "using_ints", {condition, int64_t{1}, int64_t{-1}});
    if (condition.dim() == 1) return condition;
    return run_for_tensor(L_, "aten::any", "dim", {condition, int64_t{1}, false});
  }

  lua_State* const L_;
  const std::string& output_;
};

}  // namespace

std::optional<OutputRange> read_range(lua_State* L, const std::string& where) {
  check_range_fields(L, where);
  OutputRange range;
  range.finite = read_finite(L, where);
  range.min = read_bound(L, where, "min");
  range.max = read_bound(L, where, "max");
  if (range.min && range.max && range.min->toDouble() > range.max->toDouble())
    throw LoadError(fmt::format("{}: field 'min': {} is above the field 'max', {}", where,
                                policy::number_text(*range.min), policy::number_text(*range.max)));
  push_own_field(L, -1, "name");
  lua_replace(L, -2);
  return range.finite || range.min || range.max ? std::optional(range) : std::nullopt;
}

void check_on_violation(OnViolation on_violation, const Signature& signature) {
  if (signature.num_ranges() == 0)
    throw LoadError(
        "policy: field 'on_violation': no output has a range that could be violated; declare one, as in outputs = { { "
        "name = \"z\", finite = true } }");
  if (on_violation != OnViolation::pass_through) return;
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (signature.output_ranges[i] && !policy::input_named(signature, i))
      throw LoadError(fmt::format(
          "policy: field 'on_violation': \"pass_through\" returns the input of an output's name, and there is no input "
          "'{0}'; rename the output or the input, declare no range for '{0}', or write \"flag\" or \"revert\"",
          signature.outputs[i]));
}

void append_masks(lua_State* L, const Signature& signature, std::vector<at::Tensor>& results) {
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (const auto& range = signature.output_ranges[i])
      results.push_back(Masks(L, signature.outputs[i]).mask(results[i], *range));
}

}  // namespace triage::lua
