#include "runtime/policy/host/change_log.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/policy/decisions/decisions.h"

namespace triage::policy {

std::string ChangeLog::title() const { return fmt::format("{} '{}'", what_, name_.empty() ? path_ : name_); }

void ChangeLog::write(LogLevel level, const std::string& told, const std::string& error, int version) const {
  const std::string& name = name_.empty() ? path_ : name_;
  const std::string text = title() + ": " + told;
  if (what_ == std::string_view("policy"))
    messages::trace([&] {
      return messages::TraceEvent("policy")
          .text("policy", name)
          .text("path", path_)
          .text("level", to_string(level))
          .number("version", version)
          .text("message", text);
    });
  std::vector<LogField> fields = {{what_, name}, {"path", path_}};
  if (version > 0) fields.push_back({"version", std::to_string(version)});
  if (!error.empty()) fields.push_back({"error", error});
  const bool wanted =
      level < LogLevel::warn && messages::logs(messages::Artefact::reload,
                                               level < LogLevel::info ? messages::Detail::more : messages::Detail::on);
  if (wanted)
    messages::log_artefact(runtime_->logger(), messages::Artefact::reload, level, text, std::move(fields));
  else
    runtime_->logger().write(level, text, fields);
}

bool ChangeLog::notes() const noexcept {
  const auto& log = runtime_->options().decisions;
  return log && DecisionQueue::of(*log).options().events;
}

void ChangeLog::note(PolicyEvent event) const {
  if (!notes()) return;
  (what_ == std::string_view("policy") ? event.policy : event.bundle) = name_.empty() ? path_ : name_;
  event.path = path_;
  DecisionQueue::of(*runtime_->options().decisions).note(std::move(event));
}

std::string ChangeLog::keep_source(const PolicyVersion& version) const {
  if (!notes()) return {};
  const KeptSources::KeptSourceFile kept = runtime_->sources().keep(path_, version.hash, version.contents);
  if (!kept.trouble.empty())
    write(LogLevel::warn, fmt::format("cannot keep the source of version {}: {}", version.number, kept.trouble),
          kept.trouble, version.number);
  return kept.file;
}

}  // namespace triage::policy
