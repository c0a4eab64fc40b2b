#include "bindings/lua/values/describe.h"

#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"

#include <sstream>

namespace triage::lua {
namespace {

std::string describe_number(lua_State* L, int index) {
  std::string text = lua_isinteger(L, index) ? "int " : "float ";
  lua_pushvalue(L, index);  // lua_tostring changes the value in place
  text += lua_tostring(L, -1);
  lua_pop(L, 1);
  return text;
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  std::string text = "Tensor " + dtype_name(tensor.scalar_type()).substr(6) + "[";
  for (int64_t i = 0; i < tensor.dim(); ++i) text += (i ? ", " : "") + std::to_string(tensor.size(i));
  return text + "]";
}

std::string describe(lua_State* L, int index) {
  if (const at::Tensor* tensor = test_tensor(L, index)) return describe(*tensor);
  if (is_closed_tensor(L, index)) return "a closed tensor";
  if (is_guarded(L, index)) {
    push_data(L, index);
    const std::string text = "guarded " + describe(L, -1);
    lua_pop(L, 1);
    return text;
  }
  if (const at::Tensor* number =
          test_symbolic(L, index)) {  // in words, as the plain value that the script takes it for
    push_scalar(L, number->item());
    const std::string text = describe(L, -1);
    lua_pop(L, 1);
    return text;
  }
  if (const TorchConstant* constant = test_constant(L, index)) return constant_name(*constant);
  switch (lua_type(L, index)) {
    case LUA_TNONE:
      return "nothing";
    case LUA_TNIL:
      return "nil";
    case LUA_TBOOLEAN:
      return lua_toboolean(L, index) ? "boolean true" : "boolean false";
    case LUA_TNUMBER:
      return describe_number(L, index);
    case LUA_TSTRING: {
      std::string text = lua_tostring(L, index);
      return "string \"" + (text.size() > 40 ? text.substr(0, 40) + "..." : text) + '"';
    }
    case LUA_TTABLE: {
      const std::string fields = fields_text(L, index);
      const auto length = lua_rawlen(L, index);
      if (fields.empty() && length == 0) return "an empty table";
      if (fields.empty() || length > 0)
        return "table of " + std::to_string(length) + (fields.empty() ? "" : " and " + fields);
      return "table " + fields;
    }
    default:
      return luaL_typename(L, index);
  }
}

namespace {

/// Of a constructor that scripts/prelude/nn_build.lua makes of a row: "in_features, out_features, bias". Empty: it is
/// none.
std::string names_of_row(lua_State* L, int function) {
  std::string names;
  for (int i = 1; lua_getupvalue(L, function, i); ++i) {
    if (lua_istable(L, -1)) {
      lua_pushliteral(L, "__signature");
      if (lua_rawget(L, -2) == LUA_TSTRING) {
        std::istringstream words(lua_tostring(L, -1));
        for (std::string word; words >> word;) names += (names.empty() ? "" : ", ") + word.substr(0, word.find(':'));
      }
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
  return names;
}

}  // namespace

std::optional<std::string> parameters_of(lua_State* L, int index) {
  lua_pushvalue(L, index);
  if (lua_iscfunction(L, -1) && lua_getupvalue(L, -1, 1)) lua_remove(L, -2);  // what the checks call
  if (!lua_isfunction(L, -1) || lua_iscfunction(L, -1)) {
    lua_pop(L, 1);
    return std::nullopt;
  }
  lua_Debug info;
  lua_pushvalue(L, -1);
  lua_getinfo(L, ">u", &info);
  std::string names = info.isvararg ? names_of_row(L, lua_gettop(L)) : "";
  if (!names.empty()) {
    lua_pop(L, 1);
    return names;
  }
  for (int i = 1; i <= info.nparams; ++i) names += (i > 1 ? ", " : "") + std::string(lua_getlocal(L, nullptr, i));
  lua_pop(L, 1);
  if (info.isvararg) names += names.empty() ? "..." : ", ...";
  return names;
}

}  // namespace triage::lua
