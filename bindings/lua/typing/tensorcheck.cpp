// One call of a function whose tensors are declared. While capturing, what the checks relied on goes to the recorder:
// sizes become guards on inputs, and a captured graph runs without any check.
#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/typing/typing.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/messages/logs/log.h"

#include <triage/config.h>
#include <triage/error.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triage::lua {
namespace {

using capture::Recorder;

const char plan_metatable = 0, warned = 0;  // their addresses are registry keys

struct Declared {
  lua_Integer position;  // from 1, a parameter `self` not counted
  std::string name;
  TensorSpec spec;
};

/// What tensorcheck was told, read once.
struct TensorCheckPlan {
  std::string function;
  bool takes_self = false;  // the function's first parameter is `self`
  std::vector<Declared> arguments;
  std::optional<std::vector<Declared>> results;
};

constexpr const char* who = "tensorcheck";
constexpr size_t max_declared = 250;  // arguments of a call, and results

[[noreturn]] void raise_failure(lua_State* L, ValidationFailure failure) {
  push_failure(L, std::move(failure));
  lua_error(L);
  std::abort();  // lua_error does not return
}

[[noreturn]] void refuse(lua_State* L, const std::string& parameter, const std::string& expected,
                         const std::string& actual) {
  raise_failure(L, {ValidationKind::invalid_parameter, who, parameter, "", expected, actual,
                    std::string("InvalidParameterError: ") + who + ": `" + parameter + "`: expected " + expected +
                        ", got " + actual});
}

// --- reading the declaration

std::vector<std::string> parameter_names(lua_State* L, int function) {
  std::vector<std::string> names;
  if (!lua_isfunction(L, function) || lua_iscfunction(L, function)) return names;
  push_wrapped(L, function);
  for (int i = 1; const char* name = lua_getlocal(L, nullptr, i); ++i) names.emplace_back(name);
  lua_pop(L, 1);
  return names;
}

std::string function_name(lua_State* L, int function, int options) {
  if (lua_getfield(L, options, "name") == LUA_TSTRING) {
    if (lua_rawlen(L, -1) > max_name)
      refuse(L, "name", "at most " + std::to_string(max_name) + " bytes", describe(L, -1));
    std::string name = lua_tostring(L, -1);
    lua_pop(L, 1);
    return name;
  }
  if (!lua_isnil(L, -1)) refuse(L, "name", "a string", describe(L, -1));
  lua_pop(L, 1);
  if (!lua_isfunction(L, function)) return describe(L, function);
  lua_Debug info;
  push_wrapped(L, function);
  lua_getinfo(L, ">S", &info);
  return info.linedefined > 0 ? std::string(info.short_src) + ":" + std::to_string(info.linedefined) : "function";
}

const TensorSpec& check_spec(lua_State* L, int index, const std::string& parameter) {
  const TensorSpec* spec = test_spec(L, index);
  if (!spec) refuse(L, parameter, "a type such as Tensor(float32_t, {\"N\", 512})", describe(L, index));
  return *spec;
}

/// args = {Tensor(...), ...} in order, or {x = Tensor(...)} by the names of the function's parameters.
std::vector<Declared> read_arguments(lua_State* L, int list, const std::vector<std::string>& names) {
  std::vector<Declared> declared;
  lua_pushnil(L);
  while (lua_next(L, list)) {
    if (lua_type(L, -2) == LUA_TSTRING) {
      const std::string name = lua_tostring(L, -2);
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end())
        refuse(L, "args", "the name of a parameter of the function",
               "'" + name + "'" + did_you_mean(close_words(name, names)));
      declared.push_back({found - names.begin() + 1, name, check_spec(L, -1, "args." + name)});
    } else if (lua_isinteger(L, -2) && lua_tointeger(L, -2) >= 1 &&
               lua_tointeger(L, -2) <= static_cast<lua_Integer>(max_declared)) {
      const lua_Integer position = lua_tointeger(L, -2);
      const bool named = position <= static_cast<lua_Integer>(names.size());
      declared.push_back({position, named ? names[static_cast<size_t>(position - 1)] : std::to_string(position),
                          check_spec(L, -1, "args[" + std::to_string(position) + "]")});
    } else {
      refuse(L, "args", "types by position (1 to " + std::to_string(max_declared) + ") or by the name of a parameter",
             describe(L, -2));
    }
    lua_pop(L, 1);
    if (declared.size() > max_declared) refuse(L, "args", "at most " + std::to_string(max_declared) + " types", "more");
  }
  std::sort(declared.begin(), declared.end(),
            [](const Declared& a, const Declared& b) { return a.position < b.position; });
  return declared;
}

std::vector<Declared> read_results(lua_State* L, int value) {
  if (const TensorSpec* spec = test_spec(L, value)) return {{1, "1", *spec}};
  if (!lua_istable(L, value)) refuse(L, "returns", "a list of types", describe(L, value));
  if (lua_rawlen(L, value) > max_declared)
    refuse(L, "returns", "at most " + std::to_string(max_declared) + " types", describe(L, value));
  std::vector<Declared> declared;
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, value)); ++i) {
    lua_rawgeti(L, value, i);
    declared.push_back({i, std::to_string(i), check_spec(L, -1, "returns[" + std::to_string(i) + "]")});
    lua_pop(L, 1);
  }
  return declared;
}

// --- automatic detection

/// Which operation looks for what `auto_detect` asks; null where nothing is to be looked for.
const char* detector(lua_State* L, int value) {
  constexpr const char* expected = "true, false, or a list of err.NAN and err.INF";
  if (lua_isnil(L, value)) return "flag_nan_and_inf";
  if (lua_isboolean(L, value)) return lua_toboolean(L, value) ? "flag_nan_and_inf" : nullptr;
  if (!lua_istable(L, value)) refuse(L, "auto_detect", expected, describe(L, value));
  lua_pushnil(L);
  if (!lua_next(L, value)) return nullptr;  // an empty list: nothing
  lua_pop(L, 2);
  if (lua_rawlen(L, value) == 0) refuse(L, "auto_detect", expected, describe(L, value));
  bool nan = false, inf = false;
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, value)); ++i) {
    lua_rawgeti(L, value, i);
    const lua_Integer code = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : -1;
    if (code != to_int(err::nan) && code != to_int(err::inf))
      refuse(L, "auto_detect", expected, "a list with " + describe(L, -1));
    (code == to_int(err::nan) ? nan : inf) = true;
    lua_pop(L, 1);
  }
  return nan && inf ? "flag_nan_and_inf" : nan ? "flag_nan" : "flag_inf";
}

/// Whether the samples of `data` are those of `flags`, as far as names tell.
bool may_share_samples(const TensorSpec& data, const TensorSpec& flags) {
  if (data.dims.empty()) return false;
  const auto named = [](const TensorSpec& spec) { return !spec.dims.empty() && spec.dims[0].kind == Dim::Kind::name; };
  return !named(data) || !named(flags) || data.dims[0] == flags.dims[0];
}

/// Pushes the number of the flags result, the detector's name and the numbers of the results it looks at; three nils
/// where nothing is detected.
void push_detection(lua_State* L, const TensorCheckPlan& plan, int auto_detect) {
  const char* name = detector(L, auto_detect);
  std::vector<const Declared*> flags;
  if (plan.results)
    for (const Declared& result : *plan.results)
      if (result.spec.flags) flags.push_back(&result);
  if (name && flags.empty() && !lua_isnil(L, auto_detect))
    refuse(L, "auto_detect", "a result declared with error_t to record into", plan.results ? "none" : "no `returns`");
  if (name && flags.size() > 1)
    refuse(L, "returns", "one result declared with error_t, or auto_detect = false", std::to_string(flags.size()));
  if (!name || flags.empty()) {
    lua_settop(L, lua_gettop(L) + 3);
    return;
  }
  lua_pushinteger(L, flags[0]->position);
  lua_pushstring(L, name);
  lua_newtable(L);
  for (const Declared& result : *plan.results) {
    const bool holds = result.spec.kind == DTypeKind::exact
                           ? at::isFloatingType(result.spec.dtype) || at::isComplexType(result.spec.dtype)
                           : result.spec.kind != DTypeKind::integer;
    if (result.spec.flags || !holds || !may_share_samples(result.spec, flags[0]->spec)) continue;
    lua_pushinteger(L, result.position);
    lua_rawseti(L, -2, static_cast<lua_Integer>(lua_rawlen(L, -2)) + 1);
  }
}

TensorCheckPlan* test_plan(lua_State* L, int index) {
  return test_userdata<TensorCheckPlan>(L, index, &plan_metatable);
}

/// core.typing_plan(fn, options) -> plan, number of the flags result, detector, results it looks at
int typing_plan(lua_State* L) {
  lua_settop(L, 2);
  TensorCheckPlan plan;
  plan.function = function_name(L, 1, 2);
  std::vector<std::string> names = parameter_names(L, 1);
  plan.takes_self = !names.empty() && names[0] == "self";
  if (plan.takes_self) names.erase(names.begin());
  if (lua_getfield(L, 2, "args") == LUA_TTABLE)
    plan.arguments = read_arguments(L, lua_gettop(L), names);
  else if (!lua_isnil(L, -1))
    refuse(L, "args", "a table of types", describe(L, -1));
  if (lua_getfield(L, 2, "returns") != LUA_TNIL) plan.results = read_results(L, lua_gettop(L));
  lua_getfield(L, 2, "auto_detect");
  const int auto_detect = lua_gettop(L);
  size_t behind = 0;
  for (const auto* declared : {&plan.arguments, plan.results ? &*plan.results : nullptr})
    if (declared)
      for (const Declared& one : *declared) behind += sizeof one + bytes_behind(one.spec);
  push_userdata(L, plan, &plan_metatable, behind);
  push_detection(L, plan, auto_detect);
  return 4;
}

// --- the call

/// A malformed flags tensor that is let pass is told of once for each place of a function and kind of fault.
void warn_once(lua_State* L, const ValidationFailure& failure) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &warned) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &warned);
  }
  const std::string key = failure.message.substr(0, failure.message.find(": expected "));
  const bool known = lua_getfield(L, -1, key.c_str()) != LUA_TNIL;
  lua_pop(L, 1);
  lua_pushboolean(L, 1);
  lua_setfield(L, -2, key.c_str());
  lua_pop(L, 1);
  if (!known && may_show(context(L), failure.message.size()))
    messages::warn(failure.message +
                   " (nothing is detected automatically in this call; with strict_validation this is an error)");
}

/// The checks of one call. `self` is a stack index, 0 for none.
class CheckedCall {
 public:
  CheckedCall(lua_State* L, const TensorCheckPlan& plan, int self, const ErrorConfig& config)
      : L_(L),
        plan_(plan),
        strict_(config.strict_validation),
        matcher_(
            plan.function, [L, self](const std::string& name) { return attribute(L, self, name); }, config.num_slots) {}

  void arguments(int first) {
    match_all(plan_.arguments, Subject::Role::argument, first);
    report();
  }

  void results(int first, int count) {
    if (!plan_.results) return;
    const auto declared = static_cast<int64_t>(plan_.results->size());
    if (count != declared)
      fail({ValidationKind::invalid_return, plan_.function, "", "", declared, int64_t{count},
            "InvalidReturnTypeError: " + plan_.function + ": expected " + std::to_string(declared) +
                (declared == 1 ? " result" : " results") + ", as `returns` declares, got " + std::to_string(count)});
    match_all(*plan_.results, Subject::Role::result, first);
    report();
  }

  bool flags_fit() const { return flags_fit_; }

 private:
  static std::variant<int64_t, std::string> attribute(lua_State* L, int self, const std::string& name) {
    if (self == 0) return "no `self`; give one: tensorcheck(fn, {self = module})";
    lua_getfield(L, self, name.c_str());
    std::variant<int64_t, std::string> found = describe(L, -1);
    if (lua_isinteger(L, -1)) found = static_cast<int64_t>(lua_tointeger(L, -1));
    lua_pop(L, 1);
    return found;
  }

  /// Flags last: where they disagree with data on a size, it is they who are malformed.
  void match_all(const std::vector<Declared>& all, Subject::Role role, int first) {
    for (const bool flags : {false, true}) {
      for (const Declared& declared : all) {
        if (declared.spec.flags != flags) continue;
        const int index = first + static_cast<int>(declared.position) - 1;
        const Subject subject{role, declared.name};
        const bool given = index <= lua_gettop(L_);
        if (!given || !test_tensor(L_, index)) fail_type(declared, subject, given ? describe(L_, index) : "nothing");
        match(index, declared.spec, subject);
      }
    }
  }

  void match(int index, const TensorSpec& spec, const Subject& subject) {
    if (Recorder* recorder = Recorder::current(); recorder && spec.requires_grad)
      recorder->read_requires_grad(*test_tensor(L_, index));
    const at::Tensor tensor = *test_tensor(L_, index);  // which a break changes
    auto failure = matcher_.match(tensor, spec, subject);
    if (!failure) return;
    if (failure->kind != ValidationKind::validation || strict_) fail(std::move(*failure));
    flags_fit_ = false;
    warn_once(L_, *failure);
  }

  [[noreturn]] void fail_type(const Declared& declared, const Subject& subject, const std::string& got) {
    const bool result = subject.role == Subject::Role::result;
    const ValidationKind kind = result ? ValidationKind::type : ValidationKind::invalid_parameter;
    fail({kind, plan_.function, subject.parameter(), "", declared.spec.text(), got,
          std::string(to_string(kind)) + ": " + plan_.function + ": " + subject.text() + ": expected " +
              declared.spec.text() + ", got " + got});
  }

  /// The script may catch it: what made the check fail is relied on, too.
  [[noreturn]] void fail(ValidationFailure failure) {
    report();
    raise_failure(L_, std::move(failure));
  }

  void report() {
    const auto& facts = matcher_.facts();
    if (Recorder* recorder = Recorder::current())
      recorder->sizes().rely_on({facts.begin() + static_cast<std::ptrdiff_t>(reported_), facts.end()});
    reported_ = facts.size();
  }

  lua_State* L_;
  const TensorCheckPlan& plan_;
  bool strict_;
  bool flags_fit_ = true;
  TensorMatcher matcher_;
  size_t reported_ = 0;
};

/// core.checked_call(plan, self, config, fn, ...) -> whether flags may be recorded in, results...
int checked_call(lua_State* L) {
  const TensorCheckPlan* plan = test_plan(L, 1);
  if (!plan) throw InputError("tensorcheck: no plan");
  constexpr int self = 2, config = 3, function = 4, first = 5;
  const int object = !lua_isnil(L, self) ? self : plan->takes_self && lua_gettop(L) >= first ? first : 0;
  CheckedCall call(L, *plan, object, error_config(L, config));
  call.arguments(first + (plan->takes_self ? 1 : 0));
  const int top = lua_gettop(L), given = top - function;
  reserve(L, static_cast<size_t>(given), "too many arguments");
  for (int i = function; i <= top; ++i) lua_pushvalue(L, i);
  call_for_all(L, given);
  const int count = lua_gettop(L) - top;
  call.results(top + 1, count);
  lua_pushboolean(L, call.flags_fit());
  lua_insert(L, top + 1);
  return count + 1;
}

int takes_self(lua_State* L) {
  const TensorCheckPlan* plan = test_plan(L, 1);
  lua_pushboolean(L, plan && plan->takes_self);
  return 1;
}

}  // namespace

void add_tensorcheck(lua_State* L) {
  static const luaL_Reg finalizer[] = {{"__gc", guarded<free_userdata<TensorCheckPlan, plan_metatable>>},
                                       {nullptr, nullptr}};
  make_metatable(L, &plan_metatable, "tensorcheck", finalizer);
  static const luaL_Reg functions[] = {{"typing_plan", guarded<typing_plan>},
                                       {"checked_call", guarded<checked_call>},
                                       {"takes_self", guarded<takes_self>},
                                       {nullptr, nullptr}};
  luaL_setfuncs(L, functions, 0);
}

}  // namespace triage::lua
