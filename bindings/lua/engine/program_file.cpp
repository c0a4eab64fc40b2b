#include "bindings/lua/engine/program_file.h"

#include "bindings/lua/state/protected.h"
#include "runtime/files/disk.h"

#include <sstream>

namespace triage::lua {
namespace {

/// The lines before `line`, without comments at the beginning: those are of an earlier program.
std::string preamble_of(const std::string& source, int line) {
  std::istringstream in(source);
  std::string text, preamble;
  bool in_header = true;
  for (int number = 1; number < line && std::getline(in, text); ++number) {
    in_header = in_header && text.rfind("--", 0) == 0 && text.rfind("--[", 0) != 0;
    if (!in_header) preamble += text + "\n";
  }
  return preamble;
}

}  // namespace

ProgramFile read_program_file(const std::string& path) {
  const std::string source = files::read_text(path);
  StateOptions options;
  options.sandboxed = false;
  options.limits = {0, 0, 0, 0};
  options.path = path;
  ProgramFile file;
  file.state = make_script_state(std::move(options));
  FindProgram find;
  try {
    in_protected_call(file.state->lua(), [&](lua_State* L) {
      push_chunk(*file.state, source, "@" + path);
      lua_call(L, 0, 0);
    });
  } catch (const Error&) {
    if (!find.found) throw;
  }
  if (!find.found)
    throw InputError("'" + path +
                     "' calls no triage.run_graph; expected a program that triage has written, or one like it");
  file.program = std::move(find.found->program);
  file.program.preamble = preamble_of(source, find.found->line);
  file.backend = find.found->backend;
  return file;
}

}  // namespace triage::lua
