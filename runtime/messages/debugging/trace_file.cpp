#include "runtime/messages/debugging/trace_file.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <triage/version.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"
#include "runtime/messages/thread_context.h"

namespace triage::messages {
namespace {

constexpr uint64_t most_trace_bytes = uint64_t{256} << 20;
constexpr size_t longest_text = size_t{1} << 20;  // of one field
constexpr size_t most_sources = 1000;
constexpr size_t most_names = 10'000;  // of graphs, whose newest is known

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string machine() {
  utsname names{};
  const std::string system = ::uname(&names) == 0 ? fmt::format("{} {}", names.sysname, names.machine) : "unknown";
  return fmt::format("{}, {} threads", system, std::thread::hardware_concurrency());
}

}  // namespace

class TraceFile {
 public:
  static TraceFile& of_process() {  // never destroyed: threads compile until the process ends
    static TraceFile& file = *new TraceFile;
    return file;
  }

  std::string folder() {
    const std::lock_guard lock(mutex_);
    return folder_;
  }

  void set_folder(const std::string& folder) {
    const std::lock_guard lock(mutex_);
    close_locked();
    folder_ = folder;
    gave_up_ = false;
    trace_state = folder.empty() ? TraceState::off : TraceState::on;
  }

  int64_t new_graph(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (newest_.size() > most_names) newest_.clear();
    return newest_[name] = ++graphs_;
  }

  int64_t find_graph(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return find_graph_locked(name);
  }

  void write(const TraceEvent& event) {
    write_line([&] {
      const int64_t graph =
          context.graph != 0 || event.graph_.empty() ? context.graph : find_graph_locked(event.graph_);
      const auto now = TraceEvent::Clock::now();
      std::string line =
          event.json_ + fmt::format(",\"t\":{:.6f},\"thread\":{}", seconds(event.begin_ - start_), thread_number());
      if (graph != 0) line += fmt::format(",\"graph\":{}", graph);
      if (event.spans_) line += fmt::format(",\"seconds\":{:.6f}", seconds(now - event.begin_));
      return line + "}\n";
    });
  }

  /// Whether this text of this file is news.
  bool note_source(const std::string& file, std::string_view text) {
    const std::lock_guard lock(mutex_);
    start_over_after_fork();
    const size_t hash = std::hash<std::string_view>()(text);
    if (const auto known = sources_.find(file); known != sources_.end() && known->second == hash) return false;
    if (sources_.size() >= most_sources) return false;
    sources_[file] = hash;
    return true;
  }

  void give_up(const std::string& reason) {
    std::string folder;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(gave_up_, true)) return;
      close_locked();
      trace_state = TraceState::off;
      folder = folder_;
    }
    LogTo::current().write(LogLevel::error, fmt::format("the trace in \"{}\" is not written any further: {}; the "
                                                        "program goes on without it",
                                                        folder, reason));
  }

 private:
  TraceFile() {
    const char* const folder = std::getenv("TRIAGE_TRACE");
    folder_ = folder ? folder : "";
    auto unread = TraceState::unread;
    trace_state.compare_exchange_strong(unread, folder_.empty() ? TraceState::off : TraceState::on);
  }

  int64_t find_graph_locked(const std::string& graph) const {
    for (std::string name = graph;;) {  // or the one that it is a half of
      if (const auto found = newest_.find(name); found != newest_.end()) return found->second;
      const size_t cut = name.rfind('_');
      if (cut == std::string::npos) return 0;
      name.resize(cut);
    }
  }

  template <class Line>
  void write_line(const Line& line) {
    std::string error;
    {
      const std::lock_guard lock(mutex_);
      if (gave_up_ || folder_.empty()) return;
      start_over_after_fork();
      if (fd_ < 0) error = open_locked();
      if (error.empty()) error = append_locked(line());
    }
    if (!error.empty()) give_up(error);
  }

  /// A forked child writes a file of its own.
  void start_over_after_fork() {
    if (process_ == ::getpid()) return;
    close_locked();
    process_ = ::getpid();
  }

  void close_locked() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    bytes_ = 0;
    sources_.clear();
    newest_.clear();
  }

  /// What went wrong; empty where nothing did. A link in the place of the file is not followed.
  std::string open_locked() {
    const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
    const auto second = std::chrono::time_point_cast<std::chrono::seconds>(now);
    const auto time = fmt::gmtime(std::chrono::system_clock::to_time_t(second));
    std::error_code failed;
    std::filesystem::create_directories(folder_, failed);
    if (failed) return fmt::format("cannot make the folder: {}", failed.message());
    path_ = fmt::format("{}/trace-{:%Y_%m_%d_%H_%M_%S}_{:06}-pid_{}.jsonl", folder_, time, (now - second).count(),
                        process_);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) return fmt::format("cannot write \"{}\": {}", path_, std::strerror(errno));
    start_ = TraceEvent::Clock::now();
    return append_locked(
        fmt::format("{{\"event\":\"trace\",\"format\":{},\"triage\":{},\"libtorch\":{},\"machine\":{},\"pid\":{},"
                    "\"time\":{:.6f}}}\n",
                    trace_format, json_text(TRIAGE_VERSION), json_text(TORCH_VERSION), json_text(machine()), process_,
                    static_cast<double>(now.time_since_epoch().count()) * 1e-6));
  }

  std::string append_locked(std::string_view line) {
    if ((bytes_ += line.size()) > most_trace_bytes)
      return fmt::format("it has reached its limit of {} MiB", most_trace_bytes >> 20);
    while (!line.empty()) {
      const ssize_t written = ::write(fd_, line.data(), line.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return fmt::format("cannot write \"{}\": {}", path_, std::strerror(errno));
      line.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }

  ForkSafeMutex mutex_;  // what follows
  std::string folder_, path_;
  pid_t process_ = ::getpid();
  int fd_ = -1;
  uint64_t bytes_ = 0;
  bool gave_up_ = false;
  int64_t graphs_ = 0;
  TraceEvent::Clock::time_point start_{};
  std::map<std::string, size_t> sources_;  // the newest text of each file, by its hash
  std::map<std::string, int64_t> newest_;  // graphs, by name
};

bool read_trace_environment() noexcept {
  try {
    TraceFile::of_process();
  } catch (const std::exception&) {  // no memory for it
    trace_state = TraceState::off;
  }
  return trace_state.load(std::memory_order_relaxed) == TraceState::on;
}

std::string trace_dir() { return TraceFile::of_process().folder(); }
void set_trace_dir(const std::string& path) { TraceFile::of_process().set_folder(path); }

TraceEvent::TraceEvent(std::string_view event) : json_(fmt::format("{{\"event\":{}", json_text(event))) {}

TraceEvent& TraceEvent::text(std::string_view name, std::string_view value) {
  return json(name, json_text(value.substr(0, longest_text)));
}

TraceEvent& TraceEvent::number(std::string_view name, int64_t value) { return json(name, fmt::format("{}", value)); }

TraceEvent& TraceEvent::json(std::string_view name, std::string_view value) {
  json_ += fmt::format(",\"{}\":{}", name, value);
  return *this;
}

TraceEvent& TraceEvent::graph(const std::string& name) {
  graph_ = name;
  return *this;
}

TraceEvent& TraceEvent::since(Clock::time_point begin) {
  begin_ = begin;
  spans_ = true;
  return *this;
}

void write_trace(const TraceEvent& event) noexcept {
  try {
    TraceFile::of_process().write(event);
  } catch (const std::exception& error) {
    give_up_trace(error.what());
  }
}

void give_up_trace(const std::string& reason) noexcept {
  try {
    TraceFile::of_process().give_up(reason);
  } catch (const std::exception&) {  // no memory for the record
  }
}

void trace_source(const std::string& file, std::string_view text) noexcept {
  if (!trace_on()) return;
  try {
    if (TraceFile::of_process().note_source(file, text))
      write_trace(TraceEvent("source").text("file", file).text("text", text));
  } catch (const std::exception& error) {
    give_up_trace(error.what());
  }
}

TraceScope::TraceScope(const std::string& graph, bool is_new) : active_(trace_on()), is_new_(is_new) {
  if (!active_) return;
  TraceFile& file = TraceFile::of_process();
  outer_ = std::exchange(context.graph, is_new ? file.new_graph(graph) : file.find_graph(graph));
  begin_ = TraceEvent::Clock::now();
}

TraceScope::TraceScope(int64_t graph) : active_(trace_on()) {
  if (active_) outer_ = std::exchange(context.graph, graph);
}

int64_t TraceScope::current() { return context.graph; }

TraceScope::~TraceScope() {
  if (!active_) return;
  if (is_new_) trace([&] { return TraceEvent("captured").since(begin_); });
  context.graph = outer_;
}

}  // namespace triage::messages
