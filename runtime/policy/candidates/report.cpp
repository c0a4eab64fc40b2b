// A report as text and as JSON.
#include <fmt/format.h>
#include <triage/candidate.h>
#include <triage/config.h>
#include <triage/location.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/messages/enum_names.h"

namespace triage {
namespace {

using Json = nlohmann::ordered_json;

double us(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1000; }

std::string side_text(const char* name, int version, const CandidateSide& side) {
  std::string text = fmt::format("  {:<10} version {}: {} calls", name, version, side.calls);
  if (side.failures > 0) text += fmt::format(", {} failed", side.failures);
  if (side.samples > 0)
    text += fmt::format(", {} of {} samples flagged ({:.3g} %)", side.flagged, side.samples,
                        100 * static_cast<double>(side.flagged) / static_cast<double>(side.samples));
  if (side.p99.count() > 0)
    text += fmt::format("; time p50 {:.3g} us, p90 {:.3g} us, p99 {:.3g} us", us(side.p50), us(side.p90), us(side.p99));
  return text + '\n';
}

std::string flag_name(const FlagDifference& flag) {
  return fmt::format("{} @ {}", flag.code_name, ErrorLocation::name(flag.location));
}

std::string shadow_text(const ShadowReport& shadow) {
  std::string text = fmt::format("  compared   {} calls, {} samples; {} failed, {} dropped, {} not comparable\n",
                                 shadow.compared, shadow.samples, shadow.failed, shadow.dropped, shadow.not_comparable);
  if (!shadow.why_not.empty()) text += fmt::format("             not comparable: {}\n", shadow.why_not);
  text += fmt::format("  flagged    {} samples only by the live version, {} only by the candidate\n", shadow.only_live,
                      shadow.only_candidate);
  for (const FlagDifference& flag : shadow.flags)
    text += fmt::format("             {}: {} only live, {} only candidate, such as sample {}\n", flag_name(flag),
                        flag.only_live, flag.only_candidate, flag.example);
  text += fmt::format("  repaired   {} samples differently", shadow.different);
  if (shadow.different > 0)
    text += fmt::format(", {} of them flagged by neither; largest difference {:.6g}", shadow.different_unflagged,
                        shadow.max_difference);
  else if (shadow.max_difference > 0)
    text += fmt::format("; largest difference of another output {:.6g}", shadow.max_difference);
  text += '\n';
  for (const SampleDifference& example : shadow.examples)
    text += fmt::format("             {}sample {}, output {}: {:.6g}\n",
                        example.decision_id.empty() ? "" : fmt::format("decision {}, ", example.decision_id),
                        example.sample, example.output, example.difference);
  return text;
}

/// JSON has no infinity.
Json number(double value) {
  if (std::isfinite(value)) return value;
  return value > 0 ? "inf" : "nan";
}

Json side_json(const CandidateSide& side) {
  return {{"calls", side.calls},    {"failures", side.failures}, {"samples", side.samples}, {"flagged", side.flagged},
          {"p50_us", us(side.p50)}, {"p90_us", us(side.p90)},    {"p99_us", us(side.p99)}};
}

Json shadow_json(const ShadowReport& shadow) {
  Json flags = Json::array(), examples = Json::array();
  for (const FlagDifference& flag : shadow.flags)
    flags.push_back({{"location", ErrorLocation::name(flag.location)},
                     {"code", flag.code_name},
                     {"only_live", flag.only_live},
                     {"only_candidate", flag.only_candidate},
                     {"example", flag.example}});
  for (const SampleDifference& example : shadow.examples)
    examples.push_back({{"decision_id", example.decision_id},
                        {"sample", example.sample},
                        {"output", example.output},
                        {"difference", number(example.difference)}});
  return {{"compared", shadow.compared},
          {"failed", shadow.failed},
          {"dropped", shadow.dropped},
          {"not_comparable", shadow.not_comparable},
          {"why_not", shadow.why_not},
          {"samples", shadow.samples},
          {"only_live", shadow.only_live},
          {"only_candidate", shadow.only_candidate},
          {"flags", std::move(flags)},
          {"different", shadow.different},
          {"different_unflagged", shadow.different_unflagged},
          {"max_difference", number(shadow.max_difference)},
          {"examples", std::move(examples)}};
}

}  // namespace

const char* to_string(CandidateKind kind) noexcept {
  return messages::name_in<CandidateKind::canary>({"shadow", "canary"}, kind);
}

const char* to_string(CandidateState state) noexcept {
  return messages::name_in<CandidateState::ended>({"running", "promoted", "reverted", "ended"}, state);
}

std::string CandidateReport::text() const {
  std::string text = fmt::format("{}: {} of {}, version {} (source {}), share {:g} %: {}", policy, to_string(kind),
                                 path, version, hash, 100 * share, to_string(state));
  if (!reason.empty()) text += ": " + reason;
  text += '\n';
  if (restarts > 0)
    text += fmt::format("  begun anew {} time{}, because another version went live; counts since then:\n", restarts,
                        restarts == 1 ? "" : "s");
  text += side_text("live", live_version, live);
  text += side_text("candidate", version, candidate);
  if (kind == CandidateKind::shadow) text += shadow_text(shadow);
  if (state == CandidateState::running && promote_after > 0)
    text += fmt::format("  promotion  after {} calls\n", promote_after);
  if (!last_failure.empty()) text += fmt::format("  failure    {}\n", last_failure);
  for (const std::string& note : notes) text += fmt::format("  note       {}\n", note);
  return text;
}

std::string CandidateReport::json() const {
  Json object = {{"kind", to_string(kind)},
                 {"state", to_string(state)},
                 {"policy", policy},
                 {"path", path},
                 {"version", version},
                 {"hash", hash},
                 {"live_version", live_version},
                 {"live_hash", live_hash},
                 {"share", share},
                 {"since", static_cast<double>(since.time_since_epoch() / std::chrono::milliseconds(1)) / 1000},
                 {"restarts", restarts},
                 {"reason", reason},
                 {"last_failure", last_failure},
                 {"notes", notes},
                 {"live", side_json(live)},
                 {"candidate", side_json(candidate)}};
  if (kind == CandidateKind::canary) object["promote_after"] = promote_after;
  if (kind == CandidateKind::shadow) object["shadow"] = shadow_json(shadow);
  return object.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace triage
