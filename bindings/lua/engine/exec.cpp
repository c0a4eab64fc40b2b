#include "bindings/lua/engine/exec.h"

#include "bindings/lua/engine/libraries/library_check.h"
#include "bindings/lua/engine/libraries/unknown_names.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>

#include "runtime/distributed/dist_functions.h"
#include "runtime/messages/printable.h"

namespace triage::lua {
namespace {

std::string read_source(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw FileError("cannot open the script '" + path + "'");
  return {std::istreambuf_iterator<char>(in), {}};
}

void say(const char* what) { std::fprintf(stderr, "triage exec: %s\n", messages::printable(what).c_str()); }

/// `read` gives the text of the script, whose errors are told as its own are.
int execute(const std::string& path, const std::string& chunk_name, const std::function<std::string()>& read,
            const std::vector<std::string>& arguments, const Group& group = Group()) {
  try {
    check_lua_library();
    StateOptions options;
    options.sandboxed = false;
    options.limits = {0, 0, 0, 0};
    options.path = path;
    options.args = arguments;
    auto state = make_script_state(std::move(options), dist_functions(group));
    in_protected_call(state->lua(), [&](lua_State* L) {
      const std::string source = read();
      push_chunk(*state, source, chunk_name);
      lua_pushglobaltable(L);
      for (const rewriter::Warning& found : foreign_words(L, -1, source, chunk_name)) tell_once(path, found);
      lua_pop(L, 1);
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

}  // namespace

int exec_script(const std::string& path, const std::vector<std::string>& arguments) {
  return execute(
      path, "@" + path, [&] { return read_source(path); }, arguments);
}

int exec_source(const std::string& source, const std::string& chunk_name, const std::vector<std::string>& arguments,
                const Group& group) {
  return execute(
      chunk_name.substr(1), chunk_name, [&] { return source; }, arguments, group);
}

}  // namespace triage::lua
