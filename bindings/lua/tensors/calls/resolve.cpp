#include "bindings/lua/tensors/calls/resolve.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"

#include <algorithm>

namespace triage::lua {
namespace {

constexpr size_t max_options = 64;
constexpr size_t max_listed = 12;

/// 0: no string keys; 1: only string keys; 2: both.
int string_keys(lua_State* L, int index) {
  bool strings = false, others = false;
  lua_pushnil(L);
  while (lua_next(L, index)) {
    lua_pop(L, 1);
    (lua_type(L, -1) == LUA_TSTRING ? strings : others) = true;
  }
  return strings ? (others ? 2 : 1) : 0;
}

bool names_param(const std::string& option, const OverloadParam& param) {
  if (option == param.name) return true;
  if (option == "axis") return param.name == "dim";
  if (option == "keepdims") return param.name == "keepdim";
  return option == "input" && param.name == "self";
}

/// Assigns values to parameters and sums up how well they fit. A class because the steps share so much.
class Binder {
 public:
  Binder(lua_State* L, const Overload& overload, const Arguments& arguments, ArgumentBinding& binding, std::string* why)
      : L_(L), overload_(overload), arguments_(arguments), binding_(binding), why_(why) {}

  /// How close the overload is: twice the number of values that were placed before one did not fit, and one more when
  /// it was of a wrong type rather than one too many.
  int closeness() const { return 2 * placed_ + (misfit_ ? 1 : 0); }
  /// The parameter whose value is of a wrong type, and the value; null where it failed otherwise.
  const OverloadParam* misfit_param() const { return misfit_; }
  int misfit_index() const { return misfit_index_; }

  bool bind() {
    binding_ = ArgumentBinding();
    binding_.slots.assign(overload_.params.size(), 0);
    return out_fits() && positions_fit() && options_fit() && nothing_missing() && has_a_tensor();
  }

 private:
  bool fail(const std::string& reason) {
    if (why_) *why_ = reason;
    return false;
  }

  bool fail_type(const OverloadParam& param, int index) {
    misfit_ = &param;
    misfit_index_ = index;
    return fail(why_ ? "argument '" + param.name + "': " + misfit(L_, index, {&param}) : "");
  }

  bool place(size_t position, int index) {
    const OverloadParam& param = overload_.params[position];
    int cost = fit(L_, index, param);
    if (cost == no_fit) return fail_type(param, index);
    binding_.cost += cost;
    binding_.slots[position] = index;
    ++placed_;
    return true;
  }

  bool out_fits() {
    if (arguments_.out.empty()) return !overload_.writes_out || fail("it needs the option 'out'");
    size_t next = 0;
    for (size_t i = 0; i < overload_.params.size(); ++i)
      if (overload_.params[i].out) {
        if (next == arguments_.out.size()) return fail("option 'out' holds too few tensors");
        if (!place(i, arguments_.out[next++])) return false;
      }
    if (next == 0) return fail("it has no form that takes 'out'");
    return next == arguments_.out.size() || fail("option 'out' holds too many tensors");
  }

  /// The parameter of the k-th positional value: `self` comes first in a method call, wherever the schema has it.
  int param_at(int k) const {
    if (!arguments_.method || overload_.self <= 0) return k;
    if (k == 0) return overload_.self;
    return k <= overload_.self ? k - 1 : k;
  }

  /// The parameter that may take the rest of the positions as its list: the last positional one.
  int gathering_param() const {
    int last = overload_.positional - 1;
    if (last < 0 || arguments_.exact) return -1;
    ParamKind kind = overload_.params[static_cast<size_t>(last)].kind;
    return kind == ParamKind::integers || kind == ParamKind::tensors ? last : -1;
  }

  bool gathers(int k) const {
    int param = param_at(k);
    if (param != gathering_param()) return false;
    int count = static_cast<int>(arguments_.positions.size()) - k;
    const OverloadParam& list = overload_.params[static_cast<size_t>(param)];
    if (count == 1 && (list.length > 0 || list.kind == ParamKind::tensors))
      return false;  // fits as it is, or not at all
    for (int i = k; i < k + count; ++i) {
      int index = arguments_.positions[static_cast<size_t>(i)];
      if (list.kind == ParamKind::tensors ? !test_tensor(L_, index) : fit_integer(L_, index) == no_fit) return false;
    }
    return true;
  }

  /// Of positions that begin like a list and do not go on as one (`torch.zeros(2, "x")`): the first that breaks off.
  int wrong_element(int k) const {
    if (param_at(k) != gathering_param() || fit_integer(L_, arguments_.positions[static_cast<size_t>(k)]) == no_fit)
      return 0;
    for (size_t i = static_cast<size_t>(k); i < arguments_.positions.size(); ++i)
      if (fit_integer(L_, arguments_.positions[i]) == no_fit) return arguments_.positions[i];
    return 0;
  }

  bool positions_fit() {
    int count = static_cast<int>(arguments_.positions.size());
    for (int k = 0; k < count; ++k) {
      bool last_empty = arguments_.empty_table && k + 1 == count;
      if (gathers(k)) {
        binding_.gathered = param_at(k);
        binding_.rest.assign(arguments_.positions.begin() + k, arguments_.positions.end());
        int cost = 0;
        if (overload_.params[static_cast<size_t>(binding_.gathered)].kind == ParamKind::integers)
          for (const int index : binding_.rest) cost = std::max(cost, fit_integer(L_, index));
        binding_.cost += 1 + cost;
        placed_ += count - k;
        return true;
      }
      const int limit = arguments_.exact ? static_cast<int>(overload_.params.size()) : overload_.positional;
      if (k >= limit) {
        if (last_empty) return true;
        return fail("it takes " + std::to_string(limit) + " argument" + (limit == 1 ? "" : "s") + " by position, but " +
                    std::to_string(count) + " were given");
      }
      auto position = static_cast<size_t>(param_at(k));
      if (int wrong = wrong_element(k)) {
        element_.name = overload_.params[position].name;
        element_.kind = ParamKind::integer;
        return fail_type(element_, wrong);
      }
      bool is_list = overload_.params[position].kind >= ParamKind::tensors;
      if (last_empty && !is_list) return true;  // no options
      if (!place(position, arguments_.positions[static_cast<size_t>(k)])) return false;
    }
    return true;
  }

  bool options_fit() {
    for (const auto& [key, index] : arguments_.options) {
      if (key == "requires_grad" && overload_.creates) {
        specialize_number(L_, index);
        if (lua_type(L_, index) != LUA_TBOOLEAN)
          return fail("argument 'requires_grad': expected boolean, got " + describe(L_, index));
        binding_.requires_grad = lua_toboolean(L_, index);
        continue;
      }
      size_t i = 0;
      while (i < overload_.params.size() && !names_param(key, overload_.params[i])) ++i;
      if (i == overload_.params.size()) return fail("unknown option '" + key + "'");
      if (binding_.slots[i] != 0 || static_cast<int>(i) == binding_.gathered)
        return fail("argument '" + overload_.params[i].name + "' is given twice, by position and as an option");
      if (!place(i, index)) return false;
    }
    return true;
  }

  bool nothing_missing() {
    for (size_t i = 0; i < overload_.params.size(); ++i) {
      const OverloadParam& param = overload_.params[i];
      if (binding_.slots[i] != 0 || static_cast<int>(i) == binding_.gathered || param.has_default) continue;
      if (!param.optional) return fail("argument '" + param.name + "' (" + type_name(param) + ") is missing");
      binding_.cost += cost_of_missing;  // None, as in Python where the parser has a default the schema lacks
    }
    return true;
  }

  /// A number stands for a tensor only beside a real one.
  bool has_a_tensor() {
    bool wrapped = false;
    for (size_t i = 0; i < overload_.params.size(); ++i) {
      if (overload_.params[i].kind != ParamKind::tensor || binding_.slots[i] == 0) continue;
      if (test_tensor(L_, binding_.slots[i])) return true;
      int type = lua_type(L_, binding_.slots[i]);
      wrapped |= type == LUA_TNUMBER || type == LUA_TBOOLEAN || test_symbolic(L_, binding_.slots[i]);
    }
    return !wrapped || fail("argument 'self': expected Tensor, got only numbers");
  }

  lua_State* L_;
  const Overload& overload_;
  const Arguments& arguments_;
  ArgumentBinding& binding_;
  std::string* why_;
  int placed_ = 0;
  OverloadParam element_;
  const OverloadParam* misfit_ = nullptr;
  int misfit_index_ = 0;
};

/// Option names that none of the overloads knows.
std::string unknown_options(const Operator& op, const Arguments& arguments) {
  std::vector<std::string> known;
  bool creates = false;
  for (const Overload& overload : op.overloads) {
    creates |= overload.creates;
    for (const OverloadParam& param : overload.params) known.push_back(param.out ? "out" : param.name);
  }
  if (creates) known.push_back("requires_grad");
  std::string text;
  for (const auto& [key, index] : arguments.options) {
    (void)index;
    OverloadParam param;
    bool found = std::any_of(known.begin(), known.end(), [&, option = key](const std::string& name) {
      param.name = name;
      return names_param(option, param);
    });
    if (!found)
      text += (text.empty() ? "" : "; ") + ("unknown option '" + key + "'") + did_you_mean(close_words(key, known));
  }
  return text;
}

/// What did not fit, said for the overloads that come closest.
std::string closest_reason(lua_State* L, const Operator& op, const Arguments& arguments) {
  std::string reason =
      arguments.out.empty() ? "it must be called with the option 'out'" : "it has no form that takes 'out'";
  std::vector<OverloadParam> wanted;
  int closest = -1, wrong = 0;
  for (const Overload& overload : op.overloads) {
    if (overload.writes_out == arguments.out.empty() || !may_call(L, overload)) continue;
    ArgumentBinding binding;
    std::string why;
    Binder binder(L, overload, arguments, binding, &why);
    binder.bind();
    if (binder.closeness() > closest) {
      closest = binder.closeness();
      reason = why;
      wrong = binder.misfit_index();
      wanted.clear();
    }
    bool same = binder.misfit_param() && binder.closeness() == closest && binder.misfit_index() == wrong;
    if (same && (wanted.empty() || wanted[0].name == binder.misfit_param()->name))
      wanted.push_back(*binder.misfit_param());
  }
  std::vector<const OverloadParam*> params;
  for (const OverloadParam& param : wanted) params.push_back(&param);
  return wanted.empty() ? reason : "argument '" + wanted[0].name + "': " + misfit(L, wrong, params);
}

[[noreturn]] void explain(lua_State* L, const Operator& op, const Arguments& arguments, const std::string& name) {
  if (arguments.method && (arguments.positions.empty() || !test_tensor(L, arguments.positions[0])))
    refuse_without_tensor(L, arguments.positions.empty() ? 0 : arguments.positions[0], op.base().c_str());
  std::string unknown = unknown_options(op, arguments);
  std::string text = name + ": " + (unknown.empty() ? closest_reason(L, op, arguments) : unknown);
  std::vector<const Overload*> listed;
  for (const Overload& overload : op.overloads)
    if ((!overload.writes_out || !arguments.out.empty()) && may_call(L, overload)) listed.push_back(&overload);
  if (listed.size() > 1) text += "\n  overloads:";
  for (size_t i = 0; i < listed.size(); ++i) {
    if (i == max_listed) {
      text += "\n    ... and " + std::to_string(listed.size() - i) + " more";
      break;
    }
    text += (listed.size() > 1 ? "\n    " : "\n  ") + listed[i]->signature();
  }
  throw std::invalid_argument(text);
}

/// Pushes the tensors of the option `out`, the list at `list`, and puts where they stand into `places`.
void push_out(lua_State* L, int list, const std::string& name, std::vector<int>& places) {
  const size_t count = lua_rawlen(L, list);
  if (count > max_options)
    throw std::invalid_argument(name + ": option 'out' holds " + std::to_string(count) +
                                " tensors; no operator has more than " + std::to_string(max_options) + " results");
  reserve(L, count, "too many options");
  for (size_t i = 1; i <= count; ++i) {
    lua_rawgeti(L, list, static_cast<lua_Integer>(i));
    places.push_back(lua_gettop(L));
  }
}

}  // namespace

Arguments Arguments::positional(int first, int count) {
  Arguments arguments;
  for (int i = 0; i < count; ++i) arguments.positions.push_back(first + i);
  return arguments;
}

Arguments Arguments::parse(lua_State* L, int first, int count, bool method, const std::string& name) {
  Arguments arguments = positional(first, count);
  arguments.method = method;
  int last = first + count - 1;
  if (count == 0 || lua_type(L, last) != LUA_TTABLE) return arguments;
  int keys = string_keys(L, last);
  if (keys == 2)
    throw std::invalid_argument(
        name + ": the last table mixes options with list elements; give the list and the options as two tables");
  arguments.empty_table = keys == 0 && lua_rawlen(L, last) == 0;
  if (keys == 0) return arguments;
  arguments.positions.pop_back();
  lua_pushnil(L);
  while (lua_next(L, last)) {
    std::string key = lua_tostring(L, -2);
    if (arguments.options.size() >= max_options)
      throw std::invalid_argument(name + ": more than " + std::to_string(max_options) + " options");
    if (key != "out") {
      arguments.options.emplace_back(key, lua_gettop(L));
    } else if (lua_type(L, -1) == LUA_TTABLE) {
      push_out(L, lua_gettop(L), name, arguments.out);
    } else {
      arguments.out.push_back(lua_gettop(L));
    }
    reserve(L, 0, "too many options");
    lua_pushlstring(L, key.data(), key.size());  // lua_next wants the key on top; the values stay below it
  }
  return arguments;
}

bool bind_arguments(lua_State* L, const Overload& overload, const Arguments& arguments, ArgumentBinding& binding,
                    std::string* why) {
  return Binder(L, overload, arguments, binding, why).bind();
}

const Overload& resolve(lua_State* L, const Operator& op, const Arguments& arguments, ArgumentBinding& binding,
                        const std::string& name) {
  const Overload* best = nullptr;
  ArgumentBinding candidate;
  for (const Overload& overload : op.overloads) {
    if (overload.writes_out == arguments.out.empty() || !may_call(L, overload)) continue;
    if (!bind_arguments(L, overload, arguments, candidate, nullptr)) continue;
    if (best && candidate.cost >= binding.cost) continue;
    best = &overload;
    binding = candidate;
    if (binding.cost == 0) break;
  }
  if (!best) explain(L, op, arguments, name);
  return *best;
}

}  // namespace triage::lua
