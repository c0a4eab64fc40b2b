#include "tests/lua/lua_fixture.h"

#include "bindings/lua/semantics/chunk.h"

namespace triage::lua::testing {

std::vector<at::Tensor> Fixture::run(const std::string& source, const std::vector<at::Tensor>& arguments) {
  std::vector<at::Tensor> results;
  in_protected_call(lua(), [&](lua_State* L) {
    ChunkOptions options;
    options.policy = false;
    if (load_chunk(L, source, "@test.lua", options) != LUA_OK) lua_error(L);
    for (const auto& argument : arguments) push_tensor(L, argument);
    lua_call(L, static_cast<int>(arguments.size()), LUA_MULTRET);
    for (int i = 1; i <= lua_gettop(L); ++i) results.push_back(check_tensor(L, i));
  });
  return results;
}

std::string Fixture::error_of(const std::string& source) {
  try {
    run(source);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  at::Tensor x = a.detach(), y = b.detach();
  if (x.is_complex()) x = at::view_as_real(x.resolve_conj()), y = at::view_as_real(y.resolve_conj());
  at::Tensor equal = x.eq(y);
  if (x.is_floating_point()) equal = equal.logical_or(x.ne(x).logical_and(y.ne(y)));
  return equal.all().item().toBool();
}

}  // namespace triage::lua::testing
