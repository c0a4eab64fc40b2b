#include "bindings/lua/backends/run_graph.h"

#include "bindings/lua/backends/lua_backend.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/diagnose/minify/child.h"
#include "runtime/diagnose/program_run.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/tensor_text.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <triage/files.h>
#include <triage/version.h>

#include <filesystem>
#include <utility>

namespace triage::lua {
namespace {

using diagnose::ProgramOutcome;
using graph::GraphProgram;
using graph::ProgramCheck;
using graph::ProgramInput;
using Fill = ProgramInput::Fill;

const char* const function_name = "triage.run_graph";

/// Fields of the table on top of the stack; `read(name)` has the value on top, and returns false for a name it does not
/// know.
template <typename Read>
void read_fields(lua_State* L, const std::string& what, const char* known, const Read& read) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    const std::string name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : describe(L, -2);
    if (!read(name))
      throw InputError(fmt::format("{}: {} `{}` is unknown or has the wrong type (it is {}); there are {}",
                                   function_name, what, name, describe(L, -1), known));
  }
}

/// Exact values of a tensor of these sizes, from text as graphs print constants.
at::Tensor parse_values(const std::string& name, const std::string& text, const ProgramInput& input) {
  graph::TensorLayout layout{input.dtype, input.sizes, std::nullopt, c10::kCPU};
  const std::string type = graph::type_text({layout.dtype, layout.sizes, layout.device});
  try {
    const graph::Graph parsed =
        graph::parse("graph values():\n  %values: \"" + type + "\" = constant " + text + "\n  return %values\n");
    if (parsed.constants().size() == 1 && parsed.nodes().empty()) return parsed.constants()[0].tensor;
  } catch (const GraphError& error) {
    throw InputError(
        fmt::format("{}: input {}: its values do not fit a {}: {}", function_name, name, type, error.what()));
  }
  throw InputError(fmt::format("{}: input {}: its values are no values of a {}", function_name, name, type));
}

at::Tensor load_values(lua_State* L, const std::string& file, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(context(L).chunk).parent_path() / file;
  return load_tensor(path.string() + ":" + name);
}

/// The input described by the table on top of the stack.
ProgramInput read_input(lua_State* L, const graph::Value& value) {
  const std::string what = fmt::format("input {}: field", graph::describe(value));
  if (const at::Tensor* tensor = test_tensor(L, -1)) {
    ProgramInput input;
    input.sizes = tensor->sizes().vec(), input.strides = tensor->strides().vec();
    input.dtype = tensor->scalar_type(), input.device = tensor->device(), input.requires_grad = tensor->requires_grad();
    input.fill = Fill::values, input.values = tensor->detach().to(at::kCPU).contiguous().clone();
    return input;
  }
  if (!lua_istable(L, -1))
    throw InputError(fmt::format("{}: input {}: expected a tensor or a table {{shape = ..., dtype = ...}}, got {}",
                                 function_name, graph::describe(value), describe(L, -1)));
  ProgramInput input;
  std::string values, values_file;
  bool has_stride = false;
  read_fields(
      L, what, "shape, stride, dtype, device, requires_grad, number, seed, fill, values and values_from",
      [&](const std::string& name) {
        const int type = lua_type(L, -1);
        if (name == "shape" && type == LUA_TTABLE)
          input.sizes = check_integers(L, -1, function_name);
        else if (name == "stride" && type == LUA_TTABLE)
          input.strides = check_integers(L, -1, function_name), has_stride = true;
        else if (name == "dtype" && type == LUA_TSTRING && graph::dtype_of_name(lua_tostring(L, -1)))
          input.dtype = *graph::dtype_of_name(lua_tostring(L, -1));
        else if (name == "dtype" && test_dtype(L, -1))
          input.dtype = *test_dtype(L, -1);
        else if (name == "device" && type == LUA_TSTRING)
          input.device = parse_device(lua_tostring(L, -1));
        else if (name == "requires_grad" && type == LUA_TBOOLEAN)
          input.requires_grad = lua_toboolean(L, -1) != 0;
        else if (name == "number" && type == LUA_TBOOLEAN)
          input.is_number = lua_toboolean(L, -1) != 0;
        else if (name == "seed" && lua_isinteger(L, -1))
          input.seed = static_cast<uint64_t>(lua_tointeger(L, -1));
        else if (name == "fill" && lua_isinteger(L, -1) && (lua_tointeger(L, -1) == 0 || lua_tointeger(L, -1) == 1))
          input.fill = lua_tointeger(L, -1) ? Fill::ones : Fill::zeros;
        else if (name == "fill" && type == LUA_TSTRING && std::string_view(lua_tostring(L, -1)) == "arange")
          input.fill = Fill::arange;
        else if (name == "values" && type == LUA_TSTRING)
          input.fill = Fill::values, values = lua_tostring(L, -1);
        else if (name == "values_from" && type == LUA_TSTRING)
          input.fill = Fill::values, values_file = lua_tostring(L, -1);
        else
          return false;
        return true;
      });
  if (!has_stride) input.strides = at::empty(input.sizes, at::TensorOptions(at::kMeta)).strides().vec();
  if (const auto wrong = input.wrong_layout())
    throw InputError(fmt::format("{}: input {}: {}", function_name, graph::describe(value), *wrong));
  if (!values.empty()) input.values = parse_values(graph::describe(value), values, input);
  if (!values_file.empty()) input.values = load_values(L, values_file, value.name);
  if (input.fill == Fill::values && input.values.sizes() != at::IntArrayRef(input.sizes))
    throw InputError(
        fmt::format("{}: input {}: its values have other sizes than its shape", function_name, graph::describe(value)));
  return input;
}

void read_inputs(lua_State* L, GraphProgram& program) {
  const size_t given = lua_rawlen(L, -1), wanted = program.graph.inputs().size();
  if (given != wanted)
    throw InputError(fmt::format("{}: the graph takes {} inputs, got {}", function_name, wanted, given));
  for (size_t i = 0; i < given; ++i) {
    lua_rawgeti(L, -1, static_cast<lua_Integer>(i) + 1);
    program.inputs.push_back(read_input(L, *program.graph.inputs()[i].value));
    lua_pop(L, 1);
  }
}

/// The program of the table at index 1, without its backend.
GraphProgram read_program(lua_State* L) {
  GraphProgram program;
  bool has_graph = false, has_inputs = false;
  read_fields(L, "field",
              "graph, inputs, backend, backward, fail_on_backend_error, check, isolated, memory_mib and seed",
              [&](const std::string& name) {
                const int type = lua_type(L, -1);
                if (name == "graph" && type == LUA_TSTRING)
                  program.graph = graph::parse(lua_tostring(L, -1)), has_graph = true;
                else if (name == "inputs" && type == LUA_TTABLE)
                  has_inputs = true;  // read when the graph is known
                else if (name == "backend" && (type == LUA_TSTRING || type == LUA_TFUNCTION))
                  program.backend = type == LUA_TSTRING ? lua_tostring(L, -1) : "of the script";
                else if (const std::string gone = text_if_gone(name); !gone.empty())
                  throw InputError(gone);
                else if (name == "backward" && type == LUA_TBOOLEAN)
                  program.backward = lua_toboolean(L, -1) != 0;
                else if (name == "fail_on_backend_error" && type == LUA_TBOOLEAN)
                  program.strict = lua_toboolean(L, -1) != 0;
                else if (name == "isolated" && type == LUA_TNUMBER && lua_tonumber(L, -1) > 0)
                  program.isolated = lua_tonumber(L, -1);
                else if (name == "memory_mib" && lua_isinteger(L, -1) && lua_tointeger(L, -1) > 0)
                  program.memory_mib = lua_tointeger(L, -1);
                else if (name == "check" && type == LUA_TSTRING && std::string_view(lua_tostring(L, -1)) == "numbers")
                  program.check = ProgramCheck::numbers;
                else if (name == "seed" && lua_isinteger(L, -1))
                  program.seed = static_cast<uint64_t>(lua_tointeger(L, -1));
                else
                  return false;
                return true;
              });
  if (!has_graph || !has_inputs)
    throw InputError(
        fmt::format("{}: the table needs a {}", function_name, has_graph ? "list `inputs`" : "text `graph`"));
  graph::verify(program.graph);
  lua_getfield(L, 1, "inputs");
  read_inputs(L, program);
  lua_pop(L, 1);
  return program;
}

int line_of_caller(lua_State* L) {
  lua_Debug info;
  if (!lua_getstack(L, 1, &info)) return 0;
  lua_getinfo(L, "l", &info);
  return info.currentline;
}

[[noreturn]] void throw_failure(const GraphProgram& program, const std::string& failure) {
  throw Error(fmt::format("backend `{}` {}", program.backend, failure));
}

/// In a child process, whose crash is an error here. Returns no tensors.
int run_isolated(const GraphProgram& program, const Backend& backend) {
  at::set_num_threads(1);
  diagnose::ChildLimits limits;
  limits.seconds = program.isolated;
  limits.bytes = program.memory_mib << 20;
  const auto work = [&]() -> std::string {
    try {
      const ProgramOutcome outcome = diagnose::run_program(program, backend);
      return outcome.failure ? outcome.failure->text() : "";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  const diagnose::ChildEnd end = diagnose::run_in_child(work, limits);
  if (end.kind != diagnose::ChildEnd::Kind::finished) throw_failure(program, diagnose::describe(end, limits));
  if (!end.output.empty()) throw_failure(program, end.output);
  return 0;
}

}  // namespace

FindProgram::FindProgram(lua_State* L) : L_(L) { context(L_).find_program = this; }
FindProgram::~FindProgram() { context(L_).find_program = nullptr; }

int run_graph_program(lua_State* L) {
  table_argument(L, {1, function_name, "program"});
  refuse_in_selection(L, "`triage.run_graph`");
  GraphProgram program = on_behalf_of(function_name, [&] { return read_program(L); });
  lua_settop(L, 1);
  const auto caller = std::make_shared<CallingThread>();
  caller->L = L;
  lua_getfield(L, 1, "backend");
  if (lua_isnil(L, -1)) lua_pushliteral(L, "eager"), lua_replace(L, -2);
  const Backend backend = on_behalf_of(function_name, [&] { return backend_at(L, 2, caller); });
  if (FindProgram* const finding = context(L).find_program) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    caller->L = lua_tothread(L, -1);  // this thread may be gone when the program runs
    if (!finding->found) finding->found = FoundProgram{std::move(program), backend, line_of_caller(L)};
    throw Error(std::string(function_name) + ": the program was found");  // the script has done its part
  }
  if (program.isolated > 0) return run_isolated(program, backend);
  ProgramOutcome outcome = diagnose::run_program(program, backend);
  if (outcome.failure) throw_failure(program, outcome.failure->text());
  lua_settop(L, 1);
  reserve(L, outcome.results.outputs.size() + outcome.results.gradients.size(), "too many results");
  for (at::Tensor& output : outcome.results.outputs) push_tensor(L, std::move(output));
  for (at::Tensor& gradient : outcome.results.gradients) push_tensor(L, std::move(gradient));
  return lua_gettop(L) - 1;
}

}  // namespace triage::lua
