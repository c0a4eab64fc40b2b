#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "bindings/cli/call.h"
#include "bindings/cli/command.h"
#include "bindings/cli/terminal.h"
#include "bindings/cli/testing/report.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "runtime/files/disk.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> paths;
  std::vector<int64_t> batches;
  std::string backend = "eager";
  std::string junit;
  bool full_coverage = false, json = false;
};

/// Folders with all below them, in the order of their names.
std::vector<std::string> policy_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      read_source(path);  // a wrong name is wrong use: nothing is tested then
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied))
      if (entry.path().extension() == ".lua" && entry.is_regular_file()) found.push_back(entry.path().string());
    if (found.empty()) throw FileError(fmt::format("there is no policy under \"{}\": no file ends in .lua", path));
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

TestedFile test_file(const std::string& path, const Options& options) {
  TestedFile file;
  file.path = path;
  lua::TestOptions test_options;
  test_options.script.path = path;
  // What a policy prints belongs between the results only where a person reads them.
  if (options.json) test_options.script.print = [](const std::string& text) { say(stderr, "{}\n", text); };
  test_options.backend = options.backend;
  test_options.batches = options.batches;
  const auto start = std::chrono::steady_clock::now();
  try {
    file.tested = lua::run_policy_tests(read_source(path), test_options);
  } catch (const lua::rewriter::SyntaxError& error) {
    file.error = error.what();
    file.error_line = error.line;
  } catch (const Error& error) {
    file.error = error.what();
    file.error_line = error.source().line;
  } catch (const std::exception& error) {
    file.error = error.what();
  }
  file.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return file;
}

void write_junit(const std::string& path, const TestRun& run) {
  const std::string report = to_junit(run);
  files::OutputFile out(path);
  out.write(report.data(), report.size());
  out.commit();
}

int test(const Options& options) {
  check_backend(options.backend);
  TestRun run;
  run.full_coverage = options.full_coverage;
  const std::vector<std::string> files = policy_files(options.paths);
  if (!options.junit.empty())
    for (const std::string& path : files) check_destination("--junit", options.junit, path);
  for (const std::string& path : files) {
    {
      Progress progress;
      progress.show(fmt::format("testing {} ({} of {}) ...", path, run.files.size() + 1, files.size()));
      run.files.push_back(test_file(path, options));
    }
    if (!options.json) print_tested(run.files.back(), options.full_coverage);
  }
  if (options.json)
    print_json(to_json(run));
  else
    print_summary(run);
  if (!options.junit.empty()) write_junit(options.junit, run);
  return run.ok() ? 0 : 1;
}

}  // namespace

void add_test(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "test", "Run the tests that policies bring along, as scripts and captured, and tell which rules they reach");
  command->add_option("PATHS", options->paths, "Lua files that return policies, or folders of them")->required();
  command
      ->add_option("--batches", options->batches,
                   "run each test on batches of these sizes as well (its rows repeated or left out)")
      ->delimiter(',')
      ->check(CLI::Range(0, 1'000'000));
  command->add_flag("--full-coverage", options->full_coverage, "a rule that takes no sample in any test is a failure");
  command->add_option("--backend", options->backend, "what runs the captured graph")->capture_default_str();
  command->add_option("--junit", options->junit, "write a JUnit XML report")->type_name("FILE");
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([options, &action] { action = [options] { return test(*options); }; });
}

}  // namespace triage::cli
