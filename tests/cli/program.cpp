#include "tests/cli/program.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
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

namespace {

/// LibTorch reads it at its start.
std::string number_of_threads() {
  const char* const number = std::getenv("OMP_NUM_THREADS");
  return number ? number : "";
}

/// The program, started once: a fork of it goes on with each call (tests/cli/forks/forks.cpp).
class StartedProgram {
 public:
  StartedProgram() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::setenv("LD_PRELOAD", TRIAGE_FORKS, 1);
      if (::dup2(ends[1], 3) == 3) ::execl(program_path().c_str(), "triage", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    calls_ = ends[0];
  }

  /// Whether a call would go as if the program started now.
  bool is_as_started() const { return number_of_threads() == threads_; }
  /// The status, as waitpid has it.
  int call(const std::vector<std::string>& texts) const {
    std::string message;
    for (const std::string& text : texts) message.append(text.c_str(), text.size() + 1);
    const uint64_t size = message.size();
    message.insert(0, reinterpret_cast<const char*>(&size), sizeof size);
    for (size_t done = 0; done < message.size();) {
      const ssize_t count = ::send(calls_, message.data() + done, message.size() - done, MSG_NOSIGNAL);
      REQUIRE(count > 0);
      done += static_cast<size_t>(count);
    }
    int status = -1;
    REQUIRE(::read(calls_, &status, sizeof status) == sizeof status);
    return status;
  }

 private:
  const std::string threads_ = number_of_threads();
  int calls_ = -1;
};

}  // namespace

Ran triage_program(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  static const StartedProgram program;
  if (!program.is_as_started()) {
    std::string command = "\"$triage\"";
    for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
    return shell(folder, command);
  }
  const TemporaryFolder output;
  std::vector<std::string> texts = {folder.path(), output / "out", output / "err"};
  for (char** variable = ::environ; *variable; ++variable) texts.emplace_back(*variable);
  texts.insert(texts.end(), {"", program_path()});
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  const int status = program.call(texts);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(output / "out"), read_bytes(output / "err")};
}

Ran shell(const TemporaryFolder& folder, const std::string& command) {
  const TemporaryFolder output;
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
