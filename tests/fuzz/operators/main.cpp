// fuzz_operators: calls every operator that has a contract with synthetic arguments, and says what does not hold.
#include "tests/fuzz/operators/arguments.h"
#include "tests/fuzz/operators/campaign.h"
#include "tests/fuzz/operators/fenced_allocator.h"
#include "tests/fuzz/operators/large_calls.h"
#include "tests/fuzz/operators/targets.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>

namespace {

using namespace triage::fuzz;

/// One call, in this process: for a debugger.
int repeat(const std::vector<Target>& targets, uint64_t seed, int64_t index) {
  for (const Target& target : targets) {
    FencedAllocator::install();
    std::optional<std::string> violation;
    const torch::jit::Stack arguments = arguments_of(target, {seed, index}, violation);
    std::cout << target.name << "(" << describe_arguments(target.op.schema(), arguments) << ")" << std::endl;
    if (violation) {
      std::cout << "  outside of the contract: " << *violation << "\n";
      continue;
    }
    const CallResult result = make_call(target, {seed, index});
    std::cout << "  "
              << (result.outcome == Outcome::succeeded ? "succeeded"
                  : result.text.empty()                ? "not called"
                                                       : "threw: " + result.text)
              << "\n";
    if (!result.fault.empty()) std::cout << "  " << result.fault << "\n";
  }
  return 0;
}

/// A line for each large call: what the contract says and what was taken, of memory and of time.
int print_large_calls(const std::vector<Target>& targets, int64_t count, uint64_t seed) {
  std::cout << "plain,bytes_bound,bytes_peak,bytes_given,excess,ns_bound,ns_taken,operator,arguments\n";
  for (const Target& target : targets)
    for (const LargeCall& call : large_calls(target, count, seed))
      std::cout << call.plain << ',' << call.bound << ',' << call.peak << ',' << call.given << ','
                << excess_of_bytes(call) << ',' << call.time_bound << ',' << call.nanoseconds << ',' << target.name
                << ",\"" << call.arguments << "\"\n"
                << std::flush;
  return 0;
}

/// The time bounds beside the time that large calls take. Bounds are for a slow core: the median operator says how much
/// faster this one is. A bound is wrong where a call takes longer, or where every call is four times further from it
/// than the median.
int check_times(const std::vector<Target>& targets, int64_t count, uint64_t seed) {
  constexpr double most_beyond = 4;
  constexpr int64_t of_a_call = 100'000;  // whatever is given
  std::vector<std::pair<double, std::string>> least;
  size_t wrong = 0;
  for (const Target& target : targets) {
    std::optional<double> of_target;
    for (const LargeCall& call : large_calls(target, count, seed)) {
      if (call.time_bound == 0) continue;  // a view
      const double excess = excess_of_time(call);
      if (call.nanoseconds > call.time_bound + of_a_call && ++wrong)
        std::cout << target.name << " took " << call.nanoseconds << " ns, its bound is " << call.time_bound << ": "
                  << call.arguments << "\n";
      if (call.plain) of_target = std::min(of_target.value_or(excess), excess);
    }
    if (of_target && !has_wide_bound(target)) least.emplace_back(*of_target, target.name);
  }
  if (least.empty()) return 0;
  std::sort(least.begin(), least.end());
  const double median = least[least.size() / 2].first;
  for (const auto& [excess, name] : least)
    if (excess > most_beyond * median && ++wrong)
      std::cout << name << ": its bound is " << excess / median << " times as far from the time taken as the median\n";
  std::cout << least.size() << " operators, the bound of the median is " << median << " times the time taken, " << wrong
            << " wrong\n";
  return wrong ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Calls operators within their contracts with synthetic arguments: none may crash, hang, read stray memory, write "
      "to what it does not declare, or allocate beyond its bound.");
  CampaignOptions options;
  std::vector<std::string> names;
  int64_t at = -1;
  int64_t large = 0;
  int64_t times = 0;
  bool table = false, progress = false, one_fill = false;
  app.add_option("--seed", options.seed, "decides all arguments");
  app.add_option("--calls", options.calls, "how many");
  app.add_option("--first", options.first, "index of the first call");
  app.add_option("--operator", names, "only these: aten::add, or aten::add.Tensor");
  app.add_option("--at", at, "only this call, in this process (with --operator)");
  app.add_option("--hang", options.hang_seconds, "processor seconds after which a call counts as endless");
  app.add_option("--least", options.least_successes, "calls of each operator that must succeed");
  app.add_option("--deaths", options.most_deaths, "of one operator, which is then left out");
  app.add_flag("--one-fill", one_fill, "no second run with another fill of memory");
  app.add_option("--large", large,
                 "so many calls of each on large inputs: a line for each, with its bounds and what it took");
  app.add_option("--times", times, "compare the time bounds with so many calls of each on large inputs; no other load");
  app.add_flag("--print", table, "a line for each operator");
  app.add_flag("--progress", progress, "say how far it is");
  CLI11_PARSE(app, argc, argv);

  std::vector<Target> targets = contract_targets();
  if (!names.empty())
    targets.erase(std::remove_if(targets.begin(), targets.end(),
                                 [&](const Target& target) {
                                   return std::none_of(names.begin(), names.end(), [&](const std::string& name) {
                                     return target.name == name || target.op.schema().name() == name;
                                   });
                                 }),
                  targets.end());
  if (targets.empty()) {
    std::cerr << "fuzz_operators: no such operator has a contract\n";
    return 2;
  }
  if (times > 0) return check_times(targets, times, options.seed);
  if (large > 0) return print_large_calls(targets, large, options.seed);
  if (at >= 0) return repeat(targets, options.seed, at);
  options.compare_fills = !one_fill;
  if (progress) options.progress = &std::cerr;
  const CampaignReport report = run_campaign(targets, options);
  write_report(std::cout, targets, report, table);
  const auto failed = std::count_if(report.targets.begin(), report.targets.end(),
                                    [](const TargetReport& target) { return target.faults > 0; }) +
                      static_cast<std::ptrdiff_t>(report.too_few.size());
  std::cout << static_cast<std::ptrdiff_t>(targets.size()) - failed << " passed, " << failed << " failed\n";
  return failed ? 1 : 0;
}
