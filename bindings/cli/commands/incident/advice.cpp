#include "bindings/cli/commands/incident/advice.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

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

/// The same file for each folder that the command may be run in.
std::string absolute(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  return error ? path : found.string();
}

/// The file of the policy, where it is known where a relative path begins; else empty.
std::string file_of(const PolicyIncident& policy, const LogSources& sources) {
  const std::filesystem::path path = policy.path();
  if (path.is_absolute()) return path.string();
  std::set<std::string> found;
  for (const std::string& folder : sources.folders) {
    std::error_code error;
    const auto file = folder / path;
    if (std::filesystem::is_regular_file(file, error)) found.insert(absolute(file.string()));
  }
  return found.size() == 1 ? *found.begin() : "";
}

/// Of samples those that were harmed, under each number that a source had.
struct Harm {
  uint64_t samples = 0, harmed = 0, failed = 0;

  double share() const { return ratio_of(harmed); }
  double failed_share() const { return ratio_of(failed); }

 private:
  double ratio_of(uint64_t count) const {
    return samples == 0 ? 0 : static_cast<double>(count) / static_cast<double>(samples);
  }
};

Harm harm_of(const PolicyIncident& policy, const IncidentVersion& version) {
  Harm harm;
  for (const IncidentVersion* one : policy.versions())
    if (one == &version || (!version.hash.empty() && one->hash == version.hash)) {
      harm.samples += one->samples();
      harm.harmed += one->harmed();
      harm.failed += one->failed_samples;
    }
  return harm;
}

/// "version 2 (05adcc29) flagged or failed 80 % of its 96 samples"
std::string told_of(const IncidentVersion& version) {
  return fmt::format("{} flagged{} {} of its {} samples", version.title(),
                     version.failed_samples > 0 ? " or failed" : "", percent(*version.share()), version.samples());
}

/// The one that was live last of those that did at most half as much harm as `live`, and do not fail more; null: none.
const IncidentVersion* way_back(const PolicyIncident& policy, const IncidentVersion& live) {
  const IncidentVersion* found = nullptr;
  const double most = *live.share() / 2, most_failed = harm_of(policy, live).failed_share();
  for (const IncidentVersion* version : policy.versions()) {
    if (version == &live || version->hash == live.hash || version->went_live == 0 || !version->share()) continue;
    const Harm harm = harm_of(policy, *version);
    if (*version->share() > most || harm.share() > most || harm.failed_share() > most_failed) continue;
    if (!found || version->went_live > found->went_live) found = version;
  }
  return found;
}

/// One that did twice as much harm, and was live before.
const IncidentVersion* left_behind(const PolicyIncident& policy, const IncidentVersion& live) {
  const IncidentVersion* found = nullptr;
  for (const IncidentVersion* version : policy.versions()) {
    const auto share = version->share();
    if (version == &live || version->hash == live.hash || version->went_live == 0 || !share ||
        *share < 2 * live.share().value_or(0) || *share == 0)
      continue;
    if (!found || version->went_live > found->went_live) found = version;
  }
  return found;
}

/// Puts the file back, where its text is kept as a file that a policy can be. Where the folder of the service is not
/// known, no new file is made elsewhere.
void add_restore(Json& commands, const PolicyIncident& policy, const IncidentVersion& to, const LogSources& sources) {
  const auto kept = sources.texts.find(to.hash, to.kept);
  const bool is_file = kept.contents && kept.contents->files.empty() && !policy::is_packed(kept.contents->source);
  if (!is_file || !policy.bundle().empty() || policy.path().empty()) return;
  const std::string source = quoted(absolute(kept.file)), file = file_of(policy, sources);
  commands.push_back(file.empty() ? fmt::format("test -f {1} && cp {0} {1}", source, quoted(policy.path()))
                                  : fmt::format("cp {} {}", source, quoted(file)));
}

/// Where the commands have to be run, if that matters.
std::string where_to_run(const PolicyIncident& policy, const Json& commands) {
  if (commands.empty() || !commands.back().get_ref<const std::string&>().starts_with("test -f ")) return "";
  return fmt::format(
      ". The log does not say in which folder \"{}\" begins: copy the file in the folder that the service runs in",
      policy.path());
}

Json go_back(const PolicyIncident& policy, const IncidentVersion& live, const IncidentVersion& to,
             const LogSources& sources) {
  const std::string why = fmt::format("{}, {} {}", told_of(live), to.title(), percent(*to.share()));
  Json commands = Json::array();
  const bool is_here = to.of_start == policy.start();
  if (is_here)
    commands.push_back(policy.bundle().empty() ? fmt::format("policy.rollback({})", to.number)
                                               : fmt::format("bundle.rollback({})", to.bundle_version));
  add_restore(commands, policy, to, sources);
  if (!is_here && commands.empty())
    return advice("restore",
                  fmt::format("{}; a start has come since, so that no rollback leads to it, and its source is "
                              "not kept: put the file back from where you keep its versions",
                              why));
  const std::string where = where_to_run(policy, commands);
  return advice(is_here ? "rollback" : "restore",
                fmt::format("{}; go back to {}{}{}", why, to.title(),
                            is_here ? ". The call acts at once, and holds until the file changes"
                                    : ": a start has come since, so that its file has to be put back",
                            where),
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

Json advice_for(const PolicyIncident& policy, const LogSources& sources) {
  const IncidentVersion* const live = policy.live();
  if (policy.calls() == 0)
    return advice("nothing",
                  fmt::format("no call {} flagged a sample or failed", sources.whole ? "in the log" : "of this time"));
  if (!live) return advice("unknown", "the log does not say which version is live");
  if (live->share())
    if (const IncidentVersion* const to = way_back(policy, *live)) return go_back(policy, *live, *to, sources);
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
