#pragma once
#include <triage/error.h>

#include <lua.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

/// Arguments of functions of C++ as scripts give them. A wrong one is an InputError that says whose it is, as those of
/// the prelude do (scripts/prelude/arguments.lua): "triage.set_stance: expected a string as `name`, got int 3";
/// `guarded` puts the script's line before it. luaL_check* would name the function by the variable that it was called
/// through.
namespace triage::lua {

struct Argument {
  int index;             // on the stack
  const char* function;  // as scripts write it: "triage.set_stance"
  const char* name;      // of the parameter, as the reference has it
};

/// Raises "`function`: expected `what` as `name`, got ...".
[[noreturn]] void wrong_argument(lua_State* L, const Argument& argument, const char* what);

/// Strings and numbers, as Lua has it. The text lives as long as the value is on the stack.
const char* text_argument(lua_State* L, const Argument& argument);
/// The same, where nil and nothing are `otherwise`.
const char* text_argument(lua_State* L, const Argument& argument, const char* otherwise);
lua_Integer integer_argument(lua_State* L, const Argument& argument);
lua_Integer integer_argument(lua_State* L, const Argument& argument, lua_Integer otherwise);
bool boolean_argument(lua_State* L, const Argument& argument);
/// Leaves the table where it is.
void table_argument(lua_State* L, const Argument& argument);

/// A function, or what can be called like one, such as a module; else raises "`who`: expected a function, got ...".
void check_callable(lua_State* L, int index, const char* who);

/// What `action` gives. Its errors are those of `function`: they say so first, where they do not yet.
template <typename Action>
auto on_behalf_of(const char* function, const Action& action) {
  const auto named = [function](const char* text) {
    const std::string prefix = std::string(function) + ": ", all = text;
    return all.compare(0, prefix.size(), prefix) == 0 ? all : prefix + all;
  };
  try {
    return action();
  } catch (const FileError& error) {
    throw FileError(named(error.what()));
  } catch (const ConfigError& error) {
    throw ConfigError(named(error.what()));
  } catch (const InputError& error) {
    throw InputError(named(error.what()));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(named(error.what()));
  }
}

// Arguments that a function does not take: Lua drops them, and what was meant would be silently ignored.

/// Refuses arguments beyond `most`, of which a method's self is one: they would be ignored, and options among them. nil
/// is none.
void at_most(lua_State* L, int most, const char* function);

/// A function that refuses more arguments than it takes, for which it is registered so.
struct LimitedFunction {
  const char* name;
  lua_CFunction function;
  int most;
};
void push_limited(lua_State* L, const char* name, lua_CFunction function, int most);
/// luaL_setfuncs for such: `prefix` and the name are what messages call them.
void set_limited(lua_State* L, const char* prefix, const LimitedFunction* functions, size_t count);
template <size_t count>
void set_limited(lua_State* L, const char* prefix, const LimitedFunction (&functions)[count]) {
  set_limited(L, prefix, functions, count);
}

}  // namespace triage::lua
