#include "tests/cli/program.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

nlohmann::json parse_json(const std::string& text) { return nlohmann::json::parse(text); }

nlohmann::json Ran::json() const { return parse_json(out); }

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string program_path() { return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "triage"; }

Ran triage_program(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  std::string command = "\"$triage\"";
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  return shell(folder, command);
}

Ran shell(const TemporaryFolder& folder, const std::string& command) {
  TemporaryFolder output;
  const std::string all = "cd " + shell_quoted(folder.path().string()) + " && triage=" + shell_quoted(program_path()) +
                          " && { " + command + "\n} > " + shell_quoted(output / "out") + " 2> " +
                          shell_quoted(output / "err") + " < /dev/null";
  const int status = std::system(all.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(output / "out"), read_bytes(output / "err")};
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

const char* python() {
  const char* path = std::getenv("TRIAGE_PYTHON");
  return path && *path ? path : nullptr;
}
