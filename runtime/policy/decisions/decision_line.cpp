#include "runtime/policy/decisions/decision_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/error.h>
#include <triage/layout.h>
#include <triage/location.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/policy/decisions/mask.h"

namespace triage::policy {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::system_clock;

/// Text of the host or of a script, which can be masked.
constexpr std::string_view text_fields[] = {"decision_id", "trace_id", "policy", "path",  "hash", "failure",
                                            "sample_id",   "location", "bundle", "param", "value"};
/// These can only be left out, as can those.
constexpr std::string_view other_fields[] = {"version",        "live_version",
                                             "answered",       "form",
                                             "duration_us",    "failure_kind",
                                             "batch",          "flagged",
                                             "repaired",       "full",
                                             "violations",     "samples",
                                             "sample",         "errors",
                                             "code",           "severity",
                                             "position",       "done",
                                             "totals",         "by",
                                             "bundle_version", "previous_version",
                                             "kind",           "share",
                                             "previous_totals"};

void check_field(const std::string& name, bool to_mask) {
  if (name == "capsule")
    throw ConfigError(
        "DecisionLogOptions: the field \"capsule\" can be neither dropped nor masked; with an empty `capsule_dir` no "
        "line has one");
  std::vector<std::string_view> names(std::begin(text_fields), std::end(text_fields));
  if (!to_mask) names.insert(names.end(), std::begin(other_fields), std::end(other_fields));
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw ConfigError(fmt::format("DecisionLogOptions: there is no field \"{}\" that can be {}; these can: {}", name,
                                to_mask ? "masked" : "dropped", fmt::join(names, ", ")));
}

/// Of a text or a number.
std::string json_text(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string list_of(const std::vector<std::string>& values) { return fmt::format("[{}]", fmt::join(values, ",")); }

}  // namespace

std::string time_text(Clock::time_point time) {
  const auto micros = std::chrono::floor<std::chrono::microseconds>(time);
  const auto second = std::chrono::floor<std::chrono::seconds>(micros);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(Clock::to_time_t(second)), (micros - second).count());
}

/// One object of a line, as text, for the destructors of JSON's objects allocate; what the rules say is left out or
/// masked as it is added.
class DecisionLines::Object {
 public:
  explicit Object(const DecisionLines& lines) : lines_(lines) {}

  Object& add(const char* field, Json value) {
    const Rule rule = lines_.rule_of(field);
    if (rule == Rule::mask) value = masked(value.get<std::string>(), lines_.key_);
    return rule == Rule::drop ? *this : add_text(field, json_text(value));
  }
  Object& add_list(const char* field, const std::vector<std::string>& values) {
    return lines_.rule_of(field) == Rule::drop ? *this : add_text(field, list_of(values));
  }
  /// Nothing where there is none.
  Object& text(const char* field, const std::string& value) { return value.empty() ? *this : add(field, value); }
  Object& number(const char* field, int value) { return value == 0 ? *this : add(field, value); }
  Object& position(const std::vector<int64_t>& indices) {
    if (lines_.rule_of("position") == Rule::drop) return *this;
    return add_text("position", fmt::format("[{}]", fmt::join(indices, ",")));
  }
  Object& violations(const std::vector<ViolationCount>& counts) {
    if (counts.empty() || lines_.rule_of("violations") == Rule::drop) return *this;
    std::string members;
    for (const ViolationCount& count : counts)
      members += fmt::format("{}{}:{}", members.empty() ? "" : ",", json_text(count.output), count.samples);
    return add_text("violations", "{" + members + "}");
  }
  Object& totals(const char* field, const Counters::Flagged& value) {
    if (value.samples == 0 || lines_.rule_of(field) == Rule::drop) return *this;
    // Not an object of the JSON library, which without memory ends the process.
    return add_text(field, fmt::format("{{\"samples\":{},\"flagged\":{},\"repaired\":{}}}", value.samples,
                                       value.flagged, value.repaired));
  }

  std::string json() const { return "{" + members_ + "}"; }

 private:
  Object& add_text(const char* field, const std::string& value) {
    members_ += fmt::format("{}\"{}\":{}", members_.empty() ? "" : ",", field, value);
    return *this;
  }

  const DecisionLines& lines_;
  std::string members_;
};

DecisionLines::DecisionLines(const DecisionLogOptions& options) : key_(options.mask_key) {
  for (const std::string& name : options.drop) {
    check_field(name, /*to_mask=*/false);
    rules_.emplace_back(name, Rule::drop);
  }
  for (const std::string& name : options.mask) {
    check_field(name, /*to_mask=*/true);
    rules_.emplace_back(name, Rule::mask);
  }
}

/// What says the same as another field has the rule of that one.
DecisionLines::Rule DecisionLines::rule_of(std::string_view field) const {
  if (field == "reason") return own_rule_of("failure");
  if (field == "previous_hash") return own_rule_of("hash");
  if (field == "previous_value") return own_rule_of("value");
  if (field != "kept") return own_rule_of(field);
  return own_rule_of("hash") == Rule::keep && own_rule_of("path") == Rule::keep ? Rule::keep : Rule::drop;
}

DecisionLines::Rule DecisionLines::own_rule_of(std::string_view field) const {
  for (const auto& [name, rule] : rules_)
    if (name == field) return rule;
  return Rule::keep;
}

std::string DecisionLines::line(const Decision& decision) const {
  Object line(*this);
  line.add("time", time_text(decision.time));
  line.text("decision_id", decision.decision_id).text("trace_id", decision.trace_id);
  line.text("policy", decision.policy).text("path", decision.path).add("version", decision.version);
  line.text("hash", decision.hash);
  if (decision.live_version != decision.version) line.add("live_version", decision.live_version);
  line.add("answered", to_string(decision.answered)).add("form", to_string(decision.form));
  line.add("duration_us", std::round(static_cast<double>(decision.duration.count()) / 100) / 10);
  line.text("failure", decision.failure);
  if (decision.failure_kind) line.add("failure_kind", to_string(*decision.failure_kind));
  line.add("batch", decision.batch).add("flagged", decision.flagged).add("repaired", decision.repaired);
  if (decision.full > 0) line.add("full", decision.full);
  line.violations(decision.violations);
  std::vector<std::string> samples;
  size_t at = 0;
  auto position = decision.positions.begin();
  for (const Decision::DecisionSample& sample : decision.samples) {
    std::vector<std::string> errors;
    for (; at < sample.errors_end; ++at) {
      const uint16_t slot = decision.errors[at];
      Object error(*this);
      error.add("location", ErrorLocation::name(slot >> LOCATION_SHIFT))
          .add("code", code_name(static_cast<Code>(slot >> CODE_SHIFT & CODE_MASK), decision.codes))
          .add("severity", severity_name(static_cast<Severity>(slot & SEVERITY_MASK)));
      if (position != decision.positions.end() && position->first == at) error.position((position++)->second);
      errors.push_back(error.json());
    }
    Object entry(*this);
    entry.add("sample", sample.sample).text("sample_id", sample.id).add_list("errors", errors);
    if (sample.errors_left_out) entry.add("errors_left_out", sample.errors_left_out);
    entry.add("done", sample.done);
    samples.push_back(entry.json());
  }
  if (!samples.empty()) line.add_list("samples", samples);
  line.totals("totals", decision.totals);
  return line.text("capsule", decision.capsule).json();
}

std::string DecisionLines::line(const PolicyEvent& event) const {
  Object line(*this);
  line.add("time", time_text(event.time));
  line.text("event", event.event).text("policy", event.policy).text("bundle", event.bundle);
  line.number("bundle_version", event.bundle_version).text("path", event.path);
  line.number("version", event.version).text("hash", event.hash).text("kept", event.kept).text("by", event.by);
  line.number("previous_version", event.previous_version).text("previous_hash", event.previous_hash);
  line.totals("previous_totals", event.previous_totals);
  line.text("kind", event.kind);
  if (event.share > 0) line.add("share", event.share);
  line.text("param", event.param).text("value", event.value).text("previous_value", event.previous_value);
  return line.text("reason", event.reason.substr(0, longest_failure)).json();
}

std::string DecisionLines::dropped_line(uint64_t count, Clock::time_point since) const {
  return fmt::format(R"({{"time":"{}","dropped":{},"since":"{}"}})", time_text(Clock::now()), count, time_text(since));
}

}  // namespace triage::policy
