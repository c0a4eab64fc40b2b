#include "bindings/cli/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

constexpr int failed_status = 1;
int output_error = 0;  // the first of standard output; 0: none that is known
bool is_told = false;  // once is enough
std::string& command_at_exit() {
  static auto* const command = new std::string;  // outlives the destructors of the end
  return *command;
}

/// Standard output as the kernel has it: on some file systems only closing says that bytes are lost.
bool output_takes_all() {
  flush(stdout);
  if (std::ferror(stdout)) return false;
  const int copy = ::dup(STDOUT_FILENO);
  if (copy < 0 || ::close(copy) == 0) return true;
  output_error = errno;
  return false;
}

/// A script prints past `write_bytes`. A device that is full, or a descriptor that is closed, refuses even no bytes.
int error_of_output() {
  if (output_error == 0 && ::write(STDOUT_FILENO, "", 0) < 0) output_error = errno;
  return output_error;
}

void tell_lost_output(const std::string& command) {
  is_told = true;
  const int error = error_of_output();
  say(stderr, "{}: cannot write to standard output{}{}\n", command, error ? ": " : "",
      error ? std::strerror(error) : "");
}

void on_exit_status(int status, void*) {
  if (is_told || output_takes_all()) return;
  tell_lost_output(command_at_exit());
  if (status == 0) ::_exit(failed_status);  // the only way to another status from here
}

}  // namespace

void reserve_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      const int opened = ::open("/dev/null", O_RDONLY);  // the lowest that is free: `fd`
      if (opened > STDERR_FILENO) ::close(opened);
    }
}

void write_bytes(std::FILE* to, const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), to) != bytes.size() && to == stdout && output_error == 0)
    output_error = errno;
}

void flush(std::FILE* to) {
  if (std::fflush(to) != 0 && to == stdout && output_error == 0) output_error = errno;
}

int finish_output(const std::string& command, int status) {
  if (output_takes_all()) return status;
  tell_lost_output(command);
  return status == 0 ? failed_status : status;
}

void check_output_at_exit(const std::string& command) {
  command_at_exit() = command;
  ::on_exit(on_exit_status, nullptr);
}

}  // namespace triage::cli
