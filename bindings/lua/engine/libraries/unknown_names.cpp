#include "bindings/lua/engine/libraries/unknown_names.h"

#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/rewriter/findings/global_names.h"
#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/habits/habits.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/values/describe.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/log.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <tuple>

namespace triage::lua {
namespace {

using rewriter::GlobalRead;
using Use = GlobalRead::Use;

/// What Lua has and the sandbox leaves out.
constexpr std::array<std::string_view, 8> left_out = {"os",     "io",       "debug",     "package",
                                                      "dofile", "loadfile", "coroutine", "warn"};

/// What only trusted scripts have, and what policies have in its place.
struct Trusted {
  std::string_view path, advice;
};
constexpr std::array<Trusted, 5> of_trusted_scripts = {
    Trusted{"nn.load",
            "TorchScript modules are for trusted scripts (triage exec). The host can give the policy one as a function "
            "(Runtime::define_module). Or save the weights as tensors beside the policy, and read them at the top of "
            "the file: torch.load(\"weights.pt\")"},
    Trusted{"torch.save", "a policy writes no files; return what the host is to keep"},
    Trusted{"flags.save", "a policy writes no files; return the flags, which the host saves"},
    Trusted{"flags.load", "flags come to a policy as an input; the host loads them"},
    Trusted{"torch.autograd.detect_anomaly",
            "all policies of the process run operator by operator in it; `triage explain --provenance --backward` says "
            "where a gradient of a policy becomes bad"}};

/// Empty for other names.
std::string trusted_name(const std::string& path) {
  for (const Trusted& one : of_trusted_scripts)
    if (one.path == path) return "policies have no '" + path + "': " + std::string(one.advice);
  return {};
}

std::vector<std::string> keys_of(lua_State* L, int table) {
  std::vector<std::string> keys;
  table = lua_absindex(L, table);
  lua_getglobal(L, "pairs");  // a read-only view says itself what it holds
  lua_pushvalue(L, table);
  lua_call(L, 1, 3);
  const int next = lua_gettop(L) - 2;
  while (true) {
    lua_pushvalue(L, next);
    lua_pushvalue(L, next + 1);
    lua_rotate(L, next + 2, -1);
    lua_call(L, 2, 2);
    if (lua_isnil(L, -2)) break;
    if (lua_type(L, -2) == LUA_TSTRING) keys.emplace_back(lua_tostring(L, -2));
    lua_pop(L, 1);  // the key stays: next + 2
  }
  lua_settop(L, next - 1);
  return keys;
}

/// Whether `torch` has a field of that name, as it stands: `float32` for torch.float32.
bool is_field_of_torch(lua_State* L, const std::string& name) {
  const bool is_table = lua_getglobal(L, "torch") == LUA_TTABLE;
  if (is_table) {
    lua_pushlstring(L, name.data(), name.size());
    lua_rawget(L, -2);
  }
  const bool found = is_table && !lua_isnil(L, -1);
  lua_pop(L, is_table ? 2 : 1);
  return found;
}

/// What stands for Lua's nil elsewhere: a global of that name is nil, which is what is meant.
constexpr std::array<std::string_view, 3> stand_for_nil = {"None", "null", "NULL"};

/// Of a global that is a name in the declaration of the policy; empty for others.
std::string declared_name(const rewriter::GlobalReads& reads, const std::string& name) {
  if (rewriter::contains(reads.params, name))
    return "; a param is a field of the last parameter of `run`: run = function(z, p) ... p." + name;
  if (rewriter::contains(reads.inputs, name))
    return "; an input has the name that `run` gives it: run = function(" + name + ")";
  return {};
}

std::vector<std::string> environment_names(lua_State* L, ScriptState& state) {
  state.push_environment();
  std::vector<std::string> names = keys_of(L, -1);
  lua_pop(L, 1);
  return names;
}

std::string unknown_global(lua_State* L, ScriptState& state, const std::string& name,
                           const rewriter::GlobalReads& reads) {
  if (rewriter::contains(left_out, name))
    return "policies have no '" + name + "' (the sandbox: no os, io, debug); trusted scripts run with triage exec";
  if (name == "dist")
    return "there is no 'dist' in this policy: the host gives it no group of processes (triage::define_dist)";
  const bool trusted = lua_getglobal(L, name.c_str()) != LUA_TNIL;
  lua_pop(L, 1);
  if (trusted) return "policies have no '" + name + "'; only the host and scripts of triage exec have it";
  const std::string none = "there is no '" + name + "' in a policy";
  if (const std::string declared = declared_name(reads, name); !declared.empty()) return none + declared;
  if (const std::string_view hint = rewriter::hint_of_name(name); !hint.empty()) return none + "; " + std::string(hint);
  if (is_field_of_torch(L, name)) return none + "; did you mean 'torch." + name + "'?";
  return none + did_you_mean(close_words(name, environment_names(L, state)));
}

/// Pushes environment[root]; false and nothing where it has none.
bool push_global(lua_State* L, ScriptState& state, const std::string& name) {
  state.push_environment();
  lua_pushlstring(L, name.data(), name.size());
  const bool found = lua_rawget(L, -2) != LUA_TNIL;
  lua_remove(L, -2);
  if (!found) lua_pop(L, 1);
  return found;
}

int get_field(lua_State* L) {
  lua_gettable(L, 1);
  return 1;
}

/// What is wrong with the last name of a path such as "err.NAM"; empty where nothing is, or an earlier one is to blame.
std::string unknown_field(lua_State* L, ScriptState& state, const std::string& path) {
  const int top = lua_gettop(L);
  size_t end = path.find('.');
  std::string complaint;
  if (push_global(L, state, path.substr(0, end))) {
    while (end != std::string::npos && lua_istable(L, -1)) {
      const size_t begin = end + 1;
      end = path.find('.', begin);
      const std::string name = path.substr(begin, end - begin);
      lua_pushcfunction(L, get_field);
      lua_pushvalue(L, -2);
      lua_pushlstring(L, name.data(), name.size());
      const bool raised = lua_pcall(L, 2, 1, 0) != LUA_OK;
      if (!raised && !lua_isnil(L, -1)) continue;
      if (end != std::string::npos) break;
      const std::string_view hint = rewriter::hint_of_name(path);
      complaint = raised
                      ? error_text(L, -1)
                      : path.substr(0, begin - 1) + " has no '" + name + "'" +
                            (hint.empty() ? did_you_mean(close_words(name, keys_of(L, -2))) : "; " + std::string(hint));
      break;
    }
  }
  lua_settop(L, top);
  return complaint;
}

bool has_global(lua_State* L, ScriptState& state, const std::string& name) {
  if (!push_global(L, state, name)) return false;
  lua_pop(L, 1);
  return true;
}

bool is_field(const GlobalRead& read) { return read.path.find('.') != std::string::npos; }

/// Names that the source tests somewhere: there, nil is meant to be possible.
std::set<std::string> tested_names(const rewriter::GlobalReads& names) {
  std::set<std::string> tested;
  for (const GlobalRead& read : names.reads)
    if (read.use == Use::Tested) tested.insert(read.path);
  return tested;
}

void add_params(std::vector<UnknownName>& unknown, std::string_view source, const std::string& path) {
  for (const rewriter::UnknownParam& param : rewriter::unknown_params(source, "@" + path)) {
    const std::string message =
        "there is no param '" + param.name + "'" + did_you_mean(close_words(param.name, param.params));
    unknown.push_back({param.line, param.column, message, true});
  }
}

std::string place_of(const std::string& path, const rewriter::Warning& found) {
  return path + ":" + std::to_string(found.line) + ":" + std::to_string(found.column) + ": ";
}

/// A comparison with these is none with nil.
constexpr std::array<std::string_view, 8> stand_for_values = {"True", "TRUE", "False", "FALSE",
                                                              "nan",  "NaN",  "inf",   "Inf"};

/// Whether nil is what the script means, or may be.
bool may_be_nil(const GlobalRead& read, const std::set<std::string>& tested) {
  if (rewriter::contains(stand_for_values, read.path)) return false;
  if (read.use == Use::Kept && rewriter::hint_of_name(read.path).empty()) return true;
  return read.use == Use::Tested || tested.count(read.path) || read.protected_call ||
         rewriter::contains(stand_for_nil, read.path);
}

/// Why a name stands for nothing; empty where it stands for something.
std::string complaint_of(lua_State* L, ScriptState& state, const rewriter::GlobalReads& reads, const GlobalRead& read) {
  const bool field = is_field(read);
  if (!field && has_global(L, state, read.path)) return {};
  if (std::string trusted = trusted_name(read.path); !trusted.empty()) return trusted;
  return field ? unknown_field(L, state, read.path) : unknown_global(L, state, read.path, reads);
}

}  // namespace

std::vector<UnknownName> unknown_names(std::string_view source, const std::string& path,
                                       const std::vector<std::string>& host_functions, const WrittenCodes& codes) {
  const rewriter::GlobalReads names = rewriter::global_reads(source, "@" + path);
  const std::set<std::string> tested = tested_names(names);
  const std::set<std::string> of_host(host_functions.begin(), host_functions.end());
  std::vector<UnknownName> unknown;
  StateOptions options;
  options.path = path;
  const std::unique_ptr<ScriptState> state = make_script_state(std::move(options), {});
  in_protected_call(state->lua(), [&](lua_State* L) {
    add_code_fields(L, rewriter::declared_codes(source, "@" + path));
    add_code_fields(L, codes);
    for (const GlobalRead& read : names.reads) {
      if (of_host.count(read.path)) continue;
      const std::string message = complaint_of(L, *state, names, read);
      if (message.empty()) continue;
      unknown.push_back({read.line, read.column, message, !may_be_nil(read, tested) && !names.makes_globals});
    }
  });
  add_params(unknown, source, path);
  std::stable_sort(unknown.begin(), unknown.end(), [](const UnknownName& a, const UnknownName& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return unknown;
}

void tell_once(const std::string& path, const rewriter::Warning& found) {
  constexpr size_t most = 1000;  // of a process; policies come and go
  static auto& mutex = *new messages::ForkSafeMutex;
  static auto& told = *new std::set<std::tuple<std::string, int, int, std::string>>;
  {
    const std::lock_guard lock(mutex);
    if (told.size() >= most) told.clear();
    if (!told.emplace(path, found.line, found.column, found.message).second) return;
  }
  messages::LogTo::current().write(LogLevel::warn, place_of(path, found) + found.message, {{"path", path}});
}

bool refuse_unknown_globals(ScriptState& state, std::string_view source, const std::string& path, bool has_run) {
  const auto look_at_clock = [&](size_t) { charge(state.lua(), 0); };
  const rewriter::GlobalReads names = rewriter::global_reads(source, "@" + path, {true, look_at_clock});
  const bool has_modules = std::any_of(names.reads.begin(), names.reads.end(),
                                       [](const GlobalRead& read) { return read.path == "require"; });
  if (has_modules && !has_run) return false;
  if (names.makes_globals) return true;
  const std::set<std::string> tested = tested_names(names);
  in_protected_call(state.lua(), [&](lua_State* L) {
    for (const rewriter::Warning& found : names.foreign) tell_once(path, found);
    for (const GlobalRead& read : names.reads) {
      const bool refused = !may_be_nil(read, tested);
      if (!refused && rewriter::hint_of_name(read.path).empty()) continue;
      const std::string message = complaint_of(L, state, names, read);
      if (message.empty()) continue;
      const rewriter::Warning found{read.line, read.column, message};
      if (refused) throw LoadError(place_of(path, found) + message, {path, read.line});
      tell_once(path, found);
    }
  });
  return true;
}

std::vector<rewriter::Warning> foreign_words(lua_State* L, int environment, std::string_view source,
                                             const std::string& chunk_name) {
  environment = lua_absindex(L, environment);
  const rewriter::GlobalReads names = rewriter::global_reads(source, chunk_name, {/*policy=*/false});
  std::vector<rewriter::Warning> found = names.foreign;
  for (const GlobalRead& read : names.reads) {
    const std::string_view hint = rewriter::hint_of_name(read.path);
    if (hint.empty() || is_field(read) || read.use == Use::Tested) continue;
    const bool is_there = lua_getfield(L, environment, read.path.c_str()) != LUA_TNIL;
    lua_pop(L, 1);
    if (!is_there) found.push_back({read.line, read.column, "'" + read.path + "' is nil; " + std::string(hint)});
  }
  return found;
}

}  // namespace triage::lua
