// Logs of captures as a host asks for them.
#include "tests/logs.h"
#include "tests/lua/policies/policies.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace {

using triage::Diagnostics;
using triage::test::RestoreDiagnostics;

std::string field(const triage::LogRecord& record, std::string_view name) {
  for (const auto& one : record.fields)
    if (one.name == name) return one.value;
  return {};
}

constexpr const char* diagnosed_source = "return policy { name = 'p', run = function(z) return (z * 2):relu() end }";

}  // namespace

TEST_CASE("D01, D02: artefacts reach the log of a Runtime, a record each, with its text as a field") {
  const RestoreDiagnostics restore;
  struct Seen {
    triage::LogLevel level;
    std::string text, artefact, graph, body;
  };
  std::vector<Seen> seen;
  triage::RuntimeOptions options;
  options.log = [&](const triage::LogRecord& record) {
    seen.push_back({record.level, std::string(record.text), field(record, "artefact"), field(record, "graph"),
                    field(record, "body")});
  };
  triage::Runtime runtime(options);
  const triage::Policy policy = runtime.load_source(diagnosed_source);
  triage::set_diagnostics({.logs = "graph,+capture,reload"});
  CHECK(triage::get_diagnostics().logs == "+capture,graph,reload");
  policy.run({at::ones({3, 2})});
  const auto of = [&](const std::string& artefact) {
    return std::find_if(seen.begin(), seen.end(), [&](const Seen& one) { return one.artefact == artefact; });
  };
  REQUIRE(of("graph") != seen.end());
  CHECK(of("graph")->level == triage::LogLevel::info);
  CHECK(of("graph")->graph == "p");
  CHECK(of("graph")->text == "graph `p`, 2 operations");
  CHECK(triage::graph::print(triage::graph::parse(of("graph")->body)) == of("graph")->body);
  CHECK(std::count_if(seen.begin(), seen.end(), [](const Seen& one) {
          return one.artefact == "capture" && one.level == triage::LogLevel::debug;
        }) == 2);
  const size_t before = seen.size();
  for (int i = 0; i < 10; ++i) policy.run({at::ones({3, 2})});
  CHECK(seen.size() == before);  // warm calls log nothing
}

TEST_CASE("D03: a backend that fails in C++ says how to see where; `verbose` shows it") {
  const RestoreDiagnostics restore;
  triage::register_backend("fails_in_torch", [](const auto&, const auto&) -> std::unique_ptr<triage::Executable> {
    TORCH_CHECK(false, "no such kernel");
  });
  std::string warnings;
  triage::RuntimeOptions options;
  options.backend = "fails_in_torch";
  options.log = [&](const triage::LogRecord& record) { warnings += record.text; };
  triage::Runtime runtime(options);
  const auto warning = [&] {
    warnings.clear();
    runtime.load_source(diagnosed_source).run({at::ones({3, 2})});
    return warnings;
  };
  const std::string brief = warning();
  CHECK(brief.find("no such kernel (TRIAGE_VERBOSE=1 shows its C++ side)") != std::string::npos);
  CHECK(brief.find("raised from") == std::string::npos);
  triage::set_diagnostics({.verbose = true});
  const std::string whole = warning();
  CAPTURE(whole);  // a record is one line
  CHECK(whole.find("no such kernel\\nException raised from") != std::string::npos);
  CHECK(whole.find("TRIAGE_VERBOSE") == std::string::npos);
}

TEST_CASE("D01: wrong diagnostics are refused, and change nothing") {
  const RestoreDiagnostics restore;
  triage::set_diagnostics({.logs = "graph"});
  CHECK_THROWS_WITH_AS(triage::set_diagnostics({.logs = "fusion,grap"}),
                       doctest::Contains("there is no log 'grap'; did you mean 'graph'?"), triage::ConfigError);
  CHECK_THROWS_AS(triage::set_diagnostics({.logs = "fusion", .log_file = "/no/such/folder/x"}), triage::FileError);
  CHECK(triage::get_diagnostics().logs == "graph");
  CHECK(triage::get_diagnostics().log_file.empty());
  triage::set_diagnostics({.logs = "debug"});
  CHECK(triage::logs_help().find("aot_graphs") != std::string::npos);
  triage::set_diagnostics({});
  CHECK(triage::get_diagnostics().logs.empty());
}

TEST_CASE("D11: a policy of another name runs as a script, with the same results") {
  const RestoreDiagnostics restore;
  triage::RuntimeOptions options;
  options.log = triage::test::no_log();
  triage::Runtime runtime(options);
  triage::set_diagnostics({.function = "other"});
  const triage::Policy policy = runtime.load_source(diagnosed_source);
  const at::Tensor z = at::randn({3, 2});
  for (int i = 0; i < 3; ++i) CHECK(at::equal(policy.run({z})[0], (z * 2).relu()));
  CHECK(policy.cache().graphs == 0);
  triage::set_diagnostics({.function = "p"});
  policy.run({z});
  CHECK(policy.cache().graphs == 1);
}

TEST_CASE("D05, D12: a host turns the debug folder and the programs for the minifier on; it starts no process") {
  const RestoreDiagnostics restore;
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("triage-diagnostics-" + std::to_string(::getpid()));
  std::vector<std::string> warnings;
  triage::RuntimeOptions options;
  options.backend = "faulty_compile:relu";
  options.log = [&](const triage::LogRecord& record) {
    if (record.level == triage::LogLevel::warn) warnings.emplace_back(record.text);
  };
  triage::Runtime runtime(options);
  const triage::Policy policy = runtime.load_source(diagnosed_source);
  triage::set_diagnostics({.debug_dir = root / "debug", .repro_after = "capture", .repro_dir = root / "repro"});
  CHECK(triage::get_diagnostics().repro_after == "capture");
  CHECK(triage::get_diagnostics().debug_dir == root / "debug");
  policy.run({at::ones({3, 2})});
  triage::set_diagnostics({});
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.is_regular_file()) files.insert(entry.path().filename().string());
  CHECK(files.contains("graph_runnable.lua"));
  CHECK(files.contains("minifier_launcher.lua"));
  CHECK_FALSE(files.contains("repro.lua"));
  CHECK_FALSE(files.contains("minify.log"));
  CHECK(std::any_of(warnings.begin(), warnings.end(),
                    [](const std::string& text) { return text.find("; `triage minify ") != std::string::npos; }));
  std::filesystem::remove_all(root);
  runtime.load_source(diagnosed_source).run({at::ones({3, 2})});
  CHECK_FALSE(std::filesystem::exists(root));  // off again
  for (const char* use : {"local d = triage.config.debug_dir", "triage.config.repro_after = 'capture'"})
    CHECK_THROWS_AS(runtime.load_source("return policy { run = function(z) " + std::string(use) + " return z end }")
                        .run({at::ones({2})}),
                    triage::Error);
  CHECK_THROWS_WITH_AS(triage::set_diagnostics({.repro_after = "dynamo"}),
                       "the minifier cannot begin after 'dynamo'; expected 'capture' or 'aot'", triage::ConfigError);
  CHECK_THROWS_AS(triage::set_diagnostics({.repro_level = 0}), triage::ConfigError);
  triage::set_diagnostics({.repro_after = "aot", .repro_backends = "own.lua", .verbose = true});
  CHECK(triage::get_diagnostics().repro_after == "aot");
  CHECK(triage::get_diagnostics().repro_backends == "own.lua");
  CHECK(triage::get_diagnostics().verbose);
  triage::set_diagnostics({});
  CHECK_FALSE(triage::get_diagnostics().verbose);
  CHECK(triage::get_diagnostics().repro_after.empty());
}

TEST_CASE("captures one graph as the host of the next test" * doctest::skip()) {
  triage::Runtime().load_source(diagnosed_source).run({at::ones({3, 2})});
}

namespace {

/// What that host leaves, with `variables` in its environment.
struct HostRun {
  int status;
  std::set<std::string> files;
  std::string log;

  explicit HostRun(const std::string& variables) {
    const std::filesystem::path root =
        std::filesystem::temp_directory_path() / ("triage-host-" + std::to_string(::getpid()));
    std::filesystem::create_directory(root);
    const std::string host = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command = "cd '" + root.string() + "' && " + variables + " '" + host +
                                "' --no-skip -tc='captures one graph as the host of the next test' > out 2> log";
    status = std::system(command.c_str());
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) files.insert(entry.path().filename());
    std::ifstream text(root / "log");
    log = {std::istreambuf_iterator<char>(text), {}};
    std::filesystem::remove_all(root);
  }
};

}  // namespace

TEST_CASE("D13: a host gets graph.dot, and starts no process that draws it") {
  const HostRun host("TRIAGE_COMPILE_DEBUG=graph.svg");
  CHECK(host.status == 0);
  CHECK(host.files.contains("graph.dot"));
  CHECK_FALSE(host.files.contains("graph.svg"));
  CHECK(host.log.find("this program is not `triage`, and starts no other") != std::string::npos);
}

TEST_CASE("D05: what is wrong with the minifier's variables is a warning to a host, which goes on") {
  const HostRun host("TRIAGE_REPRO_AFTER=capture TRIAGE_REPRO_LEVEL=7");
  CHECK(host.status == 0);
  CHECK_MESSAGE(host.log.find("TRIAGE_REPRO_LEVEL=7: the level of the minifier is 1 ") != std::string::npos, host.log);
  CHECK(host.log.find("; nothing is written for the minifier") != std::string::npos);
  CHECK_FALSE(host.files.contains("triage_repro"));
}
