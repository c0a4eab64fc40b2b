#include "programs.h"
#include "tests/paths.h"

#include <triage/front_end.h>

#include <fstream>
#include <stdexcept>

namespace triage::parity {
namespace {

std::vector<Program> read_programs() {
  const std::string start = "-- program: ", breaks = " (breaks)";
  std::vector<Program> list;
  std::ifstream file(triage::test::source_dir() + "/tests/parity/programs.txt");
  int line_number = 0;
  for (std::string line; std::getline(file, line);) {
    ++line_number;
    if (line.rfind(start, 0) == 0) {
      std::string name = line.substr(start.size());
      const bool marked =
          name.size() > breaks.size() && name.compare(name.size() - breaks.size(), name.npos, breaks) == 0;
      if (marked) name.resize(name.size() - breaks.size());
      list.push_back(
          {name, std::string(static_cast<size_t>(line_number), '\n'), marked});  // messages name the line of the file
    } else if (!list.empty()) {
      list.back().source += line + "\n";
    }
  }
  return list;
}

}  // namespace

const std::vector<Program>& programs() {
  static const std::vector<Program> list = read_programs();
  return list;
}

const Program& program(const std::string& name) {
  for (const Program& program : programs())
    if (program.name == name) return program;
  throw std::invalid_argument("no program is named " + name);
}

namespace {

std::unique_ptr<Script> script_of(const Program& program) {
  ScriptOptions options;
  options.path = "programs.lua";
  return find_front_end(options.path)(program.source, options);
}

}  // namespace

std::vector<std::string> input_names(const Program& program) { return script_of(program)->signature().inputs; }

Tensors run_script(const Program& program, const Tensors& given) {
  return script_of(program)->call(given, {}, std::nullopt);
}

}  // namespace triage::parity
