// The admin port: what operators ask and do.
#include <c10/core/GradMode.h>

#include <ctime>

#include "page.h"
#include "server.h"

using nlohmann::json;

namespace {

/// In UTC, or null for a version that never was live.
json time_json(std::chrono::system_clock::time_point time) {
  if (time.time_since_epoch().count() == 0) return nullptr;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  char text[32];
  std::strftime(text, sizeof text, "%FT%TZ", gmtime_r(&seconds, &utc));
  return text;
}

json version_json(const triage::VersionInfo& version) {
  return {{"number", version.number},          {"hash", version.hash},
          {"since", time_json(version.since)}, {"live", version.live},
          {"pinned", version.pinned},          {"on_trial", version.on_trial},
          {"taken_back", version.taken_back},  {"candidate", version.candidate},
          {"failures", version.failures}};
}

json statistics_json(const triage::CallStatistics& calls) {
  json answered = json::object(), errors = json::array();
  for (size_t by = 0; by < triage::answered_count; ++by)
    answered[triage::to_string(static_cast<triage::Answered>(by))] = calls.answered(static_cast<triage::Answered>(by));
  for (const triage::FlagCount& flag : calls.flags)
    errors.push_back(
        {{"location", triage::ErrorLocation::name(flag.location)}, {"code", flag.code_name}, {"samples", flag.count}});
  return {{"calls", calls.calls()},
          {"answered", answered},
          {"samples", calls.samples},
          {"flagged", calls.flagged},
          {"repaired", calls.repaired},
          {"errors", errors},
          {"p50_us", static_cast<double>(calls.latency_quantile(0.5).count()) / 1000},
          {"p99_us", static_cast<double>(calls.latency_quantile(0.99).count()) / 1000}};
}

json policy_json(const triage::Policy& policy) {
  json versions = json::array();
  for (const triage::VersionInfo& version : policy.versions()) versions.push_back(version_json(version));
  const triage::VersionInfo live = policy.version();
  const std::optional<triage::CandidateReport> candidate = policy.candidate();
  return {{"name", policy.name()},
          {"path", live.path},
          {"live", live.number},
          {"error", live.last_error ? json(live.last_error->message) : json()},
          {"versions", versions},
          {"candidate", candidate ? json::parse(candidate->json()) : json()},
          {"statistics", statistics_json(policy.statistics().total)}};
}

triage::Policy policy_named(const triage::Runtime& runtime, const std::string& name) {
  for (const triage::Policy& policy : runtime.policies())
    if (policy.name() == name) return policy;
  throw std::out_of_range("no policy '" + name + "'");
}

int version_of(const httplib::Request& request) {
  if (!request.has_param("version")) throw std::invalid_argument("which version? add ?version=N");
  return number("version", request.get_param_value("version"), 1, std::numeric_limits<int>::max());
}

/// The source in the body, beside the live version.
template <class Options>
Options candidate_options(const httplib::Request& request) {
  Options options;
  if (request.has_param("share")) options.share = number("share", request.get_param_value("share"), 0.0, 1.0);
  return options;
}

/// Not a web page of somebody else in an operator's browser. The names are fixed: others may be made to lead here.
bool may_command(const httplib::Request& request) {
  if (!request.has_header("Origin")) return true;  // no browser
  const std::string host = request.get_header_value("Host"), name = host.substr(0, host.find(':'));
  return (name == "localhost" || name == "127.0.0.1") && request.get_header_value("Origin") == "http://" + host;
}

/// POST /policies/NAME/COMMAND
void command(const triage::Policy& policy, const std::string& name, const httplib::Request& request,
             const std::string& body) {
  const c10::NoGradGuard no_grad;  // as in /predict: what is captured here is for its calls
  if (name == "canary")
    return static_cast<void>(policy.canary_source(body, candidate_options<triage::CanaryOptions>(request)));
  if (name == "shadow")
    return static_cast<void>(policy.shadow_source(body, candidate_options<triage::ShadowOptions>(request)));
  if (name == "promote") return policy.promote();
  if (name == "end") return static_cast<void>(policy.end_candidate());
  if (name == "rollback") return policy.rollback(version_of(request));
  if (name == "pin") return policy.pin(version_of(request));
  if (name == "unpin" && !policy.version().pinned)  // would load the file, and so undo a rollback
    throw std::invalid_argument("no version is pinned; nothing was done");
  if (name == "unpin") return static_cast<void>(policy.unpin());
  if (name == "reload") return static_cast<void>(policy.reload());
  throw std::out_of_range("no command '" + name +
                          "'; there are rollback, pin, unpin, reload, canary, shadow, promote, end");
}

}  // namespace

void add_admin_routes(Port& port, Service& service) {
  port.Get("/", [](const auto&, auto& response) { response.set_content(page, "text/html; charset=utf-8"); });
  port.Get("/metrics", [&](const auto&, auto& response) {
    response.set_content(triage::metrics_text(service.runtime), "text/plain; version=0.0.4; charset=utf-8");
  });
  port.Get("/policies", [&](const auto&, auto& response) {
    json list = json::array();
    for (const triage::Policy& policy : service.runtime.policies()) list.push_back(policy_json(policy));
    answer(response, {{"draining", service.draining.load()}, {"policies", list}});
  });
  port.post(R"(/policies/([^/]+)/([a-z]+))", [&](const auto& request, auto& response, const std::string& body) {
    if (!may_command(request)) return refuse(response, 403, "web pages of other hosts may not send commands");
    const triage::Policy policy = policy_named(service.runtime, request.matches[1]);
    command(policy, request.matches[2], request, body);
    answer(response, policy_json(policy));
  });
}
