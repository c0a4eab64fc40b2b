#include "runtime/messages/debugging/debug_folder.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/messages/asked.h"
#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"
#include "runtime/messages/thread_context.h"

namespace triage::messages {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 14> file_names = {"debug.log",       "graph_readable.txt", "graph_transformed.txt",
                                                    "joint_graph.txt", "ir_pre_fusion.txt",  "ir_post_fusion.txt",
                                                    "output_code.txt", "guards.txt",         "timing.json",
                                                    "profile.json",    "step_times.txt",     "graph_runnable.lua",
                                                    "graph.dot",       "graph.svg"};
constexpr uint32_t bit_of(DebugFile file) { return uint32_t{1} << static_cast<int>(file); }
constexpr uint32_t usual_files =
    bit_of(DebugFile::graph_dot) - 1 - bit_of(DebugFile::profile);  // diagrams and the profile are asked for
constexpr uint64_t most_bytes = uint64_t{256} << 20;
constexpr size_t most_folders = 1000;

std::string name_of(DebugFile file) { return file_names[static_cast<size_t>(file)]; }

struct DebugStep {
  std::string step;
  double begin, seconds;  // `begin` since the run began
};

class DebugFolders {
 public:
  static DebugFolders& of_process() {  // never destroyed: threads compile until the process ends
    static DebugFolders& folders = *new DebugFolders;
    return folders;
  }

  uint32_t files() const noexcept { return files_.load(std::memory_order_relaxed); }

  std::string root() {
    const std::lock_guard lock(mutex_);
    return root_;
  }
  void set_root(const std::string& root) {
    const std::lock_guard lock(mutex_);
    root_ = root;
    run_.clear();
    newest_.clear();
    gave_up_ = false;
    files_ = root.empty() ? 0 : chosen_;
  }

  /// A new folder; empty where there can be none.
  std::string make(const std::string& graph) {
    std::string error;
    {
      const std::lock_guard lock(mutex_);
      if (root_.empty() || gave_up_) return {};
      try {
        return newest_[graph] = make_locked(graph);
      } catch (const std::exception& failure) {
        error = failure.what();
      }
    }
    give_up(error);
    return {};
  }

  /// That of the newest graph of this name, or of the one that it is a half of.
  std::string find(const std::string& graph) {
    const std::lock_guard lock(mutex_);
    for (std::string name = graph;;) {
      if (const auto found = newest_.find(name); found != newest_.end()) return found->second;
      const size_t cut = name.rfind('_');
      if (cut == std::string::npos) return {};
      name.resize(cut);
    }
  }

  void write(const std::string& folder, const std::string& name, std::string_view text, bool append) {
    std::string error;
    {
      const std::lock_guard lock(mutex_);
      if (gave_up_) return;
      if ((bytes_ += text.size()) > most_bytes)
        error = fmt::format("it has reached its limit of {} MiB", most_bytes >> 20);
      else
        error = write_locked(folder + "/" + name, text, append);
    }
    if (!error.empty()) give_up(error);
  }

  void note(const std::string& folder, const std::string& step, std::chrono::steady_clock::time_point begin) {
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    std::string timing, profile;
    {
      const std::lock_guard lock(mutex_);
      std::vector<DebugStep>& events = events_[folder];
      events.push_back({step, seconds(begin - start_), seconds(std::chrono::steady_clock::now() - begin)});
      for (const DebugStep& event : events) {
        timing += fmt::format("{}\n  {{\"step\": {}, \"seconds\": {:.6f}}}", timing.empty() ? "" : ",",
                              json_text(event.step), event.seconds);
        profile += fmt::format(
            "{}\n  {{\"name\": {}, \"ph\": \"X\", \"pid\": {}, \"tid\": 1, \"ts\": {:.1f}, \"dur\": {:.1f}}}",
            profile.empty() ? "" : ",", json_text(event.step), ::getpid(), event.begin * 1e6, event.seconds * 1e6);
      }
    }
    if (wants_debug_file(DebugFile::timing)) write(folder, name_of(DebugFile::timing), "[" + timing + "\n]\n", false);
    if (wants_debug_file(DebugFile::profile))
      write(folder, name_of(DebugFile::profile), "{\"traceEvents\": [" + profile + "\n]}\n", false);
  }

  void give_up(const std::string& reason) {
    std::string root;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(gave_up_, true)) return;
      files_ = 0;
      root = root_;
    }
    LogTo::current().write(LogLevel::error,
                           fmt::format("the debug folder \"{}\" is not written any further: {}; the program "
                                       "goes on without it",
                                       root, reason));
  }

 private:
  DebugFolders() {
    const char *const debug = std::getenv("TRIAGE_COMPILE_DEBUG"), *const root = std::getenv("TRIAGE_DEBUG_DIR");
    const std::string words = debug ? debug : "";
    if (words.empty() || words == "0") return;
    choose(words);
    set_root(root && *root ? root : "triage_debug");
  }

  void choose(std::string_view words) {
    while (!words.empty()) {
      const size_t end = std::min(words.find(','), words.size());
      std::string_view word = words.substr(0, end);
      words.remove_prefix(std::min(end + 1, words.size()));
      const bool off = word.starts_with('-');
      if (off || word.starts_with('+')) word.remove_prefix(1);
      bool known = word == "1" || word.empty();
      for (size_t i = 0; i < file_names.size(); ++i) {
        if (word != file_names[i]) continue;
        known = true;
        chosen_ = off ? chosen_ & ~(uint32_t{1} << i) : chosen_ | uint32_t{1} << i;
        if (!off && word == name_of(DebugFile::graph_svg))
          chosen_ |= bit_of(DebugFile::graph_dot);  // it is drawn of that
      }
      if (!known)
        LogTo::current().write(LogLevel::warn, fmt::format("TRIAGE_COMPILE_DEBUG: there is no file '{}'; there are {}",
                                                           one_line(word), fmt::join(file_names, ", ")));
    }
  }

  /// A forked child writes to a run of its own.
  std::string make_locked(const std::string& graph) {
    if (run_.empty() || run_of_ != ::getpid()) {
      const auto now = std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
      const auto second = std::chrono::time_point_cast<std::chrono::seconds>(now);
      run_ = fmt::format("{}/run_{:%Y_%m_%d_%H_%M_%S}_{:06}-pid_{}", root_,
                         fmt::gmtime(std::chrono::system_clock::to_time_t(second)), (now - second).count(), ::getpid());
      fs::create_directories(run_);
      run_of_ = ::getpid();
      folders_ = bytes_ = 0;
      numbers_.clear();
      newest_.clear();
      events_.clear();
    }
    if (folders_ == most_folders)
      throw std::runtime_error(fmt::format("it has reached its limit of {} graphs", most_folders));
    ++folders_;
    const std::string name = folder_name(graph);
    std::string folder = fmt::format("{}/{}_{}", run_, name, ++numbers_[name]);
    fs::create_directory(folder);
    return folder;
  }

  /// What went wrong; empty where nothing did. A link in the place of the file is not followed.
  static std::string write_locked(const std::string& path, std::string_view text, bool append) {
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (append ? O_APPEND : O_TRUNC), 0644);
    bool good = fd >= 0;
    while (good && !text.empty()) {
      const ssize_t written = ::write(fd, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      good = written > 0;
      if (good) text.remove_prefix(static_cast<size_t>(written));
    }
    const std::string error = good ? "" : fmt::format("cannot write \"{}\": {}", path, std::strerror(errno));
    if (fd >= 0) ::close(fd);
    return error;
  }

  std::atomic<uint32_t> files_{0};  // one bit for each DebugFile
  uint32_t chosen_ = usual_files;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  ForkSafeMutex mutex_;  // what follows
  std::string root_, run_;
  pid_t run_of_ = -1;
  uint64_t bytes_ = 0, folders_ = 0;
  bool gave_up_ = false;
  std::map<std::string, int> numbers_;         // by name of a folder
  std::map<std::string, std::string> newest_;  // folders, by graph
  std::map<std::string, std::vector<DebugStep>> events_;
};

/// Of the scope; empty outside of one.
std::string_view current_folder() noexcept {
  return context.debug_folder ? std::string_view(*context.debug_folder) : std::string_view();
}

std::string folder_of(const std::string& graph) {
  const std::string_view current = current_folder();
  return !current.empty() || graph.empty() ? std::string(current) : DebugFolders::of_process().find(graph);
}

}  // namespace

std::string folder_name(const std::string& graph) {
  constexpr size_t longest_name = 100;
  std::string name = graph.substr(graph.size() > longest_name ? graph.size() - longest_name : 0);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.') c = '_';
  if (name.empty() || name.front() == '.') name.insert(name.begin(), '_');
  return name;
}

static uint32_t wanted_files() noexcept {
  return asked([] { return DebugFolders::of_process().files(); }, 0u);
}
bool debug_folder_on() noexcept { return wanted_files() != 0; }
bool wants_debug_file(DebugFile file) noexcept { return (wanted_files() >> static_cast<int>(file) & 1) != 0; }

std::string debug_dir() { return DebugFolders::of_process().root(); }
void set_debug_dir(const std::string& path) { DebugFolders::of_process().set_root(path); }

DebugScope::DebugScope(const std::string& graph, Of of)
    : trace_(graph, of == Of::new_graph), active_(debug_folder_on()) {
  if (!active_) return;
  auto& folders = DebugFolders::of_process();
  folder_ = of == Of::new_graph ? folders.make(graph) : folders.find(graph);
  outer_ = std::exchange(context.debug_folder, &folder_);
}

DebugScope::DebugScope(const EndedScope& ended)
    : trace_(ended.graph), folder_(ended.folder), active_(debug_folder_on() && !ended.folder.empty()) {
  if (active_) outer_ = std::exchange(context.debug_folder, &folder_);
}

DebugScope::EndedScope DebugScope::current() { return {TraceScope::current(), std::string(current_folder())}; }

DebugScope::~DebugScope() {
  if (active_) context.debug_folder = outer_;
}

void write_debug_file(DebugFile file, std::string_view text, const std::string& graph) noexcept {
  if (!wants_debug_file(file)) return;
  try {
    if (const std::string folder = folder_of(graph); !folder.empty())
      DebugFolders::of_process().write(folder, name_of(file), text, /*append=*/true);
  } catch (const std::exception& error) {
    give_up_debug_folder(error.what());
  }
}

std::string debug_file_path(DebugFile file) {
  if (current_folder().empty() || !wants_debug_file(file)) return "";
  return fmt::format("{}/{}", current_folder(), name_of(file));
}

void write_to_debug_log(const LogRecord& record) noexcept {
  if (current_folder().empty() || !wants_debug_file(DebugFile::debug_log)) return;
  try {
    write_debug_file(DebugFile::debug_log, fmt::format("[{}] {}\n", to_string(record.level), readable(record)));
  } catch (const std::exception&) {  // no memory for the line
  }
}

void note_debug_step(const std::string& step, std::chrono::steady_clock::time_point begin) noexcept {
  if (current_folder().empty()) return;
  try {
    DebugFolders::of_process().note(std::string(current_folder()), step, begin);
  } catch (const std::exception& error) {
    give_up_debug_folder(error.what());
  }
}

void give_up_debug_folder(const std::string& reason) noexcept {
  try {
    DebugFolders::of_process().give_up(reason);
  } catch (const std::exception&) {  // no memory for the record
  }
}

}  // namespace triage::messages
