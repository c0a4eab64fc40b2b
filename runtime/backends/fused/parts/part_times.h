#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/backends/fused/tape/step_times.h"
#include "runtime/backends/fused/tape/tape.h"
#include "runtime/messages/debugging/debug_folder.h"

/// How long the parts of a graph and the steps of their tapes take. A call that nobody times pays two loads.
namespace triage::fused {

/// Microseconds of a call, on average over those that were timed.
struct PartTime {
  std::string label;   // label_of
  std::string source;  // the lines of the script that it comes from; empty: not known
  double micros = 0;
  std::vector<ListedLine> listing;  // of the tape that ran; empty: none did
  std::vector<double> steps;        // by their numbers in the listing
};
struct GraphTime {
  std::string graph;
  int64_t calls = 0;
  double micros = 0;  // of a call; parts take a little less
  std::vector<PartTime> parts;
};
struct LineTime {
  std::string source;  // empty: what belongs to no line, such as memory for results
  double micros = 0;
};
/// Each line of the script, the slowest first, then what belongs to none. They add up to the time of all graphs.
std::vector<LineTime> times_of_lines(const std::vector<GraphTime>& graphs);

/// The listing of a part's tape, each step with its microseconds and its share of `whole`; empty where no tape ran.
std::string text_of(const PartTime& part, double whole);
/// The lines alone, and all: the lines of the script, each part, and the listings.
std::string lines_text(const std::vector<LineTime>& lines, double whole);
std::string text_of(const GraphTime& time);

/// While it lives, calls of all graphs on the CPU are timed.
class TimeCalls {
 public:
  TimeCalls();
  ~TimeCalls();
  TimeCalls(const TimeCalls&) = delete;
  TimeCalls& operator=(const TimeCalls&) = delete;
  /// Of the graphs that were called since the first object of this type began to live, in the order of their first
  /// calls.
  std::vector<GraphTime> times() const;
};

class TimedCall;

/// Times the parts of one graph: where a TimeCalls lives; and the first calls, where the trace or the debug folder is
/// on.
class PartTimer {
 public:
  explicit PartTimer(std::string graph);
  ~PartTimer();
  PartTimer(const PartTimer&) = delete;
  PartTimer& operator=(const PartTimer&) = delete;

  /// Parts are numbered in this order. `lines`: Loops::lines, which outlive this; null where it is no loop.
  void add_part(std::string label, std::string source, const std::vector<std::string>* lines);
  void repeat_part(size_t number) { parts_.push_back(parts_[number]); }
  bool is_on() const noexcept {
    return asked.load(std::memory_order_relaxed) > 0 || to_report_.load(std::memory_order_relaxed);
  }
  void add(const TimedCall& call);
  GraphTime average() const;

 private:
  friend class TimeCalls;
  static inline std::atomic<int> asked{0};  // how many ask

  struct TimedPart {
    std::string label, source;
    const std::vector<std::string>* lines;
    int64_t all = 0, loops = 0;  // nanoseconds
    const Tape* tape = nullptr;
    StepTimes::Nanoseconds steps{};
  };
  static PartTime average_of(const TimedPart& part, int64_t calls);
  void restart();
  void report() noexcept;

  const std::string graph_;
  std::atomic<bool> to_report_;
  messages::DebugScope::EndedScope scope_;  // where to
  mutable std::mutex mutex_;
  std::vector<TimedPart> parts_;
  int64_t calls_ = 0, all_ = 0;
};

/// One call of a graph whose parts are timed.
class TimedCall {
 public:
  explicit TimedCall(size_t parts) : parts_(parts), begin_(StepClock::now()) {}
  /// Runs part `number`, which tells what its tape takes.
  template <class Run>
  auto part(size_t number, const Run& run) {
    StepTimes& times = parts_[number];
    const int64_t begin = StepClock::now();
    const auto result = run(&times);
    times.whole = StepClock::now() - begin;
    return result;
  }
  const std::deque<StepTimes>& parts() const { return parts_; }
  int64_t nanoseconds() const { return StepClock::now() - begin_; }

 private:
  std::deque<StepTimes> parts_;
  int64_t begin_;
};

}  // namespace triage::fused
