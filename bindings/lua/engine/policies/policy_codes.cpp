#include "bindings/lua/engine/policies/policy_codes.h"

#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/tensors/torch.h"
#include "bindings/lua/values/describe.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace triage::lua {
namespace {

constexpr size_t longest_name = 64;
constexpr const char* of_field = "policy: field 'codes': ";

bool is_capital(unsigned char c) { return c >= 'A' && c <= 'Z'; }

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= longest_name && is_capital(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return is_capital(c) || (c >= '0' && c <= '9') || c == '_'; });
}

bool is_free(Code code) { return code_name(code) == fmt::format("CODE_{}", to_int(code)); }

std::string free_codes() {
  std::string list;
  for (int64_t number = 0; number <= CODE_MASK; ++number)
    if (is_free(code_from(number))) list += fmt::format("{}{}", list.empty() ? "" : ", ", number);
  return list;
}

/// "missing" -> "; write MISSING = 4"
std::string advice_of_name(std::string name) {
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c == '-' || c == ' ' ? '_' : c;
  return is_name(name) ? "; write " + name : "";
}

bool has_field(lua_State* L, const std::string& name) {
  push_core(L);
  lua_getfield(L, -1, "has_field_of_codes");
  lua_pushlstring(L, name.data(), name.size());
  lua_call(L, 1, 1);
  const bool has = lua_toboolean(L, -1);
  lua_pop(L, 2);
  return has;
}

void add_field(lua_State* L, const std::string& name, int64_t number) {
  push_core(L);
  lua_getfield(L, -1, "name_code");
  lua_pushlstring(L, name.data(), name.size());
  lua_pushinteger(L, number);
  lua_call(L, 2, 0);
  lua_pop(L, 1);
}

/// "CODE_8" = 4 would be a lie.
bool reads_as_free(const std::string& name) {
  return name.starts_with("CODE_") && name.find_first_not_of("0123456789", 5) == std::string::npos;
}

/// Throws where `err` or `ErrorCode` has a field of that name, but for names of the policy itself.
void check_is_new(lua_State* L, const std::string& name) {
  const CodeNames& own = context(L).codes;
  if (std::any_of(own.begin(), own.end(), [&](const CodeName& one) { return one.name == name; })) return;
  if (has_field(L, name) || reads_as_free(name))
    throw LoadError(of_field + fmt::format("'{}' is a name that triage has already; choose another one", name));
}

/// The number at the top, of `name`.
Code read_code(lua_State* L, const std::string& name) {
  const std::string where = of_field + fmt::format("'{}': ", name);
  const auto expected = [&] { return fmt::format("expected one of the free codes {}", free_codes()); };
  if (!lua_isinteger(L, -1)) throw LoadError(where + expected() + ", got " + describe(L, -1));
  const lua_Integer number = lua_tointeger(L, -1);
  if (number < 0 || number > CODE_MASK) throw LoadError(where + expected() + fmt::format(", got {}", number));
  const Code code = code_from(number);
  if (!is_free(code))
    throw LoadError(where + expected() + fmt::format(", got {}, which is {}", number, code_name(code)));
  return code;
}

}  // namespace

CodeNames read_codes(lua_State* L, int table) {
  const int type = push_own_field(L, table, "codes");
  CodeNames codes;
  if (type == LUA_TNIL) return lua_pop(L, 1), codes;
  if (type != LUA_TTABLE)
    throw LoadError(of_field + std::string("expected a table of names and free codes such as { MISSING = 4 }, got ") +
                    describe(L, -1));
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      throw LoadError(of_field + std::string("expected names as keys, as in { MISSING = 4 }, got ") + describe(L, -2));
    const std::string name = lua_tostring(L, -2);
    if (!is_name(name))
      throw LoadError(of_field + fmt::format("expected names of 1 to {} capitals, digits and _, that begin with a "
                                             "capital, got '{}'{}",
                                             longest_name, name.substr(0, longest_name), advice_of_name(name)));
    check_is_new(L, name);
    codes.push_back({read_code(L, name), name});
  }
  lua_pop(L, 1);
  std::sort(codes.begin(), codes.end(), [](const CodeName& a, const CodeName& b) {
    return std::pair(a.code, std::string_view(a.name)) < std::pair(b.code, std::string_view(b.name));
  });
  for (size_t i = 1; i < codes.size(); ++i)
    if (codes[i].code == codes[i - 1].code)
      throw LoadError(of_field + fmt::format("code {} has two names, {} and {}; give one of them another of the free "
                                             "codes {}",
                                             to_int(codes[i].code), codes[i - 1].name, codes[i].name, free_codes()));
  return codes;
}

void name_codes(lua_State* L, const CodeNames& codes) {
  CodeNames& own = context(L).codes;
  for (const CodeName& one : codes) {
    const auto known = std::find_if(own.begin(), own.end(), [&](const CodeName& other) {
      return other.code == one.code || other.name == one.name;
    });
    if (known == own.end()) {
      add_field(L, one.name, to_int(one.code));
      own.push_back(one);
    } else if (*known != one) {
      throw LoadError(of_field + fmt::format("'{}' is code {} here, and '{}' is code {} elsewhere in this script; all "
                                             "policies of a script share its names",
                                             one.name, to_int(one.code), known->name, to_int(known->code)));
    }
  }
}

void expect_codes(lua_State* L, const WrittenCodes& codes) {
  const CodeNames& own = context(L).codes;
  for (const auto& [name, number] : codes) {
    if (!is_name(name) || number < 0 || number > CODE_MASK) continue;
    const CodeName one{code_from(number), name};
    const bool clashes = std::any_of(own.begin(), own.end(), [&](const CodeName& other) {
      return other.code == one.code || other.name == one.name;
    });
    if (!clashes && is_free(one.code) && !has_field(L, name) && !reads_as_free(name)) name_codes(L, {one});
  }
}

void add_code_fields(lua_State* L, const WrittenCodes& codes) {
  for (const auto& [name, number] : codes)
    if (is_name(name) && !has_field(L, name)) add_field(L, name, number);
}

}  // namespace triage::lua
