#include "runtime/policy/core/candidate_slot.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <utility>

#include "runtime/policy/afterwards.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/loading.h"
#include "runtime/policy/one_at_a_time.h"

namespace triage::policy {
namespace {

std::string task_of(const Candidate& candidate) {
  const std::string share = fmt::format("{:g} %", 100 * candidate.share);
  if (candidate.kind == CandidateKind::shadow) return fmt::format("it runs in the shadow of {} of the calls", share);
  return fmt::format("it answers {} of the calls", share);
}

}  // namespace

std::shared_ptr<Candidate> CandidateSlot::running() const {
  const std::lock_guard lock(policy_.line().mutex());
  return policy_.line().candidate();
}

void CandidateSlot::check_none() const {
  const std::shared_ptr<Candidate> candidate = running();
  if (!candidate) return;
  throw InputError(fmt::format(
      "policy '{}' has a candidate already, version {} (source {}, a {}); a policy has one at a time. End it "
      "with end_candidate, or make it live with promote, and then start the next one",
      policy_.name(), candidate->version->number, candidate->version->hash, to_string(candidate->kind)));
}

VersionInfo CandidateSlot::start(NewSource source, const Make& make) {
  const Loading::Cancellable no_reload(nullptr);
  const OneAtATime alone(
      starting_, [&] { return "the start of a candidate of " + policy_.log().title(); },
      [&] {
        return policy_.log().title() +
               ": a script that is loaded for a candidate cannot start another one (by a function of the host that it "
               "calls?)";
      });
  check_none();
  const std::shared_ptr<PolicyVersion> live = policy_.line().live();
  if (live->contents.source == source.source && is_unchanged(source.file, live->contents.files))
    throw InputError(
        fmt::format("policy '{}': the candidate '{}' has the source of version {}, which is live (source {}); there "
                    "is nothing to try",
                    policy_.name(), source.path, live->number, live->hash));
  check_runtime();
  return begin(make(make_version(std::move(source))), *live);
}

VersionInfo CandidateSlot::start_stopped(std::shared_ptr<Candidate> candidate, const PolicyVersion& tried_beside) {
  const OneAtATime alone(
      starting_, [&] { return "the start of a candidate of " + policy_.log().title(); },
      [&] { return policy_.log().title() + " is starting a candidate, whose script has asked for the reload"; });
  if (const auto now = running(); now && now->by_gate && now->version->hash == candidate->version->hash)
    return now->version->info();  // the same source was stopped again
  end_stopped();
  check_none();
  check_runtime();
  candidate->by_gate = true;
  return begin(candidate, tried_beside);
}

void CandidateSlot::end_stopped() {
  if (const auto candidate = running(); candidate && candidate->by_gate)
    end("by a reload, which brought another source");
}

void CandidateSlot::check_runtime() const {
  if (policy_.runtime().candidate_thread().start()) return;
  throw InputError(
      fmt::format("policy '{}' has outlived its Runtime, and a candidate needs the Runtime's thread; "
                  "start candidates while the Runtime lives",
                  policy_.name()));
}

std::shared_ptr<PolicyVersion> CandidateSlot::make_version(NewSource source) {
  const std::string path = source.path;
  const auto note_refusal = [&](const std::exception& error) {
    policy_.count_refusal();
    policy_.log().write(LogLevel::error, fmt::format("the candidate '{}' was refused: {}", path, error.what()),
                        error.what());
    policy_.log().note({.event = "refused", .by = "candidate", .reason = error.what()});
  };
  try {
    return make_successor(policy_, std::move(source), Becomes::candidate);
  } catch (const Error& error) {
    note_refusal(error);
    throw;
  } catch (const std::exception& error) {
    note_refusal(error);
    throw LoadError(error.what(), {path, 0});
  }
}

/// Where another version is live by now than the one that it was tried beside, nothing is known of how it answers.
VersionInfo CandidateSlot::begin(const std::shared_ptr<Candidate>& candidate, const PolicyVersion& tried_beside) {
  PolicyVersion& version = *candidate->version;
  VersionInfo info;
  {
    VersionLine& line = policy_.line();
    const std::lock_guard lock(line.mutex());
    if (line.now()->version.get() != &tried_beside) version.trial.begin({}, trial_length(policy_.runtime().options()));
    line.check_params(version);
    policy_.give_number(version);
    version.since = std::chrono::system_clock::now();
    info = version.info();
    info.candidate = true;
    line.set_candidate(candidate);
    ++started_;
  }
  afterwards(policy_.runtime().logger(), [&] {
    policy_.log().write(
        LogLevel::info,
        fmt::format("version {} is a candidate (source {}): {}", version.number, version.hash, task_of(*candidate)), {},
        version.number);
    policy_.log().note({.event = "candidate_started",
                        .version = version.number,
                        .hash = version.hash,
                        .kept = policy_.log().keep_source(version),
                        .kind = to_string(candidate->kind),
                        .share = candidate->share});
    policy_.report_params(version);
  });
  return info;
}

std::optional<CandidateReport> CandidateSlot::report(std::optional<int> pinned) const {
  std::shared_ptr<const Candidate> candidate;
  std::shared_ptr<const Comparison> comparison;
  {
    const std::lock_guard lock(policy_.line().mutex());
    candidate = policy_.line().candidate();
    if (!candidate) return last_report_;
    comparison = policy_.line().comparison();
  }
  CandidateReport report = report_of(*candidate, *comparison, policy_.name(), {});
  report.state = CandidateState::running;  // where its end is decided, that has not happened yet
  if (report.kind == CandidateKind::canary && !policy_.runtime().options().count_flags)
    report.notes.emplace_back("flagged_ratio is not checked: RuntimeOptions::count_flags is off");
  if (pinned)
    report.notes.push_back(fmt::format("version {} is pinned: the candidate is not promoted before unpin", *pinned));
  return report;
}

void CandidateSlot::finish_promoted(const std::shared_ptr<Candidate>& candidate, const std::string& reason) {
  try {
    finish(candidate, reason, {});
  } catch (const std::exception&) {  // there is no memory for its report
    const std::lock_guard lock(policy_.line().mutex());
    policy_.line().forget_candidate();
    last_report_.reset();
    ++promoted_;
    throw;
  }
  policy_.log().write(LogLevel::info,
                      fmt::format("the candidate, version {}, was promoted: {}", candidate->version->number, reason),
                      {}, candidate->version->number);
}

void CandidateSlot::revert(const std::shared_ptr<Candidate>& candidate, const std::string& reason,
                           const Source& source) {
  const auto report = end_as(CandidateState::reverted, candidate, reason, source);
  if (!report) return;
  afterwards(policy_.runtime().logger(), [&] {
    policy_.log().write(LogLevel::error,
                        fmt::format("the candidate, version {}, was reverted, version {} answers all calls: {}",
                                    report->version, policy_.line().live()->number, reason),
                        reason, report->version);
  });
}

/// Where this throws, it goes on.
std::optional<CandidateReport> CandidateSlot::end_as(CandidateState end, const std::shared_ptr<Candidate>& candidate,
                                                     const std::string& reason, const Source& source) {
  if (!candidate->decide(end)) return std::nullopt;
  try {
    return finish(candidate, reason, source);
  } catch (const std::exception&) {
    candidate->resume();
    throw;
  }
}

/// For whoever decided its end. Where this throws, nothing has changed.
CandidateReport CandidateSlot::finish(const std::shared_ptr<Candidate>& candidate, const std::string& reason,
                                      const Source& source) {
  constexpr size_t most_ends = 16;
  VersionLine& line = policy_.line();
  const std::shared_ptr<const Comparison> comparison = [&] {
    const std::lock_guard lock(line.mutex());
    return line.comparison();
  }();
  CandidateReport report = report_of(*candidate, *comparison, policy_.name(), reason);
  std::optional<CandidateReport> last_report = report;
  {
    const std::lock_guard lock(line.mutex());
    const bool is_told = report.state != CandidateState::ended && !policy_.file().empty() && ends_.size() < most_ends;
    if (is_told) ends_.push_back({report.state, line.now()->version->number, reason, source});
    try {
      line.set_candidate(nullptr);
    } catch (const std::exception&) {
      if (is_told) ends_.pop_back();
      throw;
    }
    last_report_.swap(last_report);
    promoted_ += report.state == CandidateState::promoted;
    reverted_ += report.state == CandidateState::reverted;
  }
  afterwards(policy_.runtime().logger(), [&] {
    note_end(*candidate, report, reason);
    post_end(candidate, report);
    policy_.runtime().wake_watchers();
  });
  return report;
}

void CandidateSlot::note_end(const Candidate& candidate, const CandidateReport& report,
                             const std::string& reason) const {
  const char* event = "candidate_ended";
  if (report.state == CandidateState::promoted) event = "candidate_promoted";
  if (report.state == CandidateState::reverted) event = "candidate_reverted";
  policy_.log().note({.event = event,
                      .version = candidate.version->number,
                      .hash = candidate.version->hash,
                      .reason = reason,
                      .kind = to_string(candidate.kind)});
}

void CandidateSlot::post_end(const std::shared_ptr<Candidate>& candidate, const CandidateReport& report) {
  if (!candidate->canary.on_end) return;
  policy_.runtime().candidate_thread().post([report, candidate, log = policy_.log()] {
    try {
      candidate->canary.on_end(report);
    } catch (const std::exception& error) {
      log.write(LogLevel::error, fmt::format("on_end threw: {}", error.what()), error.what());
    } catch (...) {
      log.write(LogLevel::error, "on_end threw something that is not a std::exception");
    }
  });
}

CandidateReport CandidateSlot::end() {
  auto report = end("by the host");
  if (!report)
    throw InputError(
        fmt::format("policy '{}' has no candidate to end; candidate() has the report of the last one", policy_.name()));
  return std::move(*report);
}

/// Nothing where there is none.
std::optional<CandidateReport> CandidateSlot::end(const std::string& by) {
  const std::shared_ptr<Candidate> candidate = running();
  auto report = candidate ? end_as(CandidateState::ended, candidate, by, {}) : std::nullopt;
  if (!report) return std::nullopt;
  afterwards(policy_.runtime().logger(), [&] {
    policy_.log().write(LogLevel::info, fmt::format("the candidate, version {}, was ended {}", report->version, by), {},
                        report->version);
  });
  return report;
}

void CandidateSlot::forget() noexcept {
  try {
    const std::shared_ptr<Candidate> candidate = running();
    if (candidate && candidate->decide(CandidateState::ended)) finish(candidate, "the Runtime is gone", {});
  } catch (const std::exception&) {  // no memory for its report; it runs no more
  }
}

std::vector<CandidateSlot::End> CandidateSlot::take_ends() {
  const std::lock_guard lock(policy_.line().mutex());
  return std::exchange(ends_, {});
}

void CandidateSlot::read(PolicyStatistics& statistics) const {
  statistics.candidates = started_;
  statistics.promoted = promoted_;
  statistics.candidates_reverted = reverted_;
}

}  // namespace triage::policy
