#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/lua/testing/policy_tests.h"

namespace triage::cli {

/// One policy file, tested. With an `error` it could not be loaded, and there is nothing else.
struct TestedFile {
  std::string path;
  std::string error;
  int error_line = 0;
  double seconds = 0;
  lua::PolicyTests tested;

  bool is_broken() const { return !error.empty(); }
  size_t failed() const;  // of its tests
  bool ok() const { return !is_broken() && failed() == 0; }
  size_t rules_taken() const;
  bool covered() const { return !tested.tests.empty() && rules_taken() == tested.rules.size(); }
};

struct TestRun {
  std::vector<TestedFile> files;
  bool full_coverage = false;  // a rule that took no sample is a failure, and so is a file without tests

  size_t tests() const;
  size_t failed() const;  // of the tests
  size_t broken() const;  // files that could not be loaded, whose tests nobody knows
  bool ok() const;
};

/// For a person, after each file and at the end.
void print_tested(const TestedFile& file, bool full_coverage);
void print_summary(const TestRun& run);

nlohmann::ordered_json to_json(const TestRun& run);

/// The form that CI systems read: a `testsuite` a file, a `testcase` a test; a file that cannot be loaded is an `error`.
/// Always well-formed XML 1.0, whatever the names of tests and the messages hold.
std::string to_junit(const TestRun& run);

}  // namespace triage::cli
