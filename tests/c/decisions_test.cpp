// The decision log of a runtime of the C interface.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "host.h"

namespace triage::test {
namespace {

namespace fs = std::filesystem;

struct Lines {
  std::mutex mutex;
  std::vector<std::string> all;
};

}  // namespace

TEST_CASE("a decision is a line of the file and of the callback") {
  const fs::path folder = fs::temp_directory_path() / ("triage-c-decisions-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string file = (folder / "decisions.jsonl").string();
  Lines lines;
  const char* const drop[] = {"path"};
  TriageDecisionLogOptions log = {};
  log.size = sizeof log;
  log.file = file.c_str();
  log.user = &lines;
  log.on_line = [](const char* line, size_t length, void* user) {
    auto& to = *static_cast<Lines*>(user);
    const std::lock_guard lock(to.mutex);
    to.all.emplace_back(line, length);
  };
  log.skip_events = 1;
  log.drop = drop;
  log.drop_count = 1;
  TriageRuntimeOptions options = {};
  options.decisions = &log;
  {
    const Host host(repair_source, options);
    HostTensor z({1, NAN}, {2, 1}), clean({1, 2}, {2, 1});
    const char* const ids[] = {"s0", "s1"};
    TriageRunOptions run = {};
    run.size = sizeof run;
    run.decision_id = "request-7";
    run.sample_ids = ids;
    run.sample_id_count = 2;
    host.run({&z.managed}, &run);
    host.run({&clean.managed});
    check_ok(api().flush_decisions(host.runtime));
    REQUIRE(lines.all.size() == 1);
    for (const char* text : {"request-7", "s1", "\"NAN\"", "logits"}) {
      CAPTURE(std::string(text));
      CHECK(lines.all[0].find(text) != std::string::npos);
    }
    CHECK(lines.all[0].find("\"path\"") == std::string::npos);
    std::ifstream in(file);
    std::string line;
    REQUIRE(std::getline(in, line));
    CHECK(line == lines.all[0]);
  }
  fs::remove_all(folder);
}

TEST_CASE("what a decision log refuses") {
  const Host host;
  check_failed(api().flush_decisions(host.runtime), TRIAGE_ERROR_ARGUMENT, {"no decision log"});
  TriageDecisionLogOptions log = {};
  log.size = sizeof log;
  TriageRuntimeOptions options = {};
  options.size = sizeof options;
  options.decisions = &log;
  TriageRuntime* runtime = host.runtime;
  check_failed(api().create_runtime(&options, &runtime), TRIAGE_ERROR_CONFIG, {"file", "on_line"});
  CHECK(runtime == nullptr);
  log.file = "/proc/no/such/file";
  check_failed(api().create_runtime(&options, &runtime), TRIAGE_ERROR_FILE, {"/proc/no"});
  log.max_files = -3;
  check_failed(api().create_runtime(&options, &runtime), TRIAGE_ERROR_ARGUMENT, {"decisions->max_files", "-3"});
  log.max_files = 0;
  log.size = 8;
  check_failed(api().create_runtime(&options, &runtime), TRIAGE_ERROR_ARGUMENT, {"decisions->size"});
}

}  // namespace triage::test
