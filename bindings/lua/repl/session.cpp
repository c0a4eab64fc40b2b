#include "bindings/lua/repl/session.h"

#include "bindings/lua/engine/libraries/library_check.h"
#include "bindings/lua/engine/libraries/unknown_names.h"
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/repl/completion.h"
#include "bindings/lua/repl/display.h"
#include "bindings/lua/rewriter/prompt_lines.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/semantics/base_library.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/distributed/dist_functions.h"

#include <algorithm>
#include <atomic>
#include <optional>

namespace triage::lua {
namespace {

constexpr const char* chunk_name = "=repl";

/// Raises, and goes on doing so at every instruction: a `pcall` in the chunk cannot go on after Ctrl-C.
void stop(lua_State* L, lua_Debug*) { luaL_error(L, "interrupted"); }

bool parses(const std::string& source) {
  try {
    rewriter::check(source, chunk_name, {/*policy=*/false});
    return true;
  } catch (const rewriter::SyntaxError&) {
    return false;
  }
}

/// The chunk for a text: an expression gives its values back; other text keeps its locals for the lines to come. None
/// where the text could go on.
std::optional<std::string> chunk_of(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n");
  const bool asks = first != std::string::npos && text[first] == '=';
  const std::string expression = "return " + (asks ? text.substr(first + 1) : text);
  if (parses(expression)) return expression;
  if (rewriter::is_unfinished(expression) || (!asks && rewriter::is_unfinished(text))) return std::nullopt;
  return asks ? expression : rewriter::keep_locals(text, chunk_name);
}

/// The traceback down to the chunk: what lies below are frames of the prompt itself.
std::string shown_traceback(const std::string& traceback) {
  const size_t end = traceback.find("\n\trepl:1: in ");
  const size_t main = traceback.find("in main chunk");
  if (main == std::string::npos && end == std::string::npos) return traceback;
  return traceback.substr(0, traceback.find('\n', main == std::string::npos ? end + 1 : main));
}

}  // namespace

struct Session::Interpreter {
  Interpreter() {
    check_lua_library();
    StateOptions options;
    options.sandboxed = false;
    options.limits = {0, 0, 0, 0};
    options.path = "repl";
    state = make_script_state(std::move(options), dist_functions(Group()));
    in_protected_call(state->lua(), [&](lua_State* L) { make_environment(L); });
  }

  /// What the session keeps stands in a table of its own, which falls back to the library.
  void make_environment(lua_State* L) {
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "_G");
    lua_createtable(L, 0, 1);
    state->push_environment();
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    set_load_environment(L);
    environment = luaL_ref(L, LUA_REGISTRYINDEX);
  }

  void run(const std::string& source, std::string& text) {
    in_protected_call(state->lua(), [&](lua_State* L) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, environment);
      ChunkOptions options;
      options.env = lua_gettop(L);
      options.policy = false;
      if (load_chunk(L, source, chunk_name, options) != LUA_OK) lua_error(L);
      for (const rewriter::Warning& found : foreign_words(L, options.env, source, chunk_name))
        text += "warning: " + found.message + "\n";
      call_for_all(L, 0);
      show(L, 2, text);
    });
  }

  void show(lua_State* L, int first, std::string& text) {
    const int last = lua_gettop(L);
    for (int i = first; i <= last; ++i) {
      const at::Tensor* tensor = test_tensor(L, i);
      text += display(L, i, tensor && tracker.is_flags(*tensor)) + "\n";
    }
    if (last < first) return;
    lua_rawgeti(L, LUA_REGISTRYINDEX, environment);
    lua_pushvalue(L, first);
    lua_setfield(L, -2, "_");
  }

  capture::FlagsTracker tracker;  // of the whole session: which tensors are flags
  std::unique_ptr<ScriptState> state;
  int environment = LUA_NOREF;
  std::atomic<lua_State*> running{nullptr};
};

Session::Session() : interpreter_(std::make_unique<Interpreter>()) {}
Session::~Session() = default;

Session::ReplAnswer Session::evaluate(const std::string& text) {
  ReplAnswer answer;
  struct RunningChunk {
    Interpreter& own;
    explicit RunningChunk(Interpreter& interpreter) : own(interpreter) { own.running = own.state->lua(); }
    ~RunningChunk() {
      own.running = nullptr;
      lua_sethook(own.state->lua(), nullptr, 0, 0);
    }
  };
  if (text.find_first_not_of(" \t\n") == std::string::npos) return answer;
  try {
    const std::optional<std::string> chunk = chunk_of(text);
    if (!chunk) return {ReplAnswer::Status::unfinished, ""};
    RunningChunk running(*interpreter_);
    interpreter_->run(*chunk, answer.text);
    return answer;
  } catch (const Error& error) {
    answer.text += std::string(error.what()) + "\n";
    if (!error.traceback().empty()) answer.text += shown_traceback(error.traceback()) + "\n";
  } catch (const std::exception& error) {
    answer.text += std::string(error.what()) + "\n";
  }
  answer.status = ReplAnswer::Status::failed;
  return answer;
}

namespace {

/// "torch.gather" and "z:gather" are aten::gather, "torch.linalg.inv" is aten::linalg_inv. Empty: no operator's name.
std::string operator_name(const std::string& name) {
  constexpr std::string_view torch = "torch.";
  const size_t colon = name.find(':');
  if (colon != std::string::npos) return "aten::" + name.substr(colon + 1);
  if (name.compare(0, torch.size(), torch) != 0) return "";
  std::string base = name.substr(torch.size());
  std::replace(base.begin(), base.end(), '.', '_');
  return "aten::" + base;
}

}  // namespace

Session::ReplAnswer Session::help(const std::string& name) {
  std::string text;
  if (const Operator* found = find_operator(operator_name(name)))
    for (const Overload& overload : found->overloads)
      if (!overload.writes_out) text += overload.signature() + "\n";
  if (!text.empty()) return {ReplAnswer::Status::done, text};
  std::string path = name;
  std::replace(path.begin(), path.end(), ':', '.');
  ReplAnswer answer = evaluate("= " + path);
  if (answer.status == ReplAnswer::Status::done && answer.text == "nil\n")
    return {ReplAnswer::Status::failed, "there is nothing named `" + name + "`; Tab completes names\n"};
  return answer.status == ReplAnswer::Status::unfinished ? ReplAnswer{ReplAnswer::Status::failed, "help takes a name\n"}
                                                         : answer;
}

void Session::interrupt() noexcept {
  if (lua_State* L = interpreter_->running)
    lua_sethook(L, stop, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

std::vector<std::string> Session::complete(const std::string& line) {
  std::vector<std::string> words;
  try {
    in_protected_call(interpreter_->state->lua(), [&](lua_State* L) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, interpreter_->environment);
      interpreter_->state->push_environment();
      words = completions(L, {lua_gettop(L) - 1, lua_gettop(L)}, line);
    });
  } catch (const Error&) {
    words.clear();  // nothing to offer
  }
  return words;
}

}  // namespace triage::lua
