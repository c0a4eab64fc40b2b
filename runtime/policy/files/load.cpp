// Where the contents of a version come from: the disk, as a whole, or what is kept for a restart.
#include <fmt/format.h>

#include "runtime/files/checksum.h"
#include "runtime/messages/assert.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/core.h"
#include "runtime/policy/files/source_file.h"
#include "runtime/policy/trials/rehearsal.h"

namespace triage::policy {

void PolicyCore::load_first(std::optional<std::string> text) {
  const Changing changing(*this);
  random::Sequence of_trials(runtime_->options().seed);
  const random::DrawFrom draws(&of_trials);
  std::optional<Error> failure;
  const auto current_or_last_good = [&] {
    try {
      return load_current(std::move(text));
    } catch (const Error& error) {
      const auto kept = file_.empty() ? std::nullopt : runtime_->last_good().find(file_);
      if (!kept) throw;
      std::shared_ptr<PolicyVersion> good = load_kept(*kept);
      failure = error;
      log(LogLevel::error, fmt::format("policy '{}': {}; running its last good source instead", path_, error.what()),
          error.what());
      return good;
    }
  };
  std::shared_ptr<PolicyVersion> version = load_chosen();
  if (!version) version = current_or_last_good();
  begin_with(*version);
  go_live(version);
  if (failure) {
    count_refusal();
    note_failure(failure->what(), failure->source());
  }
  retry_after_restart();
  log(LogLevel::debug, fmt::format("policy '{}' loaded from '{}' (source {})", name_, path_, version->hash), {},
      version->number);
}

/// All but going live.
void PolicyCore::begin_with(const PolicyVersion& version) {
  name_ = version.name;
  flags_trace_.set_policy(name_);
  for (const Param& param : version.signature.params) {
    param_names_.lasting.insert(param.name);
    param_names_.former.insert(param.name);
  }
}

/// The first version of a policy of a bundle, which goes live with the others.
std::shared_ptr<PolicyVersion> PolicyCore::make_first(NewSource source, bool with_tests) {
  TRIAGE_ASSERT(changing_.is_held_here());
  random::Sequence of_trials(runtime_->options().seed);
  const random::DrawFrom draws(&of_trials);
  std::shared_ptr<PolicyVersion> version = load_whole(std::move(source));
  const messages::LogTo log_to(runtime_->logger());
  const std::unique_ptr<Script> tried = runtime_->load_script(version->contents, path_, /*silent=*/true);
  if (with_tests) check_tests(*tried);
  check_outputs(*tried);
  begin_with(*version);
  return version;
}

std::shared_ptr<PolicyVersion> PolicyCore::load_current(std::optional<std::string> text) {
  const bool of_file = !text;
  if (of_file) text = read_source(file_);
  deleted_ = !text;
  refused_ = text.has_value();  // unless what follows does not throw
  if (!text)
    throw FileError(fmt::format("cannot load the policy '{}': there is no such file", messages::one_line(path_)),
                    {path_, 0});
  std::shared_ptr<PolicyVersion> version = load_whole({std::move(*text), path_, file_, of_file, /*followed=*/of_file});
  if (declares_outputs(version->signature))
    check_outputs(*runtime_->load_script(version->contents, path_, /*silent=*/true));
  refused_ = false;
  return version;
}

/// Loads a source with the files that it reads. They may be replaced one after the other meanwhile: what was read makes a
/// version only where all of it was on the disk at one time.
std::shared_ptr<PolicyVersion> PolicyCore::load_whole(NewSource from) {
  if (from.given) {
    PolicyFiles files(from.file, from.given);
    return runtime_->load_version({from.source, {}, /*in_folder=*/true}, from.path, random_, &files);
  }
  constexpr int most_tries = 4;
  const Verify& verify = runtime_->options().verify;
  const Files before = seen_ && from.file == file_ ? seen_->files : Files();
  for (int tries = 1;; ++tries) {
    PolicyFiles files(from.file, verify, before);
    std::shared_ptr<PolicyVersion> version;
    std::exception_ptr failure;
    const Contents bare{from.source, {}, /*in_folder=*/!from.file.empty()};
    try {
      if (from.on_disk) verify_file(verify, from.file, from.source);
      version = runtime_->load_version(bare, from.path, random_, from.file.empty() ? nullptr : &files);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    if (from.followed) see(Contents{from.source, files.all(), bare.in_folder});
    if (!files.put_off().empty())
      throw NotNow(fmt::format("policy '{}': {}", from.path, files.put_off()), {from.path, 0});
    std::optional<std::string> now = from.source;
    if (from.on_disk && !files.all().empty()) now = read_source(from.file);
    if (now == from.source && is_unchanged(from.file, files.all())) {
      if (failure) std::rethrow_exception(failure);
      return version;
    }
    if (!now || tries == most_tries)
      throw NotNow(fmt::format("policy '{}': its files changed each time that triage read them ({} times); write them "
                               "beside their places and rename them",
                               from.path, tries),
                   {from.path, 0});
    from.source = std::move(*now);
  }
}

bool PolicyCore::is_as_seen(const std::string& source, const std::optional<Contents>& seen) const {
  return seen && seen->source == source && is_unchanged(file_, seen->files);
}

void PolicyCore::see(std::optional<Contents> contents) {
  const std::lock_guard lock(mutex_);
  seen_.swap(contents);
}

std::vector<std::string> PolicyCore::files_read() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  if (seen_)
    for (const auto& [name, content] : seen_->files) names.push_back(name);
  return names;
}

/// Contents that were live before a restart. The host sees them again: it may think otherwise by now.
std::shared_ptr<PolicyVersion> PolicyCore::load_kept(const Contents& contents) {
  const Verify& verify = runtime_->options().verify;
  verify_file(verify, file_, contents.source);
  for (const auto& [name, file] : contents.files)
    if (file.usable()) verify_file(verify, file_.parent_path() / name, *file.bytes);
  std::shared_ptr<PolicyVersion> version = runtime_->load_version(contents, path_, random_);
  if (declares_outputs(version->signature)) check_outputs(*runtime_->load_script(contents, path_, /*silent=*/true));
  return version;
}

/// What was live before a restart in the place of what the file says; null where the file is to be followed.
std::shared_ptr<PolicyVersion> PolicyCore::load_chosen() {
  if (file_.empty()) return nullptr;
  auto [choice, trouble] = runtime_->choices().find(file_);
  if (!trouble.empty())
    log(LogLevel::warn, fmt::format("policy '{}': what was live before this start is not known: {}", path_, trouble),
        trouble);
  if (!choice) return nullptr;
  const std::optional<std::string> source = source_now();
  const bool unchanged = choice->on_disk ? source && is_as_seen(*source, choice->on_disk) : !source;
  if (choice->by != ChosenBy::pin && !unchanged) {
    log(LogLevel::info,
        fmt::format("policy '{}': its files have changed since version {} was {}, before this start; they are followed "
                    "again",
                    path_, choice->number, done_by(choice->by)));
    keep_choice();
    return nullptr;
  }
  std::shared_ptr<PolicyVersion> version;
  try {
    version = load_kept(choice->live);
  } catch (const Error& error) {
    log(LogLevel::error,
        fmt::format("policy '{}': what was {} before this start cannot be used, and the file is followed: {}", path_,
                    done_by(choice->by), error.what()),
        error.what());
    return nullptr;
  }
  tell_choice(*choice, *version);
  deleted_ = false;  // where it is, the next look says so
  if (unchanged)
    see(choice->on_disk);
  else if (source)
    see(Contents{*source, {}, /*in_folder=*/true});
  const std::lock_guard lock(mutex_);
  pinned_ = choice->by == ChosenBy::pin;
  choice_ = std::make_shared<const Choice>(std::move(*choice));
  return version;
}

void PolicyCore::tell_choice(const Choice& choice, const PolicyVersion& version) const {
  const char* how_long = "until the file changes";
  if (choice.by == ChosenBy::pin) how_long = "whatever the file says; `unpin` follows it again";
  if (choice.by == ChosenBy::trial) how_long = "and the file's source, which was refused then, is tried again";
  if (choice.by == ChosenBy::failure)
    how_long = "until the file changes: its source failed in calls, and was taken back";
  log(choice.by == ChosenBy::failure ? LogLevel::error : LogLevel::warn,
      fmt::format("policy '{}': what was {} before this start (version {} then, source {}) is live, {}{}{}", path_,
                  done_by(choice.by), choice.number, version.hash, how_long, choice.reason.empty() ? "" : ": ",
                  choice.reason),
      choice.reason);
}

/// A source that was refused, or taken back, before a restart.
void PolicyCore::retry_after_restart() {
  if (note_failure_of_choice(path_)) {
    refused_ = true;
    count_refusal();
  }
  if (const auto kept = choice(); !kept || kept->by != ChosenBy::trial) return;
  if (auto source = source_now()) take_up(std::move(*source), /*retry=*/true, /*of_file=*/true);
}

/// Of the file; nothing where it cannot be read. Throws NotNow.
std::optional<std::string> PolicyCore::source_now() const {
  try {
    return read_source(file_);
  } catch (const NotNow&) {
    throw;
  } catch (const FileError&) {
    return std::nullopt;
  }
}

/// What is to be live after a restart; null: what the file says.
void PolicyCore::choose(const std::shared_ptr<PolicyVersion>& version, ChosenBy by) {
  TRIAGE_ASSERT(!bundle_);  // which chooses for all its policies
  {
    const std::lock_guard lock(mutex_);
    choice_.reset();
    if (version && deleted_) seen_.reset();  // a file that comes back is followed, also with the bytes it had
    const bool is_of_file = version && by != ChosenBy::pin && seen_ && *seen_ == version->contents;
    if (version && !is_of_file)
      choice_ = std::make_shared<const Choice>(
          Choice{by, version->number, version->contents, deleted_ ? std::nullopt : seen_});
  }
  keep_choice();
}

/// Whether it is on trial and was refused before: until the trial is over, a restart begins with the version before it again.
bool PolicyCore::is_retried(const PolicyVersion& version) const {
  const std::lock_guard lock(mutex_);
  return version.trial.on() && choice_ && choice_->retries(version.contents.source);
}

/// With mutex_ held, where `before` is to be live again because the version of the file failed.
std::shared_ptr<const Choice> PolicyCore::choice_after_failure(const PolicyVersion& before,
                                                               const std::string& reason) const {
  if (file_.empty() || !seen_ || *seen_ == before.contents) return nullptr;
  return std::make_shared<const Choice>(
      Choice{ChosenBy::failure, before.number, before.contents, seen_, messages::one_line(reason)});
}

/// Looks at the file without taking it up. Whether it is another one than at the last look.
bool PolicyCore::see_disk() try {
  std::optional<std::string> source = source_now();
  if (!source) see(std::nullopt);
  if (source && deleted_.exchange(false)) clear_failure();  // which says that it was deleted
  if (!source || is_as_seen(*source, seen_)) return false;
  see(Contents{std::move(*source), {}, /*in_folder=*/true});
  return true;
} catch (const NotNow&) {
  put_off_ = true;
  return false;
}

std::string PolicyCore::news() const {
  std::optional<Contents> seen;
  std::string failure;
  {
    const std::lock_guard lock(mutex_);
    seen = seen_;
    if (last_error_) failure = last_error_->message;
  }
  const bool none_seen = deleted_ || (!seen && pinned());  // a pinned policy only notes what there is
  try {
    const std::optional<std::string> source = read_source(file_);
    if (!source) return none_seen ? "" : "deleted";
    if (deleted_) return "restored";
    if (seen && *source == seen->source && is_unchanged(file_, seen->files)) return "";
    return files::checksum_text(files::checksum(*source)) + (seen ? fingerprint_of(file_, seen->files) : "");
  } catch (const NotNow& error) {
    return error.what();
  } catch (const FileError& error) {
    return none_seen || failure == error.what() ? "" : error.what();
  }
}

}  // namespace triage::policy
