// The trace for a C++ host (Diagnostics::trace_dir): forks, threads, reloads and flags. `triage report` reads it:
// tests/cli/commands/report_test.cpp.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <triage/diagnostics.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/messages/debugging/trace_file.h"

namespace {

namespace fs = std::filesystem;
using triage::messages::TraceEvent;

constexpr const char* traced_source =
    "return policy { name = 'p', run = function(z) local f = flag_nan(z, 'here') return fix(z, f, 'z'), f end }";

/// The trace is on while it lives.
class Traced {
 public:
  Traced() { triage::set_diagnostics({.trace_dir = folder_.string()}); }
  ~Traced() {
    off();
    fs::remove_all(folder_);
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

  static void off() { triage::set_diagnostics({}); }
  std::vector<std::vector<std::string>> files() const {
    std::vector<std::vector<std::string>> all;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      std::ifstream file(entry.path());
      std::vector<std::string> lines;
      for (std::string line; std::getline(file, line);) lines.push_back(line);
      all.push_back(std::move(lines));
    }
    return all;
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("triage-trace-" + std::to_string(::getpid()));
};

size_t count(const std::vector<std::string>& lines, const std::string& part) {
  size_t found = 0;
  for (const std::string& line : lines) found += line.find(part) != std::string::npos;
  return found;
}

bool is_whole(const std::string& line) { return line.starts_with("{\"event\":\"") && line.ends_with("}"); }

}  // namespace

TEST_CASE("the trace has the names that a policy gives to codes") {
  const Traced traced;
  {
    triage::Runtime runtime({.log = [](const triage::LogRecord&) {}});
    runtime
        .load_source("return policy {codes = {MISSING = 4}, run = function(z) return push(err.new(z), 4, 'here') end}",
                     "p.lua")
        .run({at::ones({4, 3})});
  }
  Traced::off();
  REQUIRE(traced.files().size() == 1);
  CHECK(count(traced.files()[0], R"(["here","MISSING",4])") == 1);
}

TEST_CASE("N01: a host traces loads, reloads, captures and flags; off writes nothing") {
  const Traced traced;
  CHECK_FALSE(triage::get_diagnostics().trace_dir.empty());
  triage::RuntimeOptions options;
  options.log = [](const triage::LogRecord&) {};
  {
    triage::Runtime runtime(options);
    const triage::Policy policy = runtime.load_source(traced_source, "p.lua");
    at::Tensor z = at::ones({4, 3});
    z[1][0] = NAN;
    for (int call = 0; call < 5; ++call) policy.run({z});
    policy.replace("return policy { name = 'p', run = function(z) return oops }");
  }
  Traced::off();
  CHECK(triage::get_diagnostics().trace_dir.empty());
  triage::Runtime(options).load_source(traced_source, "q.lua").run({at::ones({4, 3})});
  REQUIRE(traced.files().size() == 1);
  const std::vector<std::string> lines = traced.files()[0];
  CHECK(count(lines, "\"format\":1") == 1);
  CHECK(count(lines, "{\"event\":\"capture\"") == 1);
  CHECK(count(lines, "{\"event\":\"graph\",\"stage\":\"captured\"") == 1);
  CHECK(count(lines, "the new source was refused") == 1);
  // The first call at once, the others when 100 ms have passed, or the policy goes.
  CHECK(count(lines, "\"policy\":\"p\",\"calls\":1,\"samples\":4,\"counts\":[[\"here\",\"NAN\",1]]") == 1);
  CHECK(count(lines, "\"policy\":\"p\",\"calls\":4,\"samples\":16,\"counts\":[[\"here\",\"NAN\",4]]") == 1);
  CHECK(count(lines, "q.lua") == 0);
}

TEST_CASE("N01: a forked child traces to a file of its own, also while threads of the parent write") {
  const Traced traced;
  std::vector<std::thread> threads;
  const auto write = [](const std::string& who) {
    for (int i = 0; i < 500; ++i)
      triage::messages::trace([&] { return TraceEvent("policy").text("policy", who).number("version", i); });
  };
  for (int i = 0; i < 4; ++i) threads.emplace_back(write, "parent");
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      write("child");
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  const auto files = traced.files();
  REQUIRE(files.size() == 5);
  size_t parents = 0;
  for (const std::vector<std::string>& lines : files) {
    for (const std::string& line : lines) CHECK(is_whole(line));
    CHECK(count(lines, "\"format\":1") == 1);
    const size_t of_parent = count(lines, "\"parent\""), of_child = count(lines, "\"child\"");
    CHECK(of_parent + of_child == (of_parent ? 2000 : 500));
    CHECK((of_parent == 0 || of_child == 0));
    parents += of_parent > 0;
  }
  CHECK(parents == 1);
}

TEST_CASE("N01: text of an event stays one line of JSON, whatever is in it") {
  const Traced traced;
  triage::messages::trace([] {
    return TraceEvent("policy")
        .text("message", "a \"quoted\" \\ line\nand\tanother\x1b[31m \xff")
        .number("version", -1);
  });
  REQUIRE(traced.files().size() == 1);
  const std::string line = traced.files()[0].at(1);
  CHECK(is_whole(line));
  CHECK(line.find(R"("message":"a \"quoted\" \\ line\nand\tanother\\x1b[31m \\xff","version":-1)") !=
        std::string::npos);
}
