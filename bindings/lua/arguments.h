#pragma once
#include <triage/error.h>

#include <lua.hpp>

#include <stdexcept>
#include <string>

/// Arguments of functions of C++ as scripts give them. A wrong one is an InputError that says whose it is, as those of the
/// prelude do (scripts/prelude/arguments.lua): "triage.set_stance: expected a string as `name`, got int 3"; `guarded` puts
/// the script's line before it. luaL_check* would name the function by the variable that it was called through.
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

}  // namespace triage::lua
