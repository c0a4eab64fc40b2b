#include "bindings/lua/arguments.h"

#include "bindings/lua/numbers/number.h"
#include "bindings/lua/tensors/tensor.h"

#include <triage/error.h>

namespace triage::lua {

void wrong_argument(lua_State* L, const Argument& argument, const char* what) {
  throw InputError(std::string(argument.function) + ": expected " + what + " as `" + argument.name + "`, got " +
                   describe(L, argument.index));
}

const char* text_argument(lua_State* L, const Argument& argument) {
  settle_number(L, argument.index);
  if (!lua_isstring(L, argument.index)) wrong_argument(L, argument, "a string");
  return lua_tostring(L, argument.index);
}

const char* text_argument(lua_State* L, const Argument& argument, const char* otherwise) {
  return lua_isnoneornil(L, argument.index) ? otherwise : text_argument(L, argument);
}

lua_Integer integer_argument(lua_State* L, const Argument& argument) {
  settle_number(L, argument.index);
  int whole = 0;
  const lua_Integer value = lua_tointegerx(L, argument.index, &whole);
  if (!whole) wrong_argument(L, argument, "an integer");
  return value;
}

lua_Integer integer_argument(lua_State* L, const Argument& argument, lua_Integer otherwise) {
  return lua_isnoneornil(L, argument.index) ? otherwise : integer_argument(L, argument);
}

bool boolean_argument(lua_State* L, const Argument& argument) {
  settle_number(L, argument.index);
  if (!lua_isboolean(L, argument.index)) wrong_argument(L, argument, "true or false");
  return lua_toboolean(L, argument.index) != 0;
}

void table_argument(lua_State* L, const Argument& argument) {
  if (!lua_istable(L, argument.index)) wrong_argument(L, argument, "a table");
}

}  // namespace triage::lua
