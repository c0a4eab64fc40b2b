// What a host sees of its policies, against what the model says.
#include <fmt/format.h>

#include <algorithm>

#include "tests/policy/lives/life.h"

namespace lives {
namespace {

using triage::CandidateKind;

std::string text_of(int number, bool live, bool pinned, bool on_trial, bool taken_back) {
  return fmt::format("{}{}{}{}{}", number, live ? " live" : "", pinned ? " pinned" : "", on_trial ? " on trial" : "",
                     taken_back ? " taken back" : "");
}

std::string expected_versions(const Policy& policy, bool pinned) {
  std::vector<std::pair<int, std::string>> all;
  for (const VersionPtr& version : policy.versions()) {
    const bool live = version == policy.live();
    all.emplace_back(version->number,
                     text_of(version->number, live, live && pinned, version->trial.on, version->taken_back) +
                         fmt::format(" failed {}, ", version->failures));
  }
  if (const auto& candidate = policy.candidate())
    all.emplace_back(candidate->version->number,
                     text_of(candidate->version->number, false, false, candidate->version->trial.on, false) +
                         fmt::format(" failed {} candidate, ", candidate->version->failures));
  std::sort(all.begin(), all.end());
  std::string text;
  for (const auto& [number, one] : all) text += one;
  return text;
}

std::string found_versions(const triage::Policy& policy) {
  std::string text;
  for (const auto& version : policy.versions())
    text += text_of(version.number, version.live, version.pinned, version.on_trial, version.taken_back) +
            fmt::format(" failed {}{}, ", version.failures, version.candidate ? " candidate" : "");
  return text;
}

std::string expected_candidate(const Policy& policy) {
  const auto& last = policy.last_candidate();
  if (!last) return "no candidate";
  const bool is_shadow = last->kind == CandidateKind::shadow;
  const Comparison& of = *last->comparison;
  return fmt::format("{} {}, version {} beside {}, restarts {}: live {}, candidate {}, failed {}, not comparable {}",
                     to_string(last->kind), to_string(last->state), last->version->number, of.live_version,
                     last->restarts, is_shadow ? of.calls : of.live_calls, of.calls, of.failures, of.not_comparable);
}

std::string found_candidate(const triage::Policy& policy) {
  const auto report = policy.candidate();
  if (!report) return "no candidate";
  return fmt::format("{} {}, version {} beside {}, restarts {}: live {}, candidate {}, failed {}, not comparable {}",
                     to_string(report->kind), to_string(report->state), report->version, report->live_version,
                     report->restarts, report->live.calls, report->candidate.calls, report->candidate.failures,
                     report->shadow.not_comparable);
}

std::string expected_wholes(const Release& release) {
  std::string text;
  for (const WholePtr& whole : release.wholes()) {
    const bool live = whole == release.live();
    text += text_of(whole->number, live, live && release.pinned, whole->on_trial(), whole->taken_back()) + " of";
    for (const VersionPtr& part : whole->parts) text += fmt::format(" {}", part->number);
    text += ", ";
  }
  return text;
}

std::string found_wholes(const triage::Bundle& bundle) {
  std::string text;
  for (const auto& version : bundle.versions()) {
    text += text_of(version.number, version.live, version.pinned, version.on_trial, version.taken_back) + " of";
    for (const auto& [name, number] : version.policies) text += fmt::format(" {}", number);
    text += ", ";
  }
  return text;
}

std::string expected_rest(const Policy& policy, bool pinned) {
  return fmt::format("live {}{}, {}error, {} went live, {} reverted", policy.live()->number, pinned ? " pinned" : "",
                     policy.error ? "" : "no ", policy.went_live, policy.reverted);
}

std::string found_rest(const triage::Policy& policy) {
  const auto version = policy.version();
  const auto counts = policy.statistics();
  return fmt::format("live {}{}, {}error, {} went live, {} reverted", version.number, version.pinned ? " pinned" : "",
                     version.last_error ? "" : "no ", counts.reloads, counts.reverted);
}

std::string found_error(const std::optional<triage::LoadFailure>& error) {
  return error ? "last_error: " + error->message + "\n" : "";
}

}  // namespace

std::string Life::difference() const {
  if (!is_started_) return {};
  std::string text;
  const auto compare = [&](const std::string& of, const std::string& found, const std::string& expected) {
    if (found != expected) text += fmt::format("{}: {}\n  expected {}\n", of, found, expected);
  };
  for (size_t i = 0; i < model_.policies.size(); ++i) {
    const Policy& policy = model_.policies[i];
    const std::string of = fmt::format("policy {}", i);
    compare(of, found_versions(host_->policy(i)), expected_versions(policy, model_.pinned));
    compare(of, found_candidate(host_->policy(i)), expected_candidate(policy));
    compare(of, found_rest(host_->policy(i)), expected_rest(policy, model_.pinned));
  }
  if (!model_.is_bundle()) return text.empty() ? text : text + found_error(host_->policy(0).version().last_error);
  compare("the bundle", found_wholes(host_->bundle()), expected_wholes(model_));
  const auto error = host_->bundle().version().last_error;
  compare("the bundle", error ? "an error" : "no error", model_.error ? "an error" : "no error");
  return text.empty() ? text : text + found_error(error);
}

}  // namespace lives
