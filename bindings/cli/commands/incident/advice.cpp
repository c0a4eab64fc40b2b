#include "bindings/cli/commands/incident/advice.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "bindings/cli/commands/decisions/decision_filter.h"
#include "bindings/cli/commands/incident/incident_report.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

/// As a shell takes it as one word.
std::string quoted(const std::string& path) {
  if (!path.empty() && path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:") ==
                           std::string::npos)
    return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

Json advice(const char* what, std::string text, Json commands = Json::array()) {
  return {{"do", what}, {"text", std::move(text)}, {"commands", std::move(commands)}};
}

/// "version 2 (05adcc29) flagged or failed 80 % of its 96 samples"
std::string told_of(const IncidentVersion& version) {
  return fmt::format("{} flagged{} {} of its {} samples", version.title(),
                     version.failed_samples > 0 ? " or failed" : "", percent(*version.share()), version.samples());
}

/// The one that was live last of those that did at most half as much harm as `live`; null where there is none.
const IncidentVersion* way_back(const PolicyIncident& policy, const IncidentVersion& live) {
  const IncidentVersion* found = nullptr;
  for (const IncidentVersion* version : policy.versions()) {
    const auto share = version->share();
    if (version == &live || version->hash == live.hash || version->went_live == 0 || !share ||
        *share * 2 > *live.share())
      continue;
    if (!found || version->went_live > found->went_live) found = version;
  }
  return found;
}

/// One that did twice as much harm, and was live before.
const IncidentVersion* left_behind(const PolicyIncident& policy, const IncidentVersion& live) {
  const IncidentVersion* found = nullptr;
  for (const IncidentVersion* version : policy.versions()) {
    const auto share = version->share();
    if (version == &live || version->went_live == 0 || !share || *share < 2 * live.share().value_or(0) || *share == 0)
      continue;
    if (!found || version->went_live > found->went_live) found = version;
  }
  return found;
}

/// Puts the file back, where its text is kept as a file that a policy can be.
void add_restore(Json& commands, const PolicyIncident& policy, const IncidentVersion& to, const SourceTexts& texts) {
  const auto kept = texts.find(to.hash, to.kept);
  const bool is_file = kept.contents && kept.contents->files.empty() && !policy::is_packed(kept.contents->source);
  if (is_file && policy.bundle().empty() && !policy.path().empty())
    commands.push_back(fmt::format("cp {} {}", quoted(kept.file), quoted(policy.path())));
}

Json go_back(const PolicyIncident& policy, const IncidentVersion& live, const IncidentVersion& to,
             const SourceTexts& texts) {
  const std::string why = fmt::format("{}, {} {}", told_of(live), to.title(), percent(*to.share()));
  Json commands = Json::array();
  const bool is_here = to.of_start == policy.start();
  if (is_here)
    commands.push_back(policy.bundle().empty() ? fmt::format("policy.rollback({})", to.number)
                                               : fmt::format("bundle.rollback({})", to.bundle_version));
  add_restore(commands, policy, to, texts);
  if (!is_here && commands.empty())
    return advice("restore",
                  fmt::format("{}; a start has come since, so that no rollback leads to it, and its source is "
                              "not kept: put the file back from where you keep its versions",
                              why));
  return advice(is_here ? "rollback" : "restore",
                fmt::format("{}; go back to {}{}", why, to.title(),
                            is_here ? ". The call acts at once, and holds until the file changes"
                                    : ": a start has come since, so that its file has to be put back"),
                std::move(commands));
}

/// Numbers that the host set while `live` was: the last one first of all may be what changed.
Json params_back(const PolicyIncident& policy) {
  Json commands = Json::array();
  for (auto event = policy.events().rbegin(); event != policy.events().rend(); ++event) {
    const std::string kind = field(event->line, "event"), before = field(event->line, "previous_value");
    if (kind == "live") break;
    const bool is_value = before.find(' ') == std::string::npos && !before.empty();  // no "list of 3 numbers"
    if (kind == "param" && is_value)
      commands.push_back(fmt::format("policy.set_param(\"{}\", {})", field(event->line, "param"), before));
  }
  return commands;
}

}  // namespace

Json advice_for(const PolicyIncident& policy, const SourceTexts& texts, bool whole) {
  const IncidentVersion* const live = policy.live();
  if (policy.calls() == 0)
    return advice("nothing",
                  fmt::format("no call {} flagged a sample or failed", whole ? "in the log" : "of this time"));
  if (!live) return advice("unknown", "the log does not say which version is live");
  if (live->share())
    if (const IncidentVersion* const to = way_back(policy, *live)) return go_back(policy, *live, *to, texts);
  if (const IncidentVersion* const worse = left_behind(policy, *live))
    return advice("nothing", fmt::format("{}; {} is live instead{}", told_of(*worse), live->title(),
                                         live->share() ? fmt::format(", with {}", percent(*live->share())) : ""));
  if (!live->share())
    return advice("unknown", fmt::format("no call of {}, which is live, is in the log", live->title()));
  Json params = params_back(policy);
  if (!params.empty())
    return advice(
        "unknown",
        fmt::format("{}, and no other version in the log did better. Params were set since it went live; this "
                    "takes them back",
                    told_of(*live)),
        std::move(params));
  return advice("unknown", fmt::format("{}, and no other version in the log did better: look at what the policy gets",
                                       told_of(*live)));
}

}  // namespace triage::cli
