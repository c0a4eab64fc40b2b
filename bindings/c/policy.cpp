// Versions, statistics and state of policies.
#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "bindings/c/thread_context.h"

#include <triage/runtime.h>

#include <string>
#include <utility>
#include <vector>

namespace triage::c {
namespace {

TriageVersion told_version(const VersionInfo& info) {
  TriageVersion version{};
  tell_standing(version, info);
  version.candidate = info.candidate;
  copy_hash(version.hash, info.hash);
  version.failures = info.failures;
  version.path = info.path.c_str();
  return version;
}

TriageStatistics told(const PolicyStatistics& all) {
  const CallStatistics& calls = all.total;
  TriageStatistics told{};
  told.calls = calls.calls();
  told.live = calls.answered(Answered::live);
  told.canary = calls.answered(Answered::canary);
  told.previous = calls.answered(Answered::previous);
  told.last_good = calls.answered(Answered::last_good);
  told.passed_through = calls.answered(Answered::passed_through);
  told.failed = calls.answered(Answered::failed);
  told.graph = calls.form(CallForm::graph);
  told.segments = calls.form(CallForm::segments);
  told.script = calls.form(CallForm::script);
  told.capture = calls.form(CallForm::capture);
  const auto failures = [&](FailureKind kind) { return calls.failures[static_cast<size_t>(kind)]; };
  told.policy_failures = failures(FailureKind::policy);
  told.limit_failures = failures(FailureKind::limit);
  told.graph_break_failures = failures(FailureKind::graph_break);
  told.input_failures = failures(FailureKind::input);
  told.other_failures = failures(FailureKind::other);
  told.samples = calls.samples;
  told.flagged = calls.flagged;
  told.repaired = calls.repaired;
  told.uncounted = calls.uncounted;
  told.recompiles = calls.recompiles;
  told.graph_breaks = calls.graph_breaks;
  told.reloads = all.reloads;
  told.refused = all.refused;
  told.reverted = all.reverted;
  told.time_ns = static_cast<uint64_t>(calls.time.count());
  const auto quantile = [&](double share) { return static_cast<uint64_t>(calls.latency_quantile(share).count()); };
  told.p50_ns = quantile(0.5);
  told.p90_ns = quantile(0.9);
  told.p99_ns = quantile(0.99);
  return told;
}

}  // namespace

TriageStatus version(TriagePolicy* policy, TriageVersion* version) {
  return guarded("version", [&] {
    check_size(required(version, "version", "the address of a TriageVersion"), "version");
    context.versions = {HandleUse(policy)->version()};
    fill(*version, told_version(context.versions.front()));
  });
}

TriageStatus versions(TriagePolicy* policy, TriageVersion* versions, size_t* count) {
  return guarded("versions", [&] {
    const auto find = [&]() -> const auto& { return context.versions = HandleUse(policy)->versions(); };
    fill_array(versions, count, "versions", find, told_version);
  });
}

TriageStatus reload(TriagePolicy* policy, int32_t* result) {
  return guarded("reload", [&] { tell(HandleUse(policy)->reload(), result); });
}

TriageStatus replace(TriagePolicy* policy, const char* source, size_t length, int32_t* result) {
  return guarded("replace", [&] {
    const HandleUse replaced(policy);
    tell(replaced->replace({text(source, "source").data(), length}), result);
  });
}

TriageStatus rollback(TriagePolicy* policy, int32_t number) {
  return guarded("rollback", [&] { HandleUse(policy)->rollback(number); });
}

TriageStatus pin(TriagePolicy* policy, int32_t number) {
  return guarded("pin", [&] { HandleUse(policy)->pin(number); });
}

TriageStatus unpin(TriagePolicy* policy, int32_t* result) {
  return guarded("unpin", [&] { tell(HandleUse(policy)->unpin(), result); });
}

TriageStatus statistics(TriagePolicy* policy, TriageStatistics* statistics) {
  return guarded("statistics", [&] {
    check_size(required(statistics, "statistics", "the address of a TriageStatistics"), "statistics");
    fill(*statistics, told(HandleUse(policy)->statistics()));
  });
}

TriageStatus save_state(TriagePolicy* policy, const char* file) {
  return guarded("save_state", [&] { HandleUse(policy)->save_state(text(file, "file")); });
}

TriageStatus load_state(TriagePolicy* policy, const char* file) {
  return guarded("load_state", [&] { HandleUse(policy)->load_state(text(file, "file")); });
}

TriageStatus reset_state(TriagePolicy* policy, const char* key) {
  return guarded("reset_state", [&] {
    const HandleUse reset(policy);
    if (key)
      reset->reset_state(key);
    else
      reset->reset_state();
  });
}

}  // namespace triage::c
