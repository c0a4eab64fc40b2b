#include "tests/fuzz/operators/campaign.h"

#include "tests/fuzz/operators/arguments.h"
#include "tests/fuzz/operators/fenced_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

namespace triage::fuzz {
namespace {

/// Of floats: 0.7 and NaN, 0.7 and -1.5, 3e38 and next to nothing.
constexpr unsigned char fills[][2] = {{0x3f, 0xff}, {0x3f, 0xbf}, {0x7f, 0x01}};
constexpr int64_t chunk = 4096;  // calls between two looks

class Campaign {
 public:
  Campaign(const std::vector<Target>& targets, const CampaignOptions& options)
      : targets_(targets),
        options_(options),
        workers_{{targets, {options.seed, options.hang_seconds, options.most_deaths}, chunk},
                 {targets, {options.seed, options.hang_seconds, options.most_deaths}, chunk}},
        skipped_(targets.size()) {
    report_.targets.resize(targets.size());
  }

  CampaignReport run() {
    const int64_t end = options_.first + options_.calls;
    for (int64_t first = options_.first; first < end; first += chunk) {
      const auto count = static_cast<size_t>(std::min(chunk, end - first));
      const auto& fill = fills[first / chunk % 3];
      const Record* one = workers_[0].run(first, count, fill[0], skipped_);
      const Record* other = options_.compare_fills ? workers_[1].run(first, count, fill[1], skipped_) : one;
      for (size_t i = 0; i < count; ++i) look_at(first + static_cast<int64_t>(i), one[i], other[i]);
      if (options_.progress)
        *options_.progress << fmt::format("{} calls, {} succeeded, {} faults\n", report_.calls, report_.succeeded,
                                          report_.faults)
                           << std::flush;
    }
    for (size_t i = 0; i < targets_.size(); ++i)
      if (report_.targets[i].succeeded < options_.least_successes) report_.too_few.push_back(targets_[i].name);
    return std::move(report_);
  }

 private:
  void look_at(int64_t index, const Record& one, const Record& other) {
    const auto position = static_cast<size_t>(index) % targets_.size();
    TargetReport& report = report_.targets[position];
    if (one.outcome == Outcome::none && other.outcome == Outcome::none) return;
    ++report.calls, ++report_.calls;
    report.slowest = std::max(report.slowest, one.nanoseconds);
    const bool within = one.outcome != Outcome::outside;
    report.outside += one.outcome == Outcome::outside;
    report.beyond_budget += one.outcome == Outcome::beyond_budget;
    report.threw += one.outcome == Outcome::threw;
    report.succeeded += one.outcome == Outcome::succeeded;
    report_.within += within;
    report_.succeeded += one.outcome == Outcome::succeeded;
    if (const Record* faulty = *one.fault ? &one : *other.fault ? &other : nullptr)
      return add(index, position, faulty->fault, faulty->text);
    if (one.digest == other.digest || one.outcome == Outcome::none || other.outcome == Outcome::none) return;
    if (one.outcome == Outcome::succeeded && other.outcome == Outcome::succeeded)
      return add(index, position, "stray memory: the results differ with the fill of new memory", "");
    add(index, position, "stray memory: the errors differ with the fill of new memory",
        std::string(one.text) + "\n" + other.text);
  }

  void add(int64_t index, size_t position, const std::string& fault, const std::string& words) {
    TargetReport& report = report_.targets[position];
    ++report.faults, ++report_.faults;
    const std::string kind = fault.substr(0, fault.find(':'));
    const bool died = kind == "crash" || kind == "hang";
    if (died && ++deaths_[position] >= options_.most_deaths) skipped_[position] = report.left_out = true;
    const auto same = [&](const Finding& finding) { return finding.kind == kind; };
    if (std::any_of(report.findings.begin(), report.findings.end(), same)) return;
    report.findings.push_back({kind, fault, described(position, index), index, words});
    if (options_.progress)
      *options_.progress << fmt::format("call {}: {}({}): {}\n", index, targets_[position].name,
                                        report.findings.back().arguments, fault);
  }

  std::string described(size_t position, int64_t index) {
    std::optional<std::string> violation;
    const torch::jit::Stack arguments = arguments_of(targets_[position], {options_.seed, index}, violation);
    return describe_arguments(targets_[position].op.schema(), arguments);
  }

  const std::vector<Target>& targets_;
  CampaignOptions options_;
  Worker workers_[2];
  std::vector<bool> skipped_;
  std::map<size_t, int> deaths_;
  CampaignReport report_;
};

}  // namespace

CampaignReport run_campaign(const std::vector<Target>& targets, const CampaignOptions& options) {
  if (targets.empty()) return {};
  FencedAllocator::install();
  return Campaign(targets, options).run();
}

void write_report(std::ostream& out, const std::vector<Target>& targets, const CampaignReport& report, bool table) {
  for (size_t i = 0; i < targets.size(); ++i) {
    const TargetReport& target = report.targets[i];
    for (const Finding& finding : target.findings)
      out << fmt::format("{}: {}\n  call {}: {}\n{}", targets[i].name, finding.fault, finding.index, finding.arguments,
                         finding.words.empty() ? "" : "  " + finding.words + "\n");
    if (target.left_out) out << targets[i].name << ": left out after " << target.faults << " faults\n";
  }
  for (const std::string& name : report.too_few) out << name << ": too few calls succeeded\n";
  if (table) {
    out << fmt::format("{:<48} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9}\n", "operator", "calls", "within", "gave", "threw",
                       "beyond", "slowest");
    for (size_t i = 0; i < targets.size(); ++i) {
      const TargetReport& target = report.targets[i];
      out << fmt::format("{:<48} {:>7} {:>6.1f}% {:>7} {:>7} {:>7} {:>6} us\n", targets[i].name, target.calls,
                         100.0 * static_cast<double>(target.calls - target.outside) /
                             static_cast<double>(std::max<int64_t>(1, target.calls)),
                         target.succeeded, target.threw, target.beyond_budget, target.slowest / 1000);
    }
  }
  out << fmt::format("{} operators, {} calls: {} within their contracts, {} succeeded, {} faults\n", targets.size(),
                     report.calls, report.within, report.succeeded, report.faults);
}

}  // namespace triage::fuzz
