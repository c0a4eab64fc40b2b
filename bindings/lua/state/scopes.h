#pragma once
#include <lua.hpp>

#include <functional>
#include <memory>
#include <utility>

/// Settings of the thread that hold for the rest of a block (`local _ <close> = torch.no_grad()`) or for a call
/// (`torch.no_grad(fn)`). Either way a to-be-closed variable of Lua puts back what was. A destructor of C++ must not:
/// where an error passes, it runs before Lua closes what the function that failed has open, and a scope in there would
/// bring back for good what it found.
namespace triage::lua {

/// Pushes a scope and returns what is to be done at its end, at first nothing: to be set just before the setting
/// changes. It is done once, by `<close>` or by `call_in_scope`; never by the garbage collector.
std::function<void()>& push_scope(lua_State* L);

/// Pushes a scope that keeps a Guard alive: an object that changes a setting as long as it lives.
template <typename Guard, typename... Arguments>
void push_scope_of(lua_State* L, Arguments&&... arguments) {
  std::function<void()>& end = push_scope(L);
  auto* const guard = new Guard(std::forward<Arguments>(arguments)...);
  end = [guard] { delete guard; };
}

/// With a scope on top of the stack: calls the function at `function` with the values between the two, and then ends
/// the scope, behind all that the function has to close. Returns the number of results.
int call_in_scope(lua_State* L, int function);
/// Where functions of `core` that call one have it.
constexpr int kFunction = 2;

struct Context;
struct Resume;
struct Scope;

/// While alive, a coroutine goes on.
class ScopesOfCoroutine {
 public:
  explicit ScopesOfCoroutine(lua_State* L);
  ~ScopesOfCoroutine();
  ScopesOfCoroutine(const ScopesOfCoroutine&) = delete;
  ScopesOfCoroutine& operator=(const ScopesOfCoroutine&) = delete;
  /// The coroutine failed: modes are again what they were when it went on. Lua itself closes nothing of it before
  /// coroutine.close, which may never come; what was opened since puts nothing back then.
  void give_up();

 private:
  Context& context_;
  Scope* call_around_;
  std::shared_ptr<const Resume> around_;
  std::shared_ptr<Resume> own_;
};

}  // namespace triage::lua
