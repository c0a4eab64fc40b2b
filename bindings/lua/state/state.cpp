#include "bindings/lua/state/state.h"
#include "bindings/lua/rewriter/habits/habits.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/unwinding.h"
#include "bindings/lua/state/userdata.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/policy/loading.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace triage::lua {
namespace {

constexpr size_t bytes_of_a_tensor = 512;     // of C++ objects behind a userdata, roughly
constexpr lua_Integer largest_key = 1 << 26;  // so many numbers cannot come to few places of a table
constexpr size_t most_unusual_keys = 4'000;   // of one state: their square is a moment's work

/// An error that must reach the host with its type. Lives in a userdata, so that scripts can pass it on but not forge
/// it.
struct ErrorBox {
  std::string message;
  std::exception_ptr error;
};

const char error_metatable = 0;  // its address is the registry key

ErrorBox* test_error(lua_State* L, int index) { return test_userdata<ErrorBox>(L, index, &error_metatable); }

ErrorBox& check_error(lua_State* L) {
  ErrorBox* box = test_error(L, 1);
  if (!box) luaL_typeerror(L, 1, "triage error");
  return *box;
}

int error_tostring(lua_State* L) {
  const ErrorBox& box = check_error(L);
  lua_pushlstring(L, box.message.data(), box.message.size());
  return 1;
}

int error_gc(lua_State* L) {
  ErrorBox& box = check_error(L);
  box.error = nullptr;
  std::string().swap(box.message);
  return 0;
}

int error_concat(lua_State* L) {
  for (int i = 1; i <= 2; ++i) {
    std::string text = error_text(L, i);
    lua_pushlstring(L, text.data(), text.size());
  }
  lua_concat(L, 2);
  return 1;
}

void make_error_metatable(lua_State* L) {
  static const luaL_Reg functions[] = {{"__tostring", guarded<error_tostring>},
                                       {"__gc", guarded<error_gc>},
                                       {"__concat", guarded<error_concat>},
                                       {nullptr, nullptr}};
  make_metatable(L, &error_metatable, "error", functions);
}

void push_error(lua_State* L, std::string message, std::exception_ptr error) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &error_metatable) == LUA_TNIL) make_error_metatable(L);
  lua_pop(L, 1);
  push_userdata(L, ErrorBox{std::move(message), std::move(error)}, &error_metatable);
}

/// What LibTorch says, without where in its own sources it said so.
std::string_view trimmed(std::string_view text) {
  for (std::string_view noise :
       {"\nException raised from", "\nThis could be because", " This could be because the operator",
        "\nDebugging info for", "\nException Context"}) {
    auto found = text.find(noise);
    if (found != std::string_view::npos) text = text.substr(0, found);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

std::string located(const Source& where, std::string_view text) {
  std::string prefix = where.file.empty() ? "" : where.file + ":" + std::to_string(where.line) + ": ";
  if (text.substr(0, prefix.size()) == prefix) prefix.clear();  // it says so itself
  return prefix + std::string(text);
}

/// The line of the script where the error was raised, in luaL_traceback's words: "\n\tfile:line: in function 'f'",
/// innermost first; names that begin with "[" are of C, of our own Lua code and of texts given to `load`.
Source place_in(const std::string& traceback) {
  for (size_t begin = traceback.find("\n\t"); begin != std::string::npos; begin = traceback.find("\n\t", begin)) {
    begin += 2;
    const size_t end = traceback.find(": in ", begin);
    if (end == std::string::npos) break;
    if (traceback[begin] == '[' || traceback.find('\n', begin) < end) continue;
    const size_t colon = traceback.rfind(':', end - 1);
    if (colon <= begin || colon == std::string::npos) continue;
    return {traceback.substr(begin, colon - begin), std::atoi(traceback.c_str() + colon + 1)};
  }
  return {};
}

template <typename E>
bool raise_typed(lua_State* L, const std::exception& error, const Source& here) {
  const E* typed = dynamic_cast<const E*>(&error);
  if (!typed) return false;
  const Source& where = typed->source().file.empty() ? here : typed->source();
  std::string text = located(where, typed->what());
  push_error(L, text, std::make_exception_ptr(E(text, where, typed->traceback())));
  return true;
}

}  // namespace

int raise_error(lua_State* L, const std::exception& error) {
  // What failed may have left no room. Where Lua gives none, its values go: nothing reads them any more.
  if (!lua_checkstack(L, LUA_MINSTACK)) lua_settop(L, std::max(0, lua_gettop(L) - LUA_MINSTACK));
  Source where = current_line(L);
  if (raise_typed<GraphBreakError>(L, error, where) || raise_typed<LimitError>(L, error, where)) return 1;
  if (dynamic_cast<const capture::CaptureAbort*>(&error)) forget_closers(L);
  const std::string text = messages::message_of(error);
  const bool whole = messages::verbose() && !context(L).sandboxed;  // no addresses for those who are not trusted
  const std::string_view shown = whole ? std::string_view(text) : trimmed(text);
  std::string located_text = located(where, shown);
  if (auto* recorder = capture::Recorder::current()) recorder->note_error(std::string(shown));
  lua_pushlstring(L, located_text.data(), located_text.size());
  return 1;
}

std::string error_text(lua_State* L, int index) {
  if (ErrorBox* box = test_error(L, index)) return box->message;
  switch (lua_type(L, index)) {
    case LUA_TSTRING: {
      size_t length = 0;
      const char* text = lua_tolstring(L, index, &length);
      return {text, length};
    }
    case LUA_TNUMBER:
      return lua_isinteger(L, index) ? std::to_string(lua_tointeger(L, index))
                                     : fmt::format("{}", lua_tonumber(L, index));
    case LUA_TTABLE: {  // an error of the library: {kind = ..., message = ...}
      index = lua_absindex(L, index);
      lua_pushliteral(L, "message");
      const bool has_message = lua_rawget(L, index) == LUA_TSTRING;
      std::string text = has_message ? lua_tostring(L, -1) : "(error object is a table)";
      lua_pop(L, 1);
      const std::string fields = has_message ? "" : fields_text(L, index);
      return fields.empty() ? text : "(error object is a table: " + fields + ")";
    }
    default:
      return std::string("(error object is a ") + luaL_typename(L, index) + " value)";
  }
}

namespace {

/// Lua's words for a global or field that is nil, and what to write where another language has it.
std::string with_hint(std::string text) {
  constexpr std::string_view before = "a nil value (", behind = "')";
  const size_t at = text.rfind(before);
  if (at == std::string::npos || !text.ends_with(behind)) return text;
  const std::string_view inside = std::string_view(text).substr(at + before.size());  // global 'len')
  const size_t quote = inside.find('\'');
  const std::string_view name = inside.substr(quote + 1, inside.size() - behind.size() - quote - 1);
  const bool field = inside.starts_with("field") || inside.starts_with("method");
  if (!field && !inside.starts_with("global")) return text;  // a variable has any name
  const std::string_view hint = field ? rewriter::hint_of_field(name) : rewriter::hint_of_name(name);
  return hint.empty() ? text : text + "; " + std::string(hint);
}

}  // namespace

void rethrow(lua_State* L, int index, const std::string& traceback) {
  if (ErrorBox* box = test_error(L, index)) {
    std::exception_ptr error = box->error;
    if (error) std::rethrow_exception(error);
    throw PolicyError(box->message, {}, traceback);
  }
  std::string text = with_hint(error_text(L, index));
  Source where;  // "file:line: message", as Lua and we write it
  auto colon = text.find(':');
  if (colon != std::string::npos) {
    auto end = text.find(':', colon + 1);
    std::string digits = end == std::string::npos ? "" : text.substr(colon + 1, end - colon - 1);
    if (!digits.empty() && digits.size() < 9 && digits.find_first_not_of("0123456789") == std::string::npos)
      where = {text.substr(0, colon), std::stoi(digits)};
  }
  if (!where.file.empty()) throw PolicyError(text, where, traceback);
  const Source place = place_in(traceback);
  // Of a text without a place its author wants none; of another value Lua writes none.
  throw PolicyError(lua_type(L, index) == LUA_TSTRING ? text : located(place, text), place, traceback);
}

void attach(lua_State* L, Context& context) { *static_cast<Context**>(lua_getextraspace(L)) = &context; }

Context& context(lua_State* L) { return **static_cast<Context**>(lua_getextraspace(L)); }

ErrorConfig config_in_force(lua_State* L) {
  ErrorConfig config = get_config();
  if (const auto& accumulation = context(L).accumulation) config.accumulation = *accumulation;
  return config;
}

void charge(lua_State* L, size_t script_bytes, size_t tensor_bytes, uint64_t instructions) {
  Context& own = context(L);
  const Limits& limits = own.limits;
  auto exceeded = [&](const char* what, const std::string& allowed) {
    throw LimitError(std::string("the script used up its budget of ") + what + " (" + allowed +
                     "); reduce the work, or have the host raise triage::Limits");
  };
  auto over = [](uint64_t used, uint64_t more, uint64_t limit) {
    return limit && (more > limit || used > limit - more);
  };

  if (policy::Loading::is_cancelled()) {
    own.expired = true;
    throw LimitError("the reload that this script is loaded for was cancelled");
  }
  if (instructions) own.instructions_left -= std::min(own.instructions_left, instructions);
  if (limits.instructions && own.instructions_left == 0 && instructions) {
    own.expired = true;
    exceeded("instructions", std::to_string(limits.instructions));
  }
  if (own.deadline && std::chrono::steady_clock::now() >= *own.deadline) {
    own.expired = true;
    exceeded("time", fmt::format("{:g}", limits.seconds) + " s, or the deadline of the call");
  }
  const auto used = [&] { return own.script_bytes + static_cast<size_t>(own.live_tensors) * bytes_of_a_tensor; };
  if (over(used(), script_bytes, limits.script_bytes)) {
    lua_gc(L, LUA_GCCOLLECT);
    if (over(used(), script_bytes, limits.script_bytes))
      exceeded("interpreter memory", std::to_string(limits.script_bytes >> 10) + " KiB");
  }
  auto alive = [&] { return static_cast<uint64_t>(std::max<int64_t>(own.tensor_bytes, 0)); };
  if (over(alive(), tensor_bytes, limits.tensor_bytes)) {
    lua_gc(L, LUA_GCCOLLECT);
    drop_held_memory(own, /*all=*/false);
    if (over(alive(), tensor_bytes, limits.tensor_bytes))
      exceeded("tensor memory", std::to_string(limits.tensor_bytes >> 20) + " MiB");
  }
}

void check_time(lua_State* L, const std::string& what, double nanoseconds) {
  const Context& own = context(L);
  constexpr double free_nanoseconds = 1e6;
  if (nanoseconds <= free_nanoseconds || !own.deadline) return;
  if (nanoseconds <= std::chrono::duration<double, std::nano>(*own.deadline - std::chrono::steady_clock::now()).count())
    return;
  throw LimitError(what + fmt::format(" may take {:.3g} s, and the script's budget has less time left; reduce the "
                                      "work, or have the host raise triage::Limits",
                                      nanoseconds / 1e9));
}

void drop_held_memory(Context& context, bool all) noexcept {
  if (context.held_bytes == 0) return;
  for (auto entry = context.storages.begin(); entry != context.storages.end();) {
    const Context::StorageUsage& storage = entry->second;
    if (!storage.held || !(all || storage.held->expired())) {
      ++entry;
      continue;
    }
    context.held_bytes -= storage.bytes;
    context.tensor_bytes -= storage.bytes;
    entry = context.storages.erase(entry);
  }
  context.collected_at = std::min<int64_t>(context.collected_at, context.tensor_bytes);
}

void charge_text(lua_State* L, size_t bytes, size_t added) {
  const Context& own = context(L);
  const bool limited = own.sandboxed && (own.limits.script_bytes || own.limits.seconds > 0);
  if (limited && bytes > longest_text)
    throw LimitError("a string of " + std::to_string(bytes) + " bytes: the budget of a policy allows " +
                     std::to_string(longest_text) + " for one string; keep its parts in a table");
  constexpr size_t bytes_per_instruction = 16;
  charge(L, bytes, 0, 1 + added / bytes_per_instruction);
}

void note_key(lua_State* L, int index) {
  Context& own = context(L);
  if (!own.sandboxed) return;
  switch (lua_type(L, index)) {
    case LUA_TSTRING:
      if (const std::string_view key(lua_tostring(L, index), lua_rawlen(L, index)); key == "__mode" || key == "__call")
        throw PolicyError("a policy may not assign to '" + std::string(key) +
                          "'; give it in the table of setmetatable(t, {...})");
      return;
    case LUA_TNUMBER: {
      int is_integer = 0;
      const lua_Integer key = lua_tointegerx(L, index, &is_integer);
      if (is_integer && key > -largest_key && key < largest_key) return;
      break;
    }
    default:
      return;
  }
  if (++own.unusual_keys > most_unusual_keys)
    throw LimitError("the script used up its budget of table keys that are fractions, or integers beyond " +
                     std::to_string(largest_key) + " (" + std::to_string(most_unusual_keys) +
                     "); make strings of them: t[tostring(id)]");
}

bool may_show(Context& context, size_t bytes) noexcept {
  context.printed_bytes += bytes;
  return !context.sandboxed || context.printed_bytes <= most_shown;
}

Source current_line(lua_State* L) {
  lua_Debug frame;
  for (int level = 0; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline > 0 && std::string_view(frame.source).substr(0, 2) != "=[")
      return {frame.short_src, frame.currentline};
  }
  return {};
}

}  // namespace triage::lua
