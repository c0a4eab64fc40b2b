// TRIAGE_ASSERT where it is on. assertions_off.cpp includes the same header without.
#ifndef TRIAGE_ASSERTIONS
#define TRIAGE_ASSERTIONS
#endif
#include "runtime/messages/assert.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "tests/house/assertions.h"

namespace {

struct Ended {
  int status = 0;
  std::string printed;  // on standard error
};

Ended in_fork(void (*work)()) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t process = ::fork();
  REQUIRE(process >= 0);
  if (process == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGABRT, SIG_DFL);  // doctest's
    ::dup2(pipe[1], STDERR_FILENO);
    work();
    ::_exit(0);
  }
  ::close(pipe[1]);
  Ended ended;
  std::array<char, 512> part;
  for (ssize_t size; (size = ::read(pipe[0], part.data(), part.size())) > 0;) ended.printed.append(part.data(), size);
  ::close(pipe[0]);
  REQUIRE(::waitpid(process, &ended.status, 0) == process);
  return ended;
}

int evaluated = 0;

bool holds(bool answer) {
  ++evaluated;
  return answer;
}

}  // namespace

TEST_CASE("a false assertion prints file, line and condition, and aborts") {
  const Ended ended = in_fork([] { TRIAGE_ASSERT(holds(false)); });
  CHECK(WIFSIGNALED(ended.status));
  CHECK(WTERMSIG(ended.status) == SIGABRT);
  const std::string line = "assertions.cpp:" + std::to_string(__LINE__ - 3) + ": assertion failed: holds(false)\n";
  CAPTURE(ended.printed);
  REQUIRE(ended.printed.size() > line.size());
  CHECK(ended.printed.substr(ended.printed.size() - line.size()) == line);
}

TEST_CASE("a true assertion is evaluated once; a build without assertions evaluates none") {
  evaluated = 0;
  TRIAGE_ASSERT(holds(true));
  CHECK(evaluated == 1);
  CHECK(triage::test::evaluated_without_assertions() == 0);
}
