#include "bindings/lua/engine/exec.h"

#include "bindings/lua/engine/library_check.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"

#include <cstdio>
#include <fstream>
#include <iterator>

#include "runtime/messages/printable.h"

namespace triage::lua {
namespace {

std::string read_source(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError("cannot open the script '" + path + "'");
  return {std::istreambuf_iterator<char>(in), {}};
}

void say(const char* what) { std::fprintf(stderr, "triage exec: %s\n", messages::printable(what).c_str()); }

}  // namespace

int exec_script(const std::string& path, const std::vector<std::string>& arguments, CompilerMode compiler) {
  try {
    check_lua_library();
    StateOptions options;
    options.sandboxed = false;
    options.limits = {0, 0, 0, 0};
    options.path = path;
    options.args = arguments;
    options.compiler = compiler;
    auto state = make_script_state(std::move(options));
    in_protected_call(state->lua(), [&](lua_State* L) {
      push_chunk(*state, read_source(path), "@" + path);
      reserve(L, arguments.size(), "too many arguments");
      for (const auto& argument : arguments) lua_pushlstring(L, argument.data(), argument.size());
      lua_call(L, static_cast<int>(arguments.size()), 0);
    });
    return 0;
  } catch (const Error& error) {
    say(error.what());
    if (!error.traceback().empty()) std::fprintf(stderr, "%s\n", messages::printable(error.traceback()).c_str());
  } catch (const std::exception& error) {
    say(error.what());
  }
  return 1;
}

}  // namespace triage::lua
