// triage.export: functions of a script as programs of their own.
#include "bindings/lua/export/export.h"

#include "bindings/lua/capture/open_chains.h"
#include "bindings/lua/capture/user_code.h"
#include "bindings/lua/compile/compiled_function.h"
#include "bindings/lua/compile/escape_hatches.h"
#include "bindings/lua/export/dynamic_shapes.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/protected.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "bindings/lua/values/tensor_list.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/flags/forms.h"
#include "runtime/graph/memory.h"

#include <triage/export.h>

#include <functional>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triage::lua {
namespace {

using capture::Recorder;

const char* const program_type = "triage.exported_program";

struct ProgramBox {
  ExportedProgram* program = nullptr;
  size_t bytes = 0;  // of its graph, charged to the script
};

void push_program(lua_State* L, ExportedProgram program) {
  auto& box = *new (lua_newuserdatauv(L, sizeof(ProgramBox), 0)) ProgramBox;
  luaL_setmetatable(L, program_type);
  const size_t bytes = graph::bytes(program.graph());
  charge(L, bytes);
  box.program = new ExportedProgram(std::move(program));
  box.bytes = bytes;
  context(L).script_bytes += bytes;
}

const ExportedProgram& check_program(lua_State* L, int index) {
  const auto& box = *static_cast<ProgramBox*>(luaL_checkudata(L, index, program_type));
  if (!box.program) luaL_error(L, "this exported program was closed");
  return *box.program;
}

int program_gc(lua_State* L) {
  auto& box = *static_cast<ProgramBox*>(luaL_checkudata(L, 1, program_type));
  delete std::exchange(box.program, nullptr);
  context(L).script_bytes -= std::exchange(box.bytes, 0);
  return 0;
}

int program_tostring(lua_State* L) {
  charge(L, 0);
  const std::string text = check_program(L, 1).text();
  charge_text(L, text.size());
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

/// program(x, ...): what it computes is not seen by a recorder.
int program_call(lua_State* L) {
  const ExportedProgram program = check_program(L, 1);
  capture::graph_break(capture::Break::unsupported, "an exported program is called, whose operators cannot be recorded",
                       "Call the function from which it was exported.");
  std::vector<at::Tensor> inputs;
  for (int i = 2; i <= lua_gettop(L); ++i) inputs.push_back(check_tensor(L, i));
  const GraphTerms terms(L);
  std::vector<at::Tensor> outputs = program.run(inputs);
  reserve(L, outputs.size(), "too many results");
  const auto& values = program.graph().outputs();
  auto* const tracker = capture::FlagsTracker::current();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!values[i]->is_flags) continue;
    flags::KnownForms::add(outputs[i].scalar_type(), outputs[i].size(1));
    if (tracker) tracker->add(outputs[i]);
  }
  return push_results(L, lua_gettop(L), outputs);
}

int program_decompositions(lua_State* L) {
  push_program(L, check_program(L, 1).run_decompositions());
  return 1;
}

int program_verify(lua_State* L) {
  check_program(L, 1).verify();
  lua_settop(L, 1);
  return 1;
}

void check_files_allowed(lua_State* L, const char* what) {
  if (context(L).sandboxed)
    throw InputError(std::string(what) +
                     ": a policy cannot use files; `triage exec` scripts, `triage export` and the host can");
}

int program_save(lua_State* L) {
  const ExportedProgram program = check_program(L, 1);
  check_files_allowed(L, "program:save");
  refuse_in_selection(L, "`program:save`");
  const char* const path = text_argument(L, {2, "program:save", "path"});
  on_behalf_of("program:save", [&] { program.save(path); });
  return 0;
}

int program_to_torchscript(lua_State* L) {
  const ExportedProgram program = check_program(L, 1);
  check_files_allowed(L, "program:to_torchscript");
  refuse_in_selection(L, "`program:to_torchscript`");
  const char* const path = text_argument(L, {2, "program:to_torchscript", "path"});
  on_behalf_of("program:to_torchscript", [&] { program.save_torchscript(path); });
  return 0;
}

int load_exported(lua_State* L) {
  check_files_allowed(L, "triage.load_exported");
  const char* const path = text_argument(L, {1, "triage.load_exported", "path"});
  push_program(L, on_behalf_of("triage.load_exported", [path] { return ExportedProgram::load(path); }));
  return 1;
}

// --- triage.export

std::string default_name(lua_State* L, int index) {
  if (!lua_isfunction(L, index)) return "program";
  lua_Debug info;
  lua_pushvalue(L, index);
  lua_getinfo(L, ">S", &info);
  return "function_of_line_" + std::to_string(info.linedefined);
}

std::vector<at::Tensor> call_function(lua_State* L, int index, at::ArrayRef<at::Tensor> inputs) {
  const int base = lua_gettop(L);
  reserve(L, inputs.size(), "too many inputs");
  forget_chains(L);
  lua_pushvalue(L, index);
  push_tensors(L, inputs);
  const capture::ScriptScope script(user_code(L));
  call_for_all(L, static_cast<int>(inputs.size()));
  check_finished_chains(L);
  std::vector<at::Tensor> results;
  for (int i = base + 1; i <= lua_gettop(L); ++i) {
    const at::Tensor* tensor = test_tensor(L, i);
    if (!tensor)
      throw InputError("triage.export: the function returned " +
                       (test_symbolic(L, i) ? "a number that depends on the values of tensors" : describe(L, i)) +
                       " as result " + std::to_string(i - base) + "; a program returns tensors" +
                       (test_symbolic(L, i) ? ": torch.scalar_tensor converts it" : ""));
    results.push_back(*tensor);
  }
  lua_settop(L, base);
  return results;
}

struct FunctionReference {
  lua_State* L;
  int id = luaL_ref(L, LUA_REGISTRYINDEX);  // of the value on top of the stack, which goes
  ~FunctionReference() { luaL_unref(L, LUA_REGISTRYINDEX, id); }
};

/// The function at `index`, called as `export_function` does: errors of the first call belong to the script that
/// exports, those of later ones to `export_function`.
class ExportedFunction {
 public:
  ExportedFunction(lua_State* L, int index) : L_(L), index_(index) {}

  std::vector<at::Tensor> operator()(at::ArrayRef<at::Tensor> inputs) {
    if (std::exchange(first_, false)) return call_function(L_, index_, inputs);
    lua_pushvalue(L_, index_);
    const FunctionReference function{L_};
    std::vector<at::Tensor> results;
    in_protected_call(L_, [&](lua_State* L) {
      lua_rawgeti(L, LUA_REGISTRYINDEX, function.id);
      results = call_function(L, 1, inputs);
    });
    return results;
  }

 private:
  lua_State* L_;
  int index_;
  bool first_ = true;
};

/// triage.export(fn, inputs, {dynamic_shapes, name})
int export_(lua_State* L) {
  capture::graph_break(capture::Break::unsupported, "`triage.export` captures a graph of its own",
                       "Export outside of compiled code.");
  lua_settop(L, 3);
  check_callable(L, 1, "triage.export");
  const std::vector<at::Tensor> inputs = check_tensor_list(L, 2, "triage.export");
  if (inputs.size() > most_inputs)
    throw InputError("triage.export: a program takes at most " + std::to_string(most_inputs) +
                     " inputs; join them with torch.stack or torch.cat");
  const std::vector<std::string> names = parameter_names(L, 1, inputs.size());
  std::string name = default_name(L, 1);
  ExportOptions options = read_export_options(L, 3, names, inputs, name);
  options.by_contract = by_contract(L);
  ExportedFunction fn(L, 1);
  ExportedProgram program = export_function(name, names, inputs, std::ref(fn), options);
  forget_chains(L);  // of a call that failed
  push_program(L, std::move(program));
  return 1;
}

}  // namespace

void add_export(lua_State* L) {
  static const luaL_Reg meta[] = {{"__call", guarded<program_call>},
                                  {"__gc", guarded<program_gc>},
                                  {"__tostring", guarded<program_tostring>},
                                  {nullptr, nullptr}};
  static const LimitedFunction methods[] = {{"run_decompositions", guarded<program_decompositions>, 1},
                                            {"verify", guarded<program_verify>, 1},
                                            {"save", guarded<program_save>, 2},
                                            {"to_torchscript", guarded<program_to_torchscript>, 2}};
  luaL_newmetatable(L, program_type);
  luaL_setfuncs(L, meta, 0);
  lua_newtable(L);
  set_limited(L, "program:", methods);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "ExportedProgram");
  lua_setfield(L, -2, "__name");
  lua_pushliteral(L, "ExportedProgram");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  static const LimitedFunction functions[] = {{"export", guarded<export_>, 3},
                                              {"load_exported", guarded<load_exported>, 1}};
  set_limited(L, "triage.", functions);
  add_escape_hatches(L);
}

}  // namespace triage::lua
