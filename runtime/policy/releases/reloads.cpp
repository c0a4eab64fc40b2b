#include "runtime/policy/releases/reloads.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/policy/afterwards.h"
#include "runtime/policy/core/gates.h"
#include "runtime/policy/files/not_now.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/loading.h"
#include "runtime/policy/one_at_a_time.h"
#include "runtime/policy/releases/releases.h"
#include "runtime/random/sequence.h"

namespace triage::policy {

/// A reload, one at a time.
class Reloads::RunningReload {
 public:
  /// `of_disk`: a decision of the host cancels it.
  RunningReload(Reloads& reloads, bool of_disk)
      : reloads_(reloads),
        alone_(
            reloads.reloading_, [&] { return "the reload of " + reloads.log().title(); },
            [&] {
              return reloads.log().title() +
                     " was reloaded from within its own reload, on the same thread (by a function of the host that a "
                     "script calls?)";
            }),
        cancellable_(of_disk ? &reloads.cancelled_ : nullptr) {
    const Releases& releases = reloads.releases_;
    const std::lock_guard lock(releases.mutex());  // a decision comes before all of this, or behind it
    reloads.cancelled_ = false;
    reloads.running_ = true;
    reloads.began_ = of_disk ? std::optional(releases.decisions()) : std::nullopt;
    reloads.looks_at_begin_ = reloads.host_looks_;
  }
  ~RunningReload() { reloads_.running_ = false; }
  RunningReload(const RunningReload&) = delete;
  RunningReload& operator=(const RunningReload&) = delete;

 private:
  Reloads& reloads_;
  const OneAtATime alone_;
  const Loading::Cancellable cancellable_;
};

const ChangeLog& Reloads::log() const noexcept { return releases_.log(); }

void Reloads::load_first() {
  const RunningReload running(*this, /*of_disk=*/false);
  random::Sequence of_trials(releases_.runtime().options().seed);
  const random::DrawFrom draws(&of_trials);
  std::optional<Error> failure;
  std::optional<VersionChoice> chosen;
  std::optional<Prepared> first = first_chosen(chosen);
  if (!first) {
    try {
      refused_ = true;  // unless what follows does not throw
      first = releases_.origin().make_first();
      refused_ = false;
    } catch (const Error& error) {
      first = first_kept(error);
      failure = error;
    }
  }
  const bool is_kept = chosen || failure;
  releases_.begin_with(*first, std::move(chosen), is_kept);
  if (failure) {
    releases_.count_refusal();
    releases_.note_failure(failure->what(), failure->source());
    note_event(releases_, {.event = "refused", .by = "disk", .reason = failure->what()});
  }
  retry_after_restart();
  const auto live = releases_.live();
  log().write(LogLevel::debug, fmt::format("{} loaded from '{}'", shown(*live), log().path()), {}, live->number);
}

/// In the place of what cannot be used: `error` says why, and is thrown where nothing was kept.
Prepared Reloads::first_kept(const Error& error) {
  if (releases_.file().empty()) throw;
  const std::optional<std::string> text = releases_.runtime().last_good().find(releases_.file()).text;
  auto kept = text ? unpacked_or_source(*text) : std::nullopt;  // a cache that cannot be read is no cache
  if (!kept) throw;
  Prepared first = releases_.origin().make_kept(std::move(*kept));
  log().write(LogLevel::error, fmt::format("{}; running its last good version instead", error.what()), error.what());
  return first;
}

static std::string told(const VersionChoice& choice, const Release& release) {
  const char* how_long = "until what is on the disk changes";
  if (choice.by == ChosenBy::pin) how_long = "whatever is on the disk; `unpin` follows it again";
  if (choice.by == ChosenBy::trial) how_long = "and what is on the disk, which was refused then, is tried again";
  if (choice.by == ChosenBy::failure)
    how_long = "until what is on the disk changes: its source failed in calls, and was taken back";
  return fmt::format("what was {} before this start (version {} then, {}) is live, {}{}{}", done_by(choice.by),
                     choice.number, identity(release), how_long, choice.reason.empty() ? "" : ": ", choice.reason);
}

/// What was live before a restart in the place of what is on the disk; nothing where that is to be followed.
std::optional<Prepared> Reloads::first_chosen(std::optional<VersionChoice>& chosen) {
  Restart& restart = releases_.restart();
  auto [choice, trouble] = restart.find();
  if (!trouble.empty())
    log().write(LogLevel::warn, fmt::format("what was live before this start is not known: {}", trouble), trouble);
  if (!choice) return std::nullopt;
  const std::optional<std::string> text = text_now();
  const bool unchanged = choice->on_disk ? text && is_as_seen(*text, choice->on_disk) : !text;
  const char* const what = done_by(choice->by);
  if (choice->by != ChosenBy::pin && !unchanged) {
    log().write(
        LogLevel::info,
        fmt::format("what is on the disk has changed since version {} was {}, before this start; it is followed again",
                    choice->number, what));
    restart.keep_choice();
    return std::nullopt;
  }
  std::optional<Prepared> first;
  try {
    first = releases_.origin().make_kept(choice->live);
  } catch (const Error& error) {
    log().write(LogLevel::error,
                fmt::format("what was {} before this start cannot be used, and what is on the disk is "
                            "followed: {}",
                            what, error.what()),
                error.what());
    return std::nullopt;
  }
  log().write(choice->by == ChosenBy::failure ? LogLevel::error : LogLevel::warn, told(*choice, *first->release),
              choice->reason);
  deleted_ = false;  // where it is, the next look says so
  if (unchanged)
    observe(choice->on_disk);
  else if (text)
    observe(Contents{*text, {}, /*in_folder=*/true});
  chosen = std::move(choice);
  return first;
}

/// A release that was refused, or taken back, before a restart.
void Reloads::retry_after_restart() {
  if (note_failure_of_choice()) {
    refused_ = true;
    releases_.count_refusal();
  }
  const auto choice = releases_.restart().choice();
  if (!choice || choice->by != ChosenBy::trial) return;
  if (auto text = text_now()) adopt(std::move(*text), /*retry=*/true, /*on_disk=*/true);
}

Reloads::Change Reloads::follow(bool retry, const std::function<void()>& first) {
  if (releases_.file().empty() && !first) return Change::unchanged;
  const RunningReload running(*this, /*of_disk=*/true);
  if (first) first();
  if (releases_.file().empty()) return Change::unchanged;
  return look(retry);
}

Reloads::Change Reloads::replace(std::string source) {
  const RunningReload running(*this, /*of_disk=*/false);
  return adopt(std::move(source), /*retry=*/true, /*on_disk=*/false);
}

Reloads::Change Reloads::look(bool retry) try {
  put_off_ = false;
  const Change change = follow_disk(retry);
  if (put_off_ || !end_put_off()) return change;
  return change == Change::unchanged ? Change::restored : change;
} catch (const NotNow& error) {
  return put_off(error);
}

Reloads::Change Reloads::follow_disk(bool retry) {
  if (releases_.pinned()) {
    if (observe_disk())
      log().write(LogLevel::info, fmt::format("'{}' has changed; {} is pinned, and stays live until `unpin`",
                                              releases_.origin().shown_file(), shown(*releases_.live())));
    return Change::unchanged;
  }
  std::optional<std::string> text;
  try {
    text = releases_.origin().read();
  } catch (const NotNow&) {
    throw;
  } catch (const FileError& error) {
    if (!releases_.note_failure(error.what(), error.source())) return Change::unchanged;
    observe(std::nullopt);
    releases_.count_refusal();
    report_refusal(LogLevel::error, fmt::format("{}; {} stays live", error.what(), shown(*releases_.live())),
                   error.what());
    return Change::refused;
  }
  if (!text) return follow_deletion(retry);
  const bool was_deleted = deleted_.exchange(false);
  const Change change = adopt(std::move(*text), retry || (was_deleted && refused_), /*on_disk=*/true);
  if (!was_deleted || change != Change::unchanged) return change;
  // What was there before, though another release may be live.
  if (!note_failure_of_choice()) releases_.clear_failure();
  return Change::restored;
}

Reloads::Change Reloads::follow_deletion(bool retry) {
  if (retry) {  // asked for: it is followed as soon as it is back
    observe(std::nullopt);
    afterwards(releases_.runtime().logger(), [&] { releases_.restart().select_disk(began_); });
  }
  if (deleted_ && !retry) return Change::unchanged;
  const std::string file = releases_.origin().shown_file();
  const std::string gone =
      fmt::format("the file '{}' was deleted{}", file, releases_.is_bundle() ? ", or cannot be read" : "");
  const bool is_news = releases_.note_failure(gone, {file, 0});
  if (deleted_.exchange(true) && !is_news) return Change::unchanged;
  if (!releases_.is_bundle()) releases_.count_refusal();
  log().write(LogLevel::warn, fmt::format("{}; {} stays live", gone, shown(*releases_.live())));
  note_event(releases_, {.event = "refused", .by = "disk", .reason = gone});
  return Change::deleted;
}

/// Files that do not belong together may still be on their way: then each look reads them again.
Reloads::Change Reloads::adopt(std::string text, bool retry, bool on_disk) {
  bool is_new = false, is_read = false;
  const bool was_refused = refused_;
  try {
    const bool as_seen = is_as_seen(text, seen());
    if (!retry && as_seen && !releases_.origin().is_incomplete()) return Change::unchanged;
    is_read = true;
    is_new = retry || !was_refused || !as_seen;
    refused_ = false;
    if (make_live(text, on_disk)) return Change::swapped;
    if (on_disk && releases_.restart().choice())
      afterwards(releases_.runtime().logger(), [&] { releases_.restart().select_disk(began_); });
    return releases_.clear_failure() ? Change::restored : Change::unchanged;
  } catch (const std::exception& error) {
    if (is_overtaken()) {
      releases_.origin().forget_incomplete();  // what completes it is not followed either
      return report_overtaken();
    }
    if (!is_passing(error)) return refuse(error, is_new, on_disk);
    if (is_read) observe(std::nullopt);  // the next look takes it up
    return put_off(error);
  }
}

/// False where the disk holds what is live. Tries again where that was taken back meanwhile: what was tried beside it
/// says nothing then.
bool Reloads::make_live(const std::string& text, bool on_disk) {
  constexpr int most_tries = 8;
  for (int tries = 0; tries < most_tries; ++tries) {
    const std::shared_ptr<Release> beside = releases_.live();
    std::optional<Prepared> next = releases_.origin().make(text, on_disk);
    if (!next) return false;
    if (!releases_.go_live(*next, beside, began_, on_disk ? "disk" : "host")) continue;
    afterwards(releases_.runtime().logger(), [&] {
      for (const auto& [name, part] : next->release->parts)
        if (PolicyCore* const policy = releases_.find(name)) policy->candidates().end_stopped();
    });
    return true;
  }
  throw NotNow(fmt::format("{}: another version was live each time that the new one had been tried ({} times)",
                           log().title(), most_tries),
               {releases_.origin().shown_file(), 0});
}

bool Reloads::is_overtaken() const noexcept { return began_ && *began_ != releases_.decisions(); }

Reloads::Change Reloads::report_overtaken() {
  const std::string message = fmt::format(
      "the reload of '{}' was cancelled, because {} meanwhile; its next change is "
      "taken up as always",
      releases_.origin().shown_file(), releases_.last_decision());
  releases_.note_failure(message, {releases_.origin().shown_file(), 0});
  report_refusal(LogLevel::warn, message, message);
  return Change::overtaken;
}

/// In both logs: the live release stays live.
void Reloads::report_refusal(LogLevel level, const std::string& text, const std::string& reason, bool on_disk) const {
  log().write(level, text, reason);
  note_event(releases_, {.event = "refused", .by = on_disk ? "disk" : "host", .reason = reason});
}

/// `is_news`: whether or not the message is another one than before.
Reloads::Change Reloads::refuse(const std::exception& error, bool is_news, bool on_disk) {
  refused_ = true;
  const Source where = source_of(error, {}, releases_.origin().shown_file());
  const std::string message = error.what() + shadow_after(error);
  if (!releases_.note_failure(message, where) && !is_news) return Change::unchanged;
  releases_.count_refusal();
  const std::shared_ptr<Release> live = releases_.live();
  report_refusal(LogLevel::error, fmt::format("the new source was refused, {} stays live: {}", shown(*live), message),
                 message, on_disk);
  if (on_disk) afterwards(releases_.runtime().logger(), [&] { releases_.restart().select_live(began_); });
  return Change::refused;
}

/// What a gate sends to the shadow of the live version runs there from now on; what follows the message of `error`.
std::string Reloads::shadow_after(const std::exception& error) {
  const auto* const stopped = dynamic_cast<const GateStop*>(&error);
  const auto handle = stopped && stopped->shadow ? releases_.weak_from_this().lock() : nullptr;
  if (!handle) return "";
  const GateStop::Shadow& shadow = *stopped->shadow;
  try {
    const std::shared_ptr<PolicyCore> policy(handle, shadow.policy);
    const VersionInfo info = policy->candidates().start_stopped(
        std::make_shared<Candidate>(policy, shadow.version, ShadowOptions{}, policy->runtime().options()),
        *shadow.beside);
    return fmt::format(
        ". It runs in the shadow of the live version, as version {}: candidate() reports, promote() makes it live",
        info.number);
  } catch (const Error& why) {
    return fmt::format(". It does not run in the shadow: {}", why.what());
  }
}

Reloads::Change Reloads::put_off(const std::exception& error) {
  put_off_ = true;
  {
    const std::lock_guard lock(releases_.mutex());
    if (put_off_message_.empty()) error_before_it_ = releases_.last_error_locked();
    put_off_message_ = error.what();
  }
  if (!releases_.note_failure(error.what(), source_of(error, {}, log().path()))) return Change::unchanged;
  report_refusal(
      LogLevel::warn,
      fmt::format("what is on the disk cannot be read or taken up at the moment, and triage tries again; the "
                  "live version stays live: {}",
                  error.what()),
      error.what());
  releases_.count_refusal();
  return Change::refused;
}

/// For a look that could read what is on the disk: where what could not be read before is still the last error, it is
/// what it was before that. True where there is none then.
bool Reloads::end_put_off() {
  const std::lock_guard lock(releases_.mutex());
  const std::string message = std::exchange(put_off_message_, {});
  std::optional<LoadFailure>& last_error = releases_.last_error_locked();
  if (message.empty() || !last_error || last_error->message != message) return false;
  last_error = std::exchange(error_before_it_, std::nullopt);
  return !last_error;
}

/// Where another release is live because the one on the disk failed in calls.
bool Reloads::note_failure_of_choice() {
  const auto choice = releases_.restart().choice();
  if (!choice || choice->by != ChosenBy::failure) return false;
  releases_.note_failure(choice->reason, {releases_.origin().shown_file(), 0});
  return true;
}

/// Nothing where it cannot be read. Throws NotNow.
std::optional<std::string> Reloads::text_now() const {
  try {
    return releases_.origin().read();
  } catch (const NotNow&) {
    throw;
  } catch (const FileError&) {
    return std::nullopt;
  }
}

std::optional<Reloads::DiskNow> Reloads::disk_now() const {
  try {
    DiskNow now{text_now(), false};
    now.as_seen = now.text && is_as_seen(*now.text, seen());
    return now;
  } catch (const NotNow&) {
    return std::nullopt;
  }
}

bool Reloads::observe_locked(std::optional<DiskNow> now) {
  if (!now) put_off_ = true;
  if (!now) return false;
  if (!now->text) seen_.reset();
  if (now->text && deleted_.exchange(false)) releases_.forget_failures();  // which say that it was deleted
  if (!now->text || now->as_seen) return false;
  seen_ = Contents{std::move(*now->text), {}, /*in_folder=*/true};
  ++host_looks_;
  return true;
}

bool Reloads::observe_disk() {
  std::optional<DiskNow> now = disk_now();
  return releases_.look_at([&](const Releases::View& /*view*/) { return observe_locked(std::move(now)); });
}

std::optional<Contents> Reloads::seen() const {
  const std::lock_guard lock(releases_.mutex());
  return seen_;
}

std::vector<std::string> Reloads::files_seen() const {
  const std::lock_guard lock(releases_.mutex());
  std::vector<std::string> names;
  if (seen_)
    for (const auto& [name, content] : seen_->files) names.push_back(name);
  return names;
}

void Reloads::observe(std::optional<Contents> contents) {
  const std::lock_guard lock(releases_.mutex());
  seen_.swap(contents);
}

/// Of a reload that was overtaken, no more than what the decision saw, too, where it looked.
void Reloads::observe_read(Contents contents) {
  const std::lock_guard lock(releases_.mutex());
  const bool decision_looked = is_overtaken() && host_looks_ != looks_at_begin_;
  if (decision_looked && !(seen_ && seen_->source == contents.source && seen_->files.empty())) return;
  seen_ = std::move(contents);
}

Reload as_reload(Reloads::Change change) noexcept {
  using Change = Reloads::Change;
  if (change == Change::swapped) return Reload::swapped;
  return change == Change::unchanged || change == Change::restored ? Reload::unchanged : Reload::refused;
}

bool Reloads::is_as_seen(const std::string& text, const std::optional<Contents>& seen) const {
  return seen && seen->source == text && is_unchanged(releases_.file(), seen->files);
}

}  // namespace triage::policy
