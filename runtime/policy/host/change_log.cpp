#include "runtime/policy/host/change_log.h"

#include <fmt/format.h>

#include <string_view>

#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"

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

}  // namespace triage::policy
