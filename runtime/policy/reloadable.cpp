#include "runtime/policy/reloadable.h"

#include <fmt/format.h>

#include "runtime/messages/logs/artefacts.h"
#include "runtime/policy/core.h"

namespace triage::policy {

Reloadable::Reloadable(const char* what, std::shared_ptr<RuntimeCore> runtime, std::string path,
                       std::filesystem::path file)
    : what_(what), runtime_(std::move(runtime)), path_(std::move(path)), file_(std::move(file)) {}

Reloadable::Changing::Changing(Reloadable& one) : one_(one) {
  if (one.changing_.is_held_here())
    throw InputError(
        fmt::format("{} '{}' was reloaded, rolled back or pinned from within its own reload, on the same thread (by a "
                    "function of the host that a script calls?)",
                    one.what_, one.path_));
  try {
    one.changing_.lock(std::nullopt, [&] { return fmt::format("the reload of {} '{}'", one.what_, one.path_); });
  } catch (const PolicyError& error) {
    throw InputError(error.what());
  }
}

Reloadable::Changing::~Changing() { one_.changing_.unlock(); }

void Reloadable::log(LogLevel level, const std::string& text, const std::string& error, int version) const {
  std::vector<LogField> fields = {{what_, name_.empty() ? path_ : name_}, {"path", path_}};
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

bool Reloadable::note_failure(const std::string& message, const Source& source) {
  const std::lock_guard lock(mutex_);
  const bool news = !last_error_ || last_error_->message != message;
  if (news) last_error_ = LoadFailure{message, source, std::chrono::system_clock::now()};
  return news;
}

Reloadable::FileChange Reloadable::look_at_disk(bool retry) try {
  put_off_ = false;
  const FileChange change = follow_disk(retry);
  if (put_off_ || !end_put_off()) return change;
  return change == FileChange::unchanged ? FileChange::restored : change;
} catch (const NotNow& error) {
  return put_off(error);
}

Reloadable::FileChange Reloadable::put_off(const std::exception& error) {
  put_off_ = true;
  {
    const std::lock_guard lock(mutex_);
    if (put_off_message_.empty()) error_before_it_ = last_error_;
    put_off_message_ = error.what();
  }
  if (!note_failure(error.what(), source_of(error, {}, path_))) return FileChange::unchanged;
  log(LogLevel::warn,
      fmt::format("{} '{}': what is on the disk cannot be read or taken up at the moment, and triage tries again; the "
                  "live version stays live: {}",
                  what_, name_, error.what()),
      error.what());
  count_refusal();
  return FileChange::refused;
}

bool Reloadable::end_put_off() {
  const std::lock_guard lock(mutex_);
  const std::string message = std::exchange(put_off_message_, {});
  if (message.empty() || !last_error_ || last_error_->message != message) return false;
  last_error_ = std::exchange(error_before_it_, std::nullopt);
  return !last_error_;
}

bool Reloadable::note_failure_of_choice(const std::string& place) {
  const auto kept = choice();
  if (!kept || kept->by != ChosenBy::failure) return false;
  note_failure(kept->reason, {place, 0});
  return true;
}

bool Reloadable::clear_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(last_error_, std::nullopt).has_value();
}

std::optional<Reloadable::Reversal> Reloadable::take_reversal() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reversal_, std::nullopt);
}

bool Reloadable::pinned() const {
  const std::lock_guard lock(mutex_);
  return pinned_;
}

std::shared_ptr<const Choice> Reloadable::choice() const {
  const std::lock_guard lock(mutex_);
  return choice_;
}

void Reloadable::keep_choice() {
  if (file_.empty()) return;
  const std::lock_guard keeping(keeping_);  // what is written last is what was chosen last
  const std::string failure = runtime_->choices().keep(file_, choice());
  if (!failure.empty())
    log(LogLevel::warn,
        fmt::format("{} '{}': cannot keep for a restart which version is live: {}", what_, name_, failure), failure);
}

/// With keeping_ held.
void Reloadable::keep_contents(int number, const Contents& contents) {
  const std::string failure = runtime_->last_good().keep(file_, contents);
  if (failure.empty())
    kept_number_ = number;
  else
    log(LogLevel::warn, fmt::format("{} '{}': cannot keep the last good version: {}", what_, name_, failure), failure);
}

}  // namespace triage::policy
