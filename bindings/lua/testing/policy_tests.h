#pragma once
#include "bindings/lua/testing/coverage.h"

#include <triage/front_end.h>
#include <triage/runtime.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// The tests that a policy file brings along, as `triage test` runs them.
namespace triage::lua {

struct TestOptions {
  ScriptOptions script;           // its `path` names the file
  std::string backend = "eager";  // what runs the captured graph
  /// Every test is run on batches of these sizes as well: rows of its inputs repeated or left out, in every input whose
  /// first dim is as long as the first input's. There its `check` is not asked; plain and captured must agree.
  std::vector<int64_t> batches;
  std::function<void(Runtime&)> give = {};  // what `script` has of the host, to a Runtime; null: nothing
};

struct TestResult {
  std::string name;
  std::string failure;  // empty: passed
  int line = 0;         // of the failure where it has one, else of the test's `check`
  double seconds = 0;
};

struct PolicyTests {
  std::string policy;
  std::vector<TestResult> tests;
  std::vector<Coverage::RuleCoverage> rules;
  std::string coverage_error;  // why `rules` counts too little: the policy failed only where its rules were watched
  size_t graphs = 0;
  std::vector<std::string> graph_breaks;  // why it runs as a script, where it does
};

/// Loads the policy and runs its tests. A test passes when `check` is content with what the policy's function returns
/// as a plain script, and when the captured policy gives the same bits, at capture and when its graph runs again; where
/// an input requires grad, the gradients too. Where the policy has a `verify`, each law that it promises is one more
/// test, tried with what the tests call it with. Random numbers start from the same seed each time. A test that fails
/// does not keep the next from running. Throws LoadError and LimitError where the file cannot be loaded.
PolicyTests run_policy_tests(std::string_view source, const TestOptions& options);

}  // namespace triage::lua
