// Operators within their contracts: a bounded run of the fuzzer, and that it sees what is wrong where something is.
#include "tests/fuzz/faulty_operators.h"
#include "tests/fuzz/operators/campaign.h"
#include "tests/fuzz/operators/targets.h"

#include <doctest/doctest.h>

#include <sstream>

namespace triage::fuzz {
namespace {

CampaignOptions few_calls() {
  CampaignOptions options;
  options.seed = 5;
  options.calls = 20;
  options.hang_seconds = 0.5;
  options.most_deaths = 2;
  return options;
}

/// What the fuzzer says of an operator, without the call: "crash: ...".
std::string fault_of(const Target& target) {
  const CampaignReport report = run_campaign({target}, few_calls());
  return report.targets[0].findings.empty() ? "" : report.targets[0].findings[0].fault;
}

bool begins_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

}  // namespace

TEST_CASE("fuzzer: wild calls within the contracts neither crash nor leak, write, hang or allocate beyond them") {
  const std::vector<Target> targets = contract_targets();
  CHECK(targets.size() > 300);
  CampaignOptions options;
  options.seed = 16;
  options.calls = 20'000;
  options.hang_seconds = 4;
  options.least_successes = 1;
  const CampaignReport report = run_campaign(targets, options);
  std::ostringstream text;
  write_report(text, targets, report, false);
  INFO(text.str());
  CHECK(report.faults == 0);
  CHECK(report.too_few.empty());
  CHECK(report.succeeded > report.calls / 2);
}

TEST_CASE("fuzzer: it sees each kind of fault") {
  CHECK(fault_of(faulty_target("sound")) == "");
  CHECK(begins_with(fault_of(faulty_target("crashes")), "crash: "));
  CHECK(begins_with(fault_of(faulty_target("divides")), "crash: "));
  CHECK(begins_with(fault_of(faulty_target("reads_beyond")), "crash: "));
  CHECK(begins_with(fault_of(faulty_target("writes_beside")), "stray write: "));
  CHECK(begins_with(fault_of(faulty_target("uninitialised")), "stray memory: the results"));
  CHECK(begins_with(fault_of(faulty_target("tells_memory")), "stray memory: the errors"));
  CHECK(begins_with(fault_of(faulty_target("writes_to_input")), "undeclared write: "));
  CHECK(begins_with(fault_of(faulty_target("hangs")), "hang: "));
  CHECK(begins_with(fault_of(faulty_target("allocates")), "allocation: asked for "));
  CHECK(fault_of(faulty_target("allocates", 32 << 20)) == "");
  CHECK(begins_with(fault_of(faulty_target("hands_back")), "untold view: "));
  CHECK(begins_with(fault_of(faulty_target("copies")), "untold copy: "));
  CHECK(begins_with(fault_of(faulty_target("throws_a_number")), "threw something"));
}

TEST_CASE("fuzzer: it goes on after a call that ended its process") {
  const CampaignReport report = run_campaign({faulty_target("crashes"), faulty_target("sound")}, few_calls());
  CHECK(report.targets[0].left_out);
  CHECK(report.targets[1].succeeded == 10);
  CHECK(report.targets[1].faults == 0);
}

TEST_CASE("fuzzer: what is outside of a contract is not called") {
  Target target = faulty_target("crashes");
  target.violation = [](Arguments) { return std::optional<std::string>("argument 'self' is a tensor"); };
  const CampaignReport report = run_campaign({target}, few_calls());
  CHECK(report.faults == 0);
  CHECK(report.targets[0].outside == report.targets[0].calls);
}

TEST_CASE("fuzzer: a seed decides all that happens") {
  const std::vector<Target> all = contract_targets();
  const std::vector<Target> targets(all.begin(), all.begin() + 20);
  CampaignOptions options = few_calls();
  options.calls = 400;
  const CampaignReport once = run_campaign(targets, options), again = run_campaign(targets, options);
  options.seed = 6;
  const CampaignReport other = run_campaign(targets, options);
  for (size_t i = 0; i < targets.size(); ++i) {
    CHECK(once.targets[i].succeeded == again.targets[i].succeeded);
    CHECK(once.targets[i].outside == again.targets[i].outside);
  }
  bool differs = false;
  for (size_t i = 0; i < targets.size(); ++i) differs |= once.targets[i].succeeded != other.targets[i].succeeded;
  CHECK(differs);
}

}  // namespace triage::fuzz
