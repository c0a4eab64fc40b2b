#include "runtime/policy/watch/watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <new>

#include "runtime/files/checksum.h"
#include "runtime/files/folder.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/at_exit.h"
#include "runtime/policy/bundles/bundle.h"
#include "runtime/policy/files/source_file.h"
#include "runtime/policy/front_end.h"
#include "runtime/policy/watch/notify.h"

namespace triage::policy {
namespace {

// Not IN_MODIFY: a file that is being written is of no interest before it is closed.
constexpr uint32_t changes = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ATTRIB |
                             IN_MOVE_SELF | IN_DELETE_SELF | IN_ONLYDIR;

[[noreturn]] void refuse(const char* what) {
  const int code = errno;
  throw FileError(
      fmt::format("cannot watch files: {}: {}{}", what, std::strerror(code),
                  code == EMFILE ? "; raise fs.inotify.max_user_instances, or set WatchOptions::poll_interval" : ""));
}

}  // namespace

Notifier::Notifier(bool use_kernel) : alarm_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (alarm_ < 0) refuse("eventfd");
  if (!use_kernel) return;
  inotify_ = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (inotify_ >= 0) return;
  ::close(alarm_);
  refuse("inotify_init1");
}

Notifier::~Notifier() {
  close();
  ::close(alarm_);
}

void Notifier::close() {
  if (inotify_ >= 0) ::close(inotify_);
  inotify_ = -1;
}

std::string Notifier::watch(const std::set<std::filesystem::path>& dirs) {
  if (inotify_ < 0) return {};
  for (auto known = watches_.begin(); known != watches_.end();) {
    const auto next = std::next(known);
    if (!dirs.count(known->first)) forget(known->first);
    known = next;
  }
  std::string failures;
  for (const auto& dir : dirs) {
    if (watches_.count(dir)) continue;
    const int watch = ::inotify_add_watch(inotify_, dir.c_str(), changes);
    if (watch >= 0) {
      watches_[dir] = watch;
    } else {
      failures += fmt::format(
          "{}{}: {}{}", failures.empty() ? "" : "; ", dir.string(), std::strerror(errno),
          errno == ENOSPC ? " (raise fs.inotify.max_user_watches, or set WatchOptions::poll_interval)" : "");
    }
  }
  return failures;
}

void Notifier::forget(const std::filesystem::path& dir) {
  const auto known = watches_.find(dir);
  if (known == watches_.end()) return;
  const int watch = known->second;
  watches_.erase(known);
  for (const auto& other : watches_)
    if (other.second == watch) return;  // two paths to one directory share its watch
  ::inotify_rm_watch(inotify_, watch);  // fails when the directory is gone, which took the watch with it
}

bool Notifier::wait(std::chrono::milliseconds timeout) {
  pollfd waiting[2] = {{alarm_, POLLIN, 0}, {inotify_, POLLIN, 0}};
  if (::poll(waiting, inotify_ >= 0 ? 2 : 1, static_cast<int>(std::min<int64_t>(timeout.count(), INT_MAX))) <= 0)
    return false;
  if (waiting[0].revents) {
    uint64_t count;
    while (::read(alarm_, &count, sizeof count) < 0 && errno == EINTR) {
    }
  }
  return inotify_ >= 0 && waiting[1].revents && drain();
}

/// Which files changed does not matter: any event, an overflow of the queue too, leads to a look at all of them. Only
/// the end of a watch is of interest: the next call of `watch` finds that directory again.
bool Notifier::drain() {
  alignas(inotify_event) char buffer[16 * (sizeof(inotify_event) + NAME_MAX + 1)];
  bool any = false;
  for (;;) {
    const ssize_t got = ::read(inotify_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return any;
    any = true;
    for (ssize_t at = 0; at < got;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      if (event.mask & IN_MOVE_SELF) ::inotify_rm_watch(inotify_, event.wd);  // it would follow the directory
      if (event.mask & (IN_MOVE_SELF | IN_IGNORED))
        std::erase_if(watches_, [&](const auto& known) { return known.second == event.wd; });
    }
  }
}

void Notifier::wake() {
  const uint64_t one = 1;
  while (::write(alarm_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace triage::policy

namespace triage {

namespace policy {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// How often a path is checked for naming another directory than before, which no event tells (a link on the way to it
// was swapped, a parent renamed), and how often a lost directory is looked for.
constexpr milliseconds identity_interval{1000};
constexpr milliseconds search_interval{100};

fs::path plain_absolute(const fs::path& path) {
  fs::path normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();  // "policies/" is "policies"
}

bool same_directory(const fs::path& a, const fs::path& b) {
  if (a == b) return true;
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

std::string checksum_of(std::string_view bytes) { return files::checksum_text(files::checksum(bytes)); }

/// Of what a read of these files gives now.
std::string fingerprint_of(const fs::path& file, const Files& files) {
  std::string text;
  for (const auto& [name, content] : files) {
    const FileContent now = read_beneath(file.parent_path(), name, content.largest);
    text += now.bytes ? checksum_of(*now.bytes) : now.error;
  }
  return text;
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
  const std::string failures = notifier_.watch({dir_});
  if (!failures.empty()) throw FileError(fmt::format("cannot watch '{}': {}", dir.string(), failures));
  attached_ = identity();
  known_ = candidates();
  if (polling()) seen_ = fingerprint();
}

WatchCore::~WatchCore() { stop(); }

void WatchCore::start() {
  std::lock_guard lock(mutex_);
  exit_ = at_exit([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->stop();
  });
  thread_ = std::thread([self = shared_from_this()] { self->loop(); });
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

/// Returns after changes, once it has been quiet for `debounce`; at once when somebody asks.
void WatchCore::wait_for_change() {
  const auto interval = !attached_ ? search_interval : polling() ? options_.poll_interval : identity_interval;
  std::optional<Clock::time_point> first, last;
  if (std::exchange(unsettled_, false)) first = last = Clock::now();
  auto seen = seen_;
  while (!asked()) {
    bool changed = notifier_.wait(first && !polling() ? std::max(options_.debounce, milliseconds(1)) : interval);
    if (asked()) return;
    const auto now = Clock::now();
    if (polling()) {
      auto present = fingerprint();
      changed = present != seen;
      seen = std::move(present);
    }
    if (changed) {
      if (!first) first = now;
      last = now;
    }
    if (first && (now - *last >= options_.debounce || now - *first >= 10 * options_.debounce)) break;
    if (!first && identity() != attached_) break;
  }
  seen_ = std::move(seen);
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
  watch_directories();  // before the files are read: what changes from here on is told
  follow_all(forced);
  if (watch_directories()) follow_all(forced);  // what they came to read from may have changed before it was watched
  tell_new_files();
}

void WatchCore::follow_all(bool forced) {
  for (const auto& policy : policies()) {
    if (!forced && being_written(*policy)) {
      unsettled_ = true;
    } else {
      follow(*policy);
    }
  }
  for (const auto& bundle : bundles()) {
    if (!forced && is_fresh(bundle->file())) {
      unsettled_ = true;
    } else {
      follow(*bundle);
    }
  }
}

/// Finds out whether the directory is still the one that is watched, and watches the one that is there now.
void WatchCore::attach() {
  const std::optional<Identity> present = identity();
  if (present == attached_) return;
  notifier_.forget(dir_);
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

bool WatchCore::being_written(const PolicyCore& policy) const {
  const Files read = policy.files_read();
  return is_fresh(policy.file()) || std::any_of(read.begin(), read.end(), [&](const auto& file) {
           return is_fresh(policy.file().parent_path() / file.first);
         });
}

void WatchCore::follow(PolicyCore& policy) {
  using Change = PolicyCore::FileChange;
  if (auto reversal = policy.take_reversal())
    tell({WatchEvent::Kind::reverted, policy.path(), reversal->version, reversal->failure.message,
          reversal->failure.source});
  for (const auto& end : policy.take_candidate_ends())
    tell({end.state == CandidateState::promoted ? WatchEvent::Kind::promoted : WatchEvent::Kind::candidate_reverted,
          policy.path(), end.live_version, end.reason, end.source});
  const Change change = policy.follow_file(/*retry=*/false);
  if (change == Change::unchanged) return;
  const VersionInfo now = policy.version();
  const int number =
      change == Change::swapped ? policy.newest_number() : now.number;  // a call may have led back already
  tell_change(change, policy.path(), number, now.last_error,
              change == Change::swapped ? policy.take_state_note() : std::string());
}

void WatchCore::follow(BundleCore& bundle) {
  using Change = PolicyCore::FileChange;
  if (auto reversal = bundle.take_reversal())
    tell({WatchEvent::Kind::reverted, bundle.path(), reversal->version, reversal->failure.message,
          reversal->failure.source});
  const Change change = bundle.follow(/*retry=*/false);
  if (change == Change::unchanged) return;
  const BundleVersion now = bundle.version();
  const bool swapped = change == Change::swapped;
  tell_change(change, bundle.path(), swapped ? bundle.newest_number() : now.number, now.last_error,
              swapped ? bundle.take_state_note() : std::string());
}

void WatchCore::tell_change(PolicyCore::FileChange change, const std::string& path, int number,
                            const std::optional<LoadFailure>& failure, std::string note) {
  using Change = PolicyCore::FileChange;
  WatchEvent event{WatchEvent::Kind::reloaded, path, number, std::move(note), {}};
  switch (change) {
    case Change::refused:
      event.kind = WatchEvent::Kind::refused;
      break;
    case Change::deleted:
      event.kind = WatchEvent::Kind::deleted;
      break;
    case Change::restored:
      event.kind = WatchEvent::Kind::restored;
      break;
    default:
      break;
  }
  if (failure && change != Change::swapped && change != Change::restored) {
    event.message = failure->message;
    event.source = failure->source;
  }
  tell(std::move(event));
}

/// A bundle says itself what belongs to it.
void WatchCore::tell_new_files() {
  std::set<fs::path> present = candidates();
  if (!bundles().empty()) known_ = present;
  for (const auto& policy : policies()) known_.insert(dir_ / policy->file().filename());
  for (const auto& file : present)
    if (!known_.count(file))
      tell({WatchEvent::Kind::added,
            (shown_ / file.filename()).string(),
            0,
            "a new file that no policy was loaded from",
            {}});
  known_ = std::move(present);
}

/// Whether directories are watched now that were not.
bool WatchCore::watch_directories() {
  if (!attached_) return false;
  std::set<fs::path> dirs = {dir_};
  for (const auto& policy : policies()) {
    std::error_code error;
    const fs::path target = fs::canonical(policy->file(), error);
    if (!error && !same_directory(target.parent_path(), dir_)) dirs.insert(target.parent_path());
    for (const fs::path& folder : folders_of(policy->file(), policy->files_read()))
      if (!same_directory(folder, dir_)) dirs.insert(folder);
  }
  const std::string trouble = notifier_.watch(dirs);
  if (!trouble.empty() && trouble != last_trouble_)
    log(LogLevel::warn, fmt::format("cannot watch all of '{}': {}", shown_.string(), trouble));
  last_trouble_ = trouble;
  const bool more = !std::includes(watched_.begin(), watched_.end(), dirs.begin(), dirs.end());
  watched_ = std::move(dirs);
  return more;
}

std::vector<std::shared_ptr<PolicyCore>> WatchCore::policies() const {
  std::vector<std::shared_ptr<PolicyCore>> here = runtime_->policies();
  here.erase(std::remove_if(here.begin(), here.end(),
                            [&](const auto& policy) {
                              return policy->file().empty() || policy->is_in_bundle() ||
                                     !same_directory(policy->file().parent_path(), dir_);
                            }),
             here.end());
  return here;
}

std::vector<std::shared_ptr<BundleCore>> WatchCore::bundles() const {
  std::vector<std::shared_ptr<BundleCore>> here = runtime_->bundles();
  std::erase_if(here, [&](const auto& bundle) { return !same_directory(bundle->dir(), dir_); });
  return here;
}

/// The files of the directory that a policy could be loaded from; not the hidden ones that editors leave.
std::set<fs::path> WatchCore::candidates() const {
  std::set<fs::path> found;
  std::error_code error;
  for (const files::Entry& entry : files::entries_of(dir_, error))
    if (entry.is_file && fs::path(entry.name).has_extension() && has_front_end(entry.name))
      found.insert(dir_ / entry.name);
  return found;
}

/// What polling compares: the bytes, not times, which are coarse on some network file systems.
std::map<fs::path, std::string> WatchCore::fingerprint() const {
  std::map<fs::path, std::string> prints;
  for (const auto& file : candidates()) prints[file];
  for (const auto& policy : policies()) {
    try {
      const auto source = read_source(policy->file());
      prints[policy->file()] = source ? checksum_of(*source) : "gone";
      const Files read = policy->files_read();
      if (!is_unchanged(policy->file(), read)) prints[policy->file()] += fingerprint_of(policy->file(), read);
    } catch (const FileError& error) {
      prints[policy->file()] = error.what();
    }
  }
  for (const auto& bundle : bundles()) {
    const FileContent manifest = read_manifest(bundle->dir());
    prints[bundle->file()] = manifest.bytes ? checksum_of(*manifest.bytes) : manifest.error;
  }
  return prints;
}

std::optional<WatchCore::Identity> WatchCore::identity() const {
  struct stat info {};
  if (::stat(dir_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return std::nullopt;
  return Identity{info.st_dev, info.st_ino};
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
  switch (kind) {
    case WatchEvent::Kind::reloaded:
      return "reloaded";
    case WatchEvent::Kind::refused:
      return "refused";
    case WatchEvent::Kind::reverted:
      return "reverted";
    case WatchEvent::Kind::deleted:
      return "deleted";
    case WatchEvent::Kind::restored:
      return "restored";
    case WatchEvent::Kind::added:
      return "added";
    case WatchEvent::Kind::lost:
      return "lost";
    case WatchEvent::Kind::found:
      return "found";
    case WatchEvent::Kind::promoted:
      return "promoted";
    case WatchEvent::Kind::candidate_reverted:
      return "candidate_reverted";
  }
  return "unknown";
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
  core_->rescan();
}

}  // namespace triage
