#include "bindings/lua/engine/program_file.h"

#include "bindings/lua/state/protected.h"
#include "runtime/files/disk.h"

#include <fmt/format.h>
#include <triage/error.h>

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

/// Whatever kind of error it is to a script, here it is one of the file that was given.
[[noreturn]] void throw_unreadable(const std::string& path, const Error& error) {
  throw InputError(
      fmt::format("\"{}\" does not get as far as its graph: {}\nExpected a program that triage has written, "
                  "or one like it, in one piece; have it written again, or mend that line",
                  path, error.what()),
      error.source());
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
  FindProgram find(file.state->lua());
  try {
    in_protected_call(file.state->lua(), [&](lua_State* L) {
      push_chunk(*file.state, source, "@" + path);
      lua_call(L, 0, 0);
    });
  } catch (const FileError&) {
    if (!find.found) throw;
  } catch (const Error& error) {
    if (!find.found) throw_unreadable(path, error);
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
