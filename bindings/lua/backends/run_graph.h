#pragma once
#include <lua.hpp>

#include <optional>

#include <triage/backend.h>

#include "runtime/backends/graph_program.h"

/// `triage.run_graph`: graph programs (runtime/backends/graph_program.h) as scripts call them.
namespace triage::lua {

struct FoundProgram {
  graph::GraphProgram program;
  Backend backend;
  int line = 0;  // of the call
};

/// While alive, `triage.run_graph` runs nothing in scripts of this state: the first call is noted here, for
/// whoever wants the program itself, and ends the script with an error.
class FindProgram {
 public:
  explicit FindProgram(lua_State* L);
  ~FindProgram();
  FindProgram(const FindProgram&) = delete;
  FindProgram& operator=(const FindProgram&) = delete;
  std::optional<FoundProgram> found;

 private:
  lua_State* L_;
};

/// triage.run_graph{graph = , inputs = , backend = , backward = , check = , seed = }: the outputs, then the gradients.
int run_graph_program(lua_State* L);

}  // namespace triage::lua
