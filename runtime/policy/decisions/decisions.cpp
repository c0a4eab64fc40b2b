// The decision log: its queue, its thread, and its sinks. PolicyCall::note_decision says what a call puts in.
#include "runtime/policy/decisions/decisions.h"
#include "runtime/messages/boundary.h"
#include "runtime/messages/start_thread.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <exception>
#include <utility>

#include "runtime/files/checksum.h"

namespace triage {
namespace policy {
namespace {

/// Under load, the thread wakes at most once in this time, and calls need not wake it.
constexpr std::chrono::milliseconds linger{20};

DecisionLogOptions checked(DecisionLogOptions options) {
  if (options.file.empty() && !options.on_line)
    throw ConfigError("DecisionLogOptions: there is neither `file` nor `on_line`; set where decisions go");
  if (!(options.clean_share >= 0 && options.clean_share <= 1))
    throw ConfigError(
        fmt::format("DecisionLogOptions: clean_share must be from 0 to 1, and is {}", options.clean_share));
  if (options.queue_records == 0 || options.queue_records > 1'000'000)
    throw ConfigError(
        fmt::format("DecisionLogOptions: queue_records must be from 1 to 1000000, and is {}", options.queue_records));
  if (!options.file.empty() && options.max_file_bytes == 0)
    throw ConfigError("DecisionLogOptions: max_file_bytes must be at least 1, and is 0");
  if (options.max_samples > 10'000)  // a line is read as a whole
    throw ConfigError(
        fmt::format("DecisionLogOptions: max_samples must be at most 10000, and is {}", options.max_samples));
  if (options.max_files > 1000)
    throw ConfigError(fmt::format("DecisionLogOptions: max_files must be at most 1000, and is {}", options.max_files));
  return options;
}

}  // namespace

DecisionQueue::DecisionQueue(DecisionLogOptions options)
    : options_(checked(std::move(options))),
      logger_(options_.log),
      lines_(options_),
      capsules_(options_, logger_),
      clean_calls_(options_.clean_share, files::kChecksumOfNothing) {
  writing_.reserve(options_.queue_records + room_for_events);
  waiting_.reserve(options_.queue_records + room_for_events);
  if (options_.file.empty()) return;
  file_ = std::make_unique<messages::RotatingFile>(options_.file, options_.max_file_bytes, options_.max_files);
  file_->open();  // a wrong path is told here
}

void DecisionQueue::start() {
  thread_ = messages::start_thread([self = shared_from_this()] { self->work(); }, "to write the decision log",
                                   "This DecisionLog cannot be made; policies work without one");
}

void DecisionQueue::close() noexcept {
  if (process_.is_another()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_one();
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();  // `on_line` let go of the log: the thread ends when it has written what waits
  else
    thread_.join();
}

void DecisionQueue::note_entry(LogEntry&& entry, size_t room) noexcept {
  if (process_.is_another()) return;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (!taking_) return;
    if (waiting_.size() >= room) return drop_locked();
    waiting_.push_back(std::move(entry));  // has its memory
    ++noted_;
    const bool many = waiting_.size() == (options_.queue_records + 1) / 2;
    wake = doing_ == Thread::waits || (doing_ == Thread::lingers && many);
  }
  if (wake) more_.notify_one();
  if (options_.at_once) flush();
}

void DecisionQueue::drop() noexcept {
  if (process_.is_another()) return;
  const std::lock_guard lock(mutex_);
  if (taking_) drop_locked();
}

void DecisionQueue::drop_locked() noexcept {
  lost_.add({1, std::chrono::system_clock::now()});
  ++noted_;
  dropped_.fetch_add(1, std::memory_order_relaxed);
}

void DecisionQueue::stop_noting() noexcept {
  if (process_.is_another()) return;
  const std::lock_guard lock(mutex_);
  taking_ = false;
}

void DecisionQueue::flush() noexcept {
  if (process_.is_another()) return;
  if (std::this_thread::get_id() == thread_.get_id()) return;
  std::unique_lock lock(mutex_);
  const uint64_t until = noted_;
  ++flushing_;
  more_.notify_one();
  done_.wait(lock, [&] { return finished_ >= until; });
  --flushing_;
}

DecisionCounts DecisionQueue::counts() const noexcept { return {written_.load(), dropped_.load(), failed_.load()}; }

void DecisionQueue::work() {
  std::unique_lock lock(mutex_);
  const auto has_work = [this] { return !waiting_.empty() || lost_.count > 0; };
  for (;;) {
    doing_ = Thread::waits;
    more_.wait(lock, [&] { return has_work() || stop_; });
    if (!has_work()) return;
    doing_ = Thread::writes;
    writing_.swap(waiting_);
    const Lost lost = std::exchange(lost_, {});
    lock.unlock();
    const uint64_t count = writing_.size() + lost.count;
    write(writing_, lost);
    writing_.clear();
    lock.lock();
    finished_ += count;
    done_.notify_all();
    doing_ = Thread::lingers;
    more_.wait_for(lock, linger,
                   [&] { return stop_ || flushing_ > 0 || 2 * waiting_.size() >= options_.queue_records; });
  }
}

/// Whether that worked; the first failure is told.
template <class Act>
bool DecisionQueue::with_file(const Act& act) noexcept {
  try {
    act(*file_);
    return true;
  } catch (const std::exception& error) {
    tell_failure(told_file_, "the decision log cannot be written", error.what());
    return false;
  }
}

void DecisionQueue::write(Batch& batch, const Lost& lost) noexcept {
  untold_.add(lost);
  Fine fine;
  file_works_ = !file_ || with_file([](messages::RotatingFile& file) { file.open(); });
  write_all(batch, fine);
  if (untold_.count > 0) tell_lost();
  // Nothing can be said of the lines since the last time that this worked.
  if (file_ && !(file_works_ && with_file([](messages::RotatingFile& file) { file.flush(); }))) fine = {};
  written_ += fine.decisions;
  failed_ += batch.size() - fine.decisions - fine.events;
}

void DecisionQueue::write_all(Batch& batch, Fine& fine) noexcept {
  for (LogEntry& entry : batch) {
    try {
      const bool is_written = write_entry(entry);
      (std::holds_alternative<Decision>(entry) ? fine.decisions : fine.events) += is_written;
    } catch (const std::exception& error) {
      tell_failure(told_file_, "a decision cannot be written", error.what());
    }
  }
}

bool DecisionQueue::write_entry(LogEntry& entry) {
  if (const auto* const event = std::get_if<PolicyEvent>(&entry)) return put(lines_.line(*event));
  Decision& decision = std::get<Decision>(entry);
  if (decision.unsaved) decision.capsule = capsules_.save(*decision.unsaved);
  decision.unsaved.reset();
  return put(lines_.line(decision));
}

/// Once it is told.
void DecisionQueue::tell_lost() noexcept {
  try {
    if (put(lines_.dropped_line(untold_.count, untold_.since))) untold_ = {};
  } catch (const std::exception&) {  // no memory: with the next batch
  }
}

/// To all sinks; whether all took it. A file that has failed gets nothing more of this batch: it may take long to fail.
bool DecisionQueue::put(const std::string& line) noexcept {
  bool fine = true;
  if (options_.on_line) {
    try {
      options_.on_line(line);
    } catch (const std::exception& error) {
      fine = false;
      tell_failure(told_callback_, "`on_line` of the decision log threw", error.what());
    } catch (...) {
      fine = false;
      tell_failure(told_callback_, "`on_line` of the decision log threw", "no std::exception");
    }
  }
  if (!file_ || !file_works_) return fine && !file_;
  file_works_ = with_file([&](messages::RotatingFile& file) { file.write(line); });
  return fine && file_works_;
}

void DecisionQueue::tell_failure(bool& told, const char* what, const char* why) noexcept {
  if (std::exchange(told, true)) return;
  try {
    logger_.write(LogLevel::error,
                  fmt::format("{}: {}; calls go on, and DecisionLog::counts tells how many decisions fail; later "
                              "failures are not logged",
                              what, why),
                  {{"path", options_.file.string()}, {"error", why}});
  } catch (const std::exception&) {  // no memory for the record
  }
}

}  // namespace policy

DecisionLog::DecisionLog(DecisionLogOptions options)
    : queue_(messages::errors_only([&] {
        auto queue = std::make_shared<policy::DecisionQueue>(std::move(options));
        queue->start();
        return queue;
      })) {}

DecisionLog::~DecisionLog() { queue_->close(); }

void DecisionLog::flush() { queue_->flush(); }

DecisionCounts DecisionLog::counts() const noexcept { return queue_->counts(); }

}  // namespace triage
