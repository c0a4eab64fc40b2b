#include "bindings/lua/engine/policies/policy_modules.h"

#include "bindings/lua/engine/libraries/torch_files.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "runtime/files/formats.h"
#include "runtime/messages/printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace triage::lua {
namespace {

// Their addresses are registry keys.
const char kFiles = 0;    // of the load that goes on
const char kModules = 0;  // a table: name -> value, of the modules that were loaded

/// Null where no load goes on.
FilesOfLoad* files_of_load(lua_State* L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kFiles);
  auto* const files = static_cast<FilesOfLoad*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return files;
}

/// A string of Lua may hold a NUL, where a path of C ends.
std::string whole_text(lua_State* L, const Argument& argument) {
  text_argument(L, argument);
  size_t size = 0;
  const char* const text = lua_tolstring(L, argument.index, &size);
  return {text, size};
}

bool is_module_name(const std::string& name) {
  constexpr size_t longest = 255;
  bool in_part = false;
  for (const unsigned char c : name) {
    const bool dot = c == '.';
    if (dot ? !in_part : !(std::isalnum(c) || c == '_')) return false;
    in_part = !dot;
  }
  return in_part && name.size() <= longest;
}

std::string file_of_module(std::string name) {
  std::replace(name.begin(), name.end(), '.', '/');
  return "lib/" + name + ".lua";
}

/// On the list of what is being loaded, while alive.
struct ModuleLoadScope {
  std::vector<std::string>& list;
  ModuleLoadScope(std::vector<std::string>& modules, std::string name) : list(modules) {
    list.push_back(std::move(name));
  }
  ~ModuleLoadScope() { list.pop_back(); }
};

void refuse_cycle(const std::vector<std::string>& loading, const std::string& name) {
  const auto begin = std::find(loading.begin(), loading.end(), name);
  if (begin == loading.end()) return;
  throw LoadError(
      fmt::format("require: module '{}' needs itself while it is loaded: {} -> {}; move what both need to a "
                  "module of its own",
                  name, fmt::join(begin, loading.end(), " -> "), name));
}

/// Pushes what the module returns; `true` where that is nothing.
void load_module(lua_State* L, FilesOfLoad& files, const std::string& name) {
  refuse_cycle(files.loading, name);
  const std::string file = file_of_module(name), shown = files.shown(file);
  const auto source = on_behalf_of("require", [&] { return files.read(file); });
  const ModuleLoadScope loading(files.loading, name);
  reserve(L, 0, "modules");
  charge(L, source->size(), 0, 1 + source->size());
  push_chunk(files.state(), *source, "@" + shown);
  lua_pushlstring(L, name.data(), name.size());
  lua_pushlstring(L, shown.data(), shown.size());
  lua_call(L, 2, 1);
  files.modules.push_back({shown, source});
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_pushboolean(L, true);
}

/// require(name)
int require_module(lua_State* L) {
  const std::string name = whole_text(L, {1, "require", "name"});
  if (!is_module_name(name))
    throw InputError(
        fmt::format("require: expected the name of a module as `name` (letters, digits, `_`, and `.` between "
                    "folders), such as \"checks\" for lib/checks.lua beside the policy, got '{}'",
                    messages::one_line(name.substr(0, 255))));
  lua_settop(L, 1);
  push_registry_table(L, &kModules);
  lua_pushvalue(L, 1);
  if (lua_rawget(L, 2) != LUA_TNIL) return 1;
  FilesOfLoad* const files = files_of_load(L);
  if (!files)
    throw InputError(
        fmt::format("require: module '{0}' was not loaded with the policy, and a policy reads files only while "
                    "it is loaded; write local {1} = require \"{0}\" at the top of the file",
                    name, name.substr(name.rfind('.') + 1)));
  lua_settop(L, 2);
  load_module(L, *files, name);
  lua_pushvalue(L, 1);
  lua_pushvalue(L, -2);
  lua_rawset(L, 2);
  return 1;
}

/// torch.load(path)
int load_table(lua_State* L) {
  const std::string path = whole_text(L, {1, "torch.load", "path"});
  const FilesOfLoad* const files = files_of_load(L);
  if (!files)
    throw InputError(
        "torch.load: a policy reads files only while it is loaded; write local table = torch.load(\"table.pt\") "
        "at the top of the file");
  const std::string file = files::split_key_of_name(path).first;
  if (!files::has_known_ending(file))
    throw InputError(
        fmt::format("torch.load: expected a .pt, .pth, .npy or .safetensors file in the folder of the policy as "
                    "`path`, got '{}'",
                    messages::one_line(path.substr(0, 255))));
  const c10::IValue value = on_behalf_of("torch.load", [&] {
    const auto bytes = files->read(file);
    charge(L, 0, bytes->size());
    return files::load_bytes(path, *bytes);
  });
  push_constant(L, value);
  return 1;
}

}  // namespace

FilesOfLoad::FilesOfLoad(ScriptState& state, const ScriptOptions& options) : state_(state), options_(options) {
  in_protected_call(state.lua(), [&](lua_State* L) {
    lua_pushlightuserdata(L, this);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &kFiles);
  });
}

FilesOfLoad::~FilesOfLoad() {
  lua_pushnil(state_.lua());
  lua_rawsetp(state_.lua(), LUA_REGISTRYINDEX, &kFiles);
}

std::shared_ptr<const std::string> FilesOfLoad::read(const std::string& name) const {
  if (options_.read_file) return options_.read_file(name);
  throw FileError(
      fmt::format("cannot read '{}': the policy '{}' was loaded from text and has no folder; load it from a file "
                  "(triage::Runtime::load)",
                  messages::one_line(name), options_.path));
}

std::string FilesOfLoad::shown(const std::string& name) const {
  return (std::filesystem::path(options_.path).parent_path() / name).string();
}

void add_policy_files(ScriptState& state) {
  in_protected_call(state.lua(), [&](lua_State* L) {
    push_limited(L, "require", guarded<require_module>, 1);
    state.define("require");
    lua_getglobal(L, "torch");
    static const LimitedFunction functions[] = {{"load", guarded<load_table>, 1}};
    set_limited(L, "torch.", functions);
    lua_pop(L, 1);
  });
}

}  // namespace triage::lua
