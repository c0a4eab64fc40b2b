#include "runtime/policy/core/policy_core.h"

#include <fmt/format.h>

#include "runtime/policy/afterwards.h"

namespace triage::policy {

PolicyCore::PolicyCore(std::shared_ptr<RuntimeCore> runtime, Releases& releases, std::string path,
                       std::filesystem::path file)
    : runtime_(std::move(runtime)),
      releases_(releases),
      file_(std::move(file)),
      log_(runtime_, "policy", std::move(path)),
      random_(std::make_shared<random::Sequence>(runtime_->options().seed)),
      line_(runtime_),
      state_(*this),
      candidates_(*this) {}

void PolicyCore::begin_with(const PolicyVersion& version) {
  log_.set_name(version.name);
  flags_trace_.set_policy(version.name);
  line_.begin_with(version);
}

void PolicyCore::give_number(PolicyVersion& version) {
  const int number = line_.next_number();
  counts_.add(number, version.hash, version.counters);
  version.number = number;
}

/// A number that is set to what it was is no event; of lists and tensors only the kind is told, and each is one.
void PolicyCore::set_param(const std::string& name, ParamValue value) {
  const bool is_number = value.is_number(), is_noted = log_.notes();
  std::string text = is_noted ? value.text() : "";
  const std::optional<ParamValue> before = line_.set_param(name, std::move(value));
  if (!is_noted) return;
  afterwards(runtime_->logger(), [&] {
    const std::string previous = before ? before->text() : "";
    if (is_number && text == previous) return;
    log_.note({.event = "param", .param = name, .value = std::move(text), .previous_value = previous});
  });
}

void PolicyCore::count_refusal() {
  const std::lock_guard lock(line_.mutex());
  ++refused_;
}

void PolicyCore::count_reversal(const PolicyVersion& failed) noexcept {
  ++reverted_;
  line_.known_sources().forget(failed.contents);
}

PolicyStatistics PolicyCore::statistics() {
  const std::lock_guard lock(line_.mutex());
  PolicyStatistics all;
  counts_.read(all);
  all.reloads = line_.went_live();
  all.refused = refused_;
  all.reverted = reverted_;
  candidates_.read(all);
  return all;
}

void PolicyCore::report_failure(PolicyVersion& version, const std::exception& error) const {
  // A policy that fails on every batch must not drown the log.
  const uint64_t count = version.failures.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((count & (count - 1)) != 0) return;
  log_.write(LogLevel::warn,
             fmt::format("version {} failed (failure {} of this version): {}", version.number, count, error.what()),
             error.what(), version.number);
}

void PolicyCore::report_violations(const PolicyVersion& version, const Violations& violations) const {
  const uint64_t count = version.violations.fetch_add(1, std::memory_order_relaxed) + 1;
  if ((count & (count - 1)) != 0) return;
  const std::string found = violations.text(version.signature);
  log_.write(LogLevel::warn,
             fmt::format("version {} leaves declared ranges (call {} that does): {}", version.number, count, found), {},
             version.number);
  log_.note({.event = "violated", .version = version.number, .hash = version.hash, .reason = found});
}

void PolicyCore::report_params(const PolicyVersion& version) const {
  std::vector<std::string> names;
  {
    const std::lock_guard lock(line_.mutex());
    names = unfitting(version, line_.params());
  }
  for (const std::string& param : names)
    log_.write(LogLevel::warn,
               fmt::format("param '{}' has its default in version {}: the value that was set for it does "
                           "not fit",
                           param, version.number),
               {}, version.number);
}

void PolicyCore::report_live(const PolicyVersion& version) {
  report_params(version);
  state_.tell(version);
  if (version.number == 1) return;
  std::string trial;
  if (version.trial.on()) trial = ", on trial for its first calls";
  if (!version.trial.tried())
    trial += "; it was not captured in advance, because it failed on synthetic inputs: " + version.trial.reason();
  log_.write(LogLevel::info, fmt::format("version {} is live (source {}){}", version.number, version.hash, trial), {},
             version.number);
}

}  // namespace triage::policy
