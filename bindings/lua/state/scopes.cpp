#include "bindings/lua/state/scopes.h"

#include "bindings/lua/state/modes.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/state/userdata.h"

#include <exception>
#include <memory>

namespace triage::lua {
namespace {

const char scope_metatable = 0;  // its address is the registry key

}  // namespace

struct Resume {
  Modes modes;  // (`triage.error_on_graph_break` is the coroutine's own: CoroutineScope)
  bool given_up = false;
};

struct Scope {
  std::function<void()> end;
  Scope* around = nullptr;  // of a call: the next one
  std::shared_ptr<const Resume> within = {};

  void end_once(Context& own) {
    if (own.innermost_call == this) own.innermost_call = around;
    const auto own_end = std::exchange(end, nullptr);
    if (own_end && !(within && within->given_up)) own_end();
  }
};

namespace {

Scope* test_scope(lua_State* L, int index) { return test_userdata<Scope>(L, index, &scope_metatable); }

int close_scope(lua_State* L) {
  if (Scope* const scope = test_scope(L, 1)) scope->end_once(context(L));
  return 0;
}

void make_scope_metatable(lua_State* L) {
  static const luaL_Reg methods[] = {
      {"__close", guarded<close_scope>}, {"__gc", guarded<free_userdata<Scope, scope_metatable>>}, {nullptr, nullptr}};
  make_metatable(L, &scope_metatable, "scope", methods);
}

}  // namespace

std::function<void()>& push_scope(lua_State* L) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &scope_metatable) == LUA_TNIL) make_scope_metatable(L);
  lua_pop(L, 1);
  return push_userdata(L, Scope{{}, nullptr, context(L).resume}, &scope_metatable).end;
}

int call_in_scope(lua_State* L, int function) {
  Scope& scope = *test_scope(L, -1);
  lua_insert(L, function);
  lua_toclose(L, function);
  scope.around = std::exchange(context(L).innermost_call, &scope);
  call_for_all(L, lua_gettop(L) - function - 1);
  lua_closeslot(L, function);
  return lua_gettop(L) - function;
}

ScopesOfCoroutine::ScopesOfCoroutine(lua_State* L)
    : context_(context(L)),
      call_around_(std::exchange(context_.innermost_call, nullptr)),
      own_(std::make_shared<Resume>()) {
  around_ = std::exchange(context_.resume, own_);
}

ScopesOfCoroutine::~ScopesOfCoroutine() {
  context_.innermost_call = call_around_;
  context_.resume = around_;
}

void ScopesOfCoroutine::give_up() {
  while (Scope* const call = context_.innermost_call) {
    try {
      call->end_once(context_);
    } catch (const std::exception&) {  // it failed with an error of its own
    }
  }
  own_->modes.restore();
  own_->given_up = true;
}

}  // namespace triage::lua
