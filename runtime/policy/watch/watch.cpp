#include "runtime/policy/watch/watch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <triage/error.h>

#include <algorithm>
#include <new>

#include "runtime/files/folder.h"
#include "runtime/messages/boundary.h"
#include "runtime/messages/enum_names.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/start_thread.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/at_exit.h"
#include "runtime/policy/files/not_now.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/front_end.h"

namespace triage {

namespace policy {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// How often all places are watched anew, because no event tells that a place has come to name something else (a link on
// the way to it was switched, a parent renamed, something mounted over it), and how often a lost directory is looked
// for. The first is also how often triage reads again what could not be read for a passing reason, and all files where
// the kernel watches not all of them.
constexpr milliseconds check_interval{500};
constexpr milliseconds search_interval{100};

bool same_directory(const fs::path& a, const fs::path& b) {
  if (a == b) return true;
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

/// What of the state starts anew in the release that went live last; empty: nothing.
std::string state_note_of(Releases& releases) {
  std::vector<std::string> notes;
  for (const auto& [name, policy] : releases.policies())
    if (std::string note = policy->state().take_note(); !note.empty())
      notes.push_back(releases.is_bundle() ? name + ": " + note : std::move(note));
  return fmt::format("{}", fmt::join(notes, "; "));
}

}  // namespace

WatchCore::WatchCore(std::shared_ptr<RuntimeCore> runtime, const fs::path& dir, WatchOptions options)
    : runtime_(std::move(runtime)),
      shown_(dir),
      dir_(plain_absolute(dir)),
      options_(std::move(options)),
      notifier_(!polling()) {
  std::error_code error;
  if (!fs::is_directory(dir_, error))
    throw FileError(fmt::format("cannot watch '{}': {}", dir.string(),
                                fs::exists(dir_, error) ? "it is not a directory; watch "
                                                          "the directory that the policy lies in"
                                                        : "there is no such directory"));
  attached_ = identity();
  known_ = candidates().value_or(known_);
  watch_places();
}

WatchCore::~WatchCore() { stop(); }

void WatchCore::start() {
  std::lock_guard lock(mutex_);
  exit_ = at_exit([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->stop();
  });
  thread_ = messages::start_thread([self = shared_from_this()] { self->loop(); }, "to watch files",
                                   "Policies work without it and keep their versions; Policy::reload looks at a file");
  watching_ = thread_.get_id();
}

void WatchCore::stop() {
  if (process_.is_another()) return;
  std::unique_lock lock(mutex_);
  stopping_ = true;
  notifier_.wake();
  const bool from_callback = watching_ == std::this_thread::get_id();
  if (!thread_.joinable()) {  // it did not start, or another call of `stop` was first
    done_.wait(lock, [&] { return finished_ || from_callback || watching_ == std::thread::id(); });
    return;
  }
  std::thread thread = std::move(thread_);
  lock.unlock();
  if (from_callback) {
    thread.detach();  // it ends after this look
  } else {
    thread.join();
  }
}

bool WatchCore::stopped() const noexcept {
  if (process_.is_another()) return true;
  std::lock_guard lock(mutex_);
  return stopping_;
}

void WatchCore::look_again() {
  if (process_.is_another()) return;
  {
    std::lock_guard lock(mutex_);
    ++wanted_looks_;
  }
  notifier_.wake();
}

void WatchCore::rescan() {
  if (process_.is_another())
    throw InputError(
        "this triage::Watch was made in the process that this one was forked from; get another one from "
        "Runtime::watch of a Runtime made here");
  std::unique_lock lock(mutex_);
  if (watching_ == std::this_thread::get_id()) throw InputError("Watch::rescan cannot be called from on_event");
  if (stopping_) throw InputError("this triage::Watch was stopped; get another one from Runtime::watch");
  const uint64_t mine = forced_looks_ = ++wanted_looks_;
  notifier_.wake();
  const capture::HeldBy watcher(watching_);
  const capture::Waiting waiting(watcher, "the thread of a triage::Watch");
  done_.wait(lock, [&] { return finished_looks_ >= mine || finished_; });
}

void WatchCore::loop() {
  look_again();  // at what changed before this thread began
  for (;;) {
    // Where memory is short, what it waits for may be missed: it looks at once.
    afterwards(runtime_->logger(), [&] { wait_for_change(); });
    uint64_t wanted;
    bool forced;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
      wanted = wanted_looks_;
      forced = forced_looks_ > finished_looks_;
    }
    afterwards(runtime_->logger(), [&] { scan_or_tell(forced); });
    std::lock_guard lock(mutex_);
    finished_looks_ = wanted;
    done_.notify_all();
  }
  options_.on_event = nullptr;  // what it refers to may go now; the host may keep a Watch that was stopped for long
  notifier_.close();
  std::lock_guard lock(mutex_);
  finished_ = true;
  done_.notify_all();
}

bool WatchCore::asked() const {
  std::lock_guard lock(mutex_);
  return stopping_ || wanted_looks_ > finished_looks_;
}

milliseconds WatchCore::interval() const {
  return !attached_ ? search_interval : polling() ? options_.poll_interval : check_interval;
}

/// Returns after changes, once it has been quiet for `debounce`; at once when somebody asks.
void WatchCore::wait_for_change() {
  std::optional<Clock::time_point> first, last;
  if (std::exchange(unsettled_, false)) first = last = Clock::now();
  std::string seen;
  while (!asked()) {
    bool changed = notifier_.wait(first && !polling() ? std::max(options_.debounce, milliseconds(1)) : interval());
    if (asked()) return;
    const auto now = Clock::now();
    if (polling() || blind_) {
      std::string present = news();
      changed |= present != seen;
      seen = std::move(present);
    }
    if (!changed && !first) changed = watch_places() | std::exchange(put_off_, false);
    if (changed) {
      if (!first) first = now;
      last = now;
    }
    if (first && (now - *last >= options_.debounce || now - *first >= 10 * options_.debounce)) break;
    if (!first && identity() != attached_) break;
  }
}

void WatchCore::scan_or_tell(bool forced) {
  try {
    scan(forced);
  } catch (const std::bad_alloc&) {
    unsettled_ = true;  // once more, soon
    throw;
  } catch (const std::exception& error) {
    log(LogLevel::error, fmt::format("watching '{}': {}", shown_.string(), error.what()));
  }
}

void WatchCore::scan(bool forced) {
  attach();
  watch_places();  // before the files are read: what changes from here on is told
  follow_all(forced);
  if (watch_places()) follow_all(forced);  // what they came to read may have changed before it was watched
  tell_new_files();
}

void WatchCore::follow_all(bool forced) {
  for (const auto& releases : followed()) {
    if (!forced && being_written(*releases))
      unsettled_ = true;
    else
      follow(*releases);
    put_off_ |= releases->reloads().is_put_off();
  }
}

/// Finds out whether the directory is still the one that is watched, and watches the one that is there now.
void WatchCore::attach() {
  const std::optional<DirectoryIdentity> present = identity();
  if (present == attached_) return;
  const bool was_lost = !attached_;
  attached_ = present;
  if (!present) {
    tell({WatchEvent::Kind::lost, shown_.string(), 0, "the directory is gone; triage keeps looking for it", {}});
  } else if (was_lost) {
    tell({WatchEvent::Kind::found, shown_.string(), 0, "the directory is there again", {}});
  }
}

/// Something else may have led here while a file was half written, and half a script may well load. Only a file that
/// has not been written to for a moment counts; a time in the future says nothing (clocks of file servers differ).
bool WatchCore::is_fresh(const fs::path& file) const {
  std::error_code error;
  const auto written = fs::last_write_time(file, error);
  const auto age = fs::file_time_type::clock::now() - written;
  return !error && age >= age.zero() && age < options_.debounce;
}

bool WatchCore::being_written(const Releases& releases) const {
  const std::vector<fs::path> files = releases.origin().files();
  return std::any_of(files.begin(), files.end(), [&](const fs::path& file) { return is_fresh(file); });
}

void WatchCore::follow(Releases& releases) {
  if (auto reversal = releases.take_reversal())
    tell({WatchEvent::Kind::reverted, releases.log().path(), reversal->number, reversal->failure.message,
          reversal->failure.source});
  for (const auto& [name, policy] : releases.policies())
    for (const auto& end : policy->candidates().take_ends())
      tell({end.state == CandidateState::promoted ? WatchEvent::Kind::promoted : WatchEvent::Kind::candidate_reverted,
            policy->path(), end.live_version, end.reason, end.source});
  const Reloads::Change change = releases.reloads().follow(/*retry=*/false);
  if (change != Reloads::Change::unchanged) tell_change(releases, change);
}

void WatchCore::tell_change(Releases& releases, Reloads::Change change) {
  using Change = Reloads::Change;
  WatchEvent event{WatchEvent::Kind::refused, releases.log().path(), releases.live()->number, {}, {}};
  if (change == Change::swapped) {
    event.kind = WatchEvent::Kind::reloaded;
    // A call may have led back already.
    event.version = releases.look_at([](const Releases::View& now) { return now.history.newest(); });
    event.message = state_note_of(releases);
  } else if (change == Change::restored) {
    event.kind = WatchEvent::Kind::restored;
  } else {
    if (change == Change::deleted) event.kind = WatchEvent::Kind::deleted;
    if (const auto failure = releases.last_error()) {
      event.message = failure->message;
      event.source = failure->source;
    }
  }
  tell(std::move(event));
}

/// A bundle says itself what belongs to it.
void WatchCore::tell_new_files() {
  std::optional<std::set<fs::path>> listed = candidates();
  put_off_ |= !listed;
  if (!listed) return;
  std::set<fs::path>& present = *listed;
  for (const auto& releases : followed()) {
    if (releases->is_bundle()) known_ = present;
    known_.insert(dir_ / releases->file().filename());
  }
  for (const auto& file : present)
    if (!known_.count(file))
      tell({WatchEvent::Kind::added,
            (shown_ / file.filename()).string(),
            0,
            "a new file that no policy was loaded from",
            {}});
  known_ = std::move(present);
}

/// Where a change may change what the policies are made of: the folders and files that they read, through whatever
/// links.
std::set<fs::path> WatchCore::places() {
  std::set<fs::path> places = {dir_};
  for (const auto& releases : followed()) places.merge(releases->origin().places());
  return places;
}

/// Whether something else is watched than before, or a bundle may have been completed, so that files are to be looked
/// at.
bool WatchCore::watch_places() {
  if (polling()) return false;
  const auto [changed, failures] = notifier_.watch(places());
  if (failures != std::exchange(last_failures_, failures))
    log(failures.empty() ? LogLevel::info : LogLevel::warn,
        failures.empty()
            ? fmt::format("the kernel watches all of '{}' again", shown_.string())
            : fmt::format("the kernel cannot watch all of '{}', and triage reads its files every {} ms: {}",
                          shown_.string(), check_interval.count(), failures));
  blind_ = !failures.empty();
  const auto here = followed();
  return changed |
         std::any_of(here.begin(), here.end(), [](const auto& one) { return one->origin().may_be_complete(); });
}

/// What was loaded from the directory, and was so at any look: it stays followed where its path leads elsewhere later.
std::vector<std::shared_ptr<Releases>> WatchCore::followed() {
  std::erase_if(followed_, [](const auto& one) { return one.expired(); });
  std::vector<std::shared_ptr<Releases>> loaded = runtime_->releases();
  std::erase_if(loaded, [&](const auto& one) {
    if (one->file().empty()) return true;
    if (!followed_.count(one) && !same_directory(one->file().parent_path(), dir_)) return true;
    followed_.insert(one);
    return false;
  });
  return loaded;
}

/// The files of the directory that a policy could be loaded from; not the hidden ones that editors leave. Nothing where
/// they cannot be listed now.
std::optional<std::set<fs::path>> WatchCore::candidates() const {
  std::set<fs::path> found;
  std::error_code error;
  for (const files::FolderEntry& entry : files::entries_of(dir_, error))
    if (entry.is_file && fs::path(entry.name).has_extension() && has_front_end(entry.name))
      found.insert(dir_ / entry.name);
  if (is_passing(error.value())) return std::nullopt;
  return found;
}

/// What the disk has that the last look did not see; empty: nothing. It is read, for times are coarse on some network
/// file systems, and compared with what was seen: a change that was taken back between two reads of the disk is none.
std::string WatchCore::news() {
  std::string text;
  const auto add = [&](const fs::path& file, const std::string& one) {
    if (!one.empty()) text += fmt::format("{}: {}\n", file.string(), one);
  };
  for (const auto& releases : followed()) add(releases->file(), releases->origin().news());
  if (const auto present = candidates(); present && *present != known_) {
    add(dir_, "other files");
    for (const auto& file : *present) add(file, "there");
  }
  return text;
}

std::optional<WatchCore::DirectoryIdentity> WatchCore::identity() const {
  struct stat info {};
  if (::stat(dir_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return std::nullopt;
  return DirectoryIdentity{info.st_dev, info.st_ino};
}

void WatchCore::log(LogLevel level, const std::string& text) const {
  if (level < LogLevel::warn && messages::logs(messages::Artefact::reload, messages::Detail::more))
    messages::log_artefact(runtime_->logger(), messages::Artefact::reload, level, text, {{"path", shown_.string()}});
  else
    runtime_->logger().write(level, text, {{"path", shown_.string()}});
}

void WatchCore::tell(WatchEvent event) {
  log(LogLevel::debug, fmt::format("watching '{}': {} {}", shown_.string(), to_string(event.kind), event.path));
  if (!options_.on_event) return;
  try {
    options_.on_event(event);
  } catch (const std::exception& error) {
    log(LogLevel::error, fmt::format("watching '{}': on_event threw: {}", shown_.string(), error.what()));
  } catch (...) {
    log(LogLevel::error,
        fmt::format("watching '{}': on_event threw something that is not a std::exception", shown_.string()));
  }
}

}  // namespace policy

const char* to_string(WatchEvent::Kind kind) noexcept {
  return messages::name_in<WatchEvent::Kind::candidate_reverted>(
      {"reloaded", "refused", "reverted", "deleted", "restored", "added", "lost", "found", "promoted",
       "candidate_reverted"},
      kind);
}

Watch::Watch(Watch&&) noexcept = default;

Watch& Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    stop();
    core_ = std::move(other.core_);
  }
  return *this;
}

Watch::~Watch() { stop(); }

Watch::operator bool() const noexcept { return core_ && !core_->stopped(); }

/// Other threads may use the Watch meanwhile: it keeps what they use.
void Watch::stop() {
  if (core_) core_->stop();
}

void Watch::rescan() {
  if (!core_) throw InputError("this triage::Watch watches nothing; get one from Runtime::watch");
  messages::errors_only([&] { core_->rescan(); });
}

}  // namespace triage
