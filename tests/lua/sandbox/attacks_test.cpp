// Scripts that try to take more time or memory than their budget allows: tests/lua/sandbox/attacks/*.txt. They run in a
// process of their own, which is killed when it hangs; after each of them that process runs a healthy policy.
//
// TRIAGE_ATTACKS=1 shows what each took, TRIAGE_ATTACK=NAME runs those with NAME in their names,
// TRIAGE_ATTACKS_FOLDER=DIR runs others.
#include "bindings/lua/engine/script_state.h"
#include "bindings/lua/sandbox/sandbox.h"
#include "bindings/lua/semantics/chunk.h"
#include "bindings/lua/state/protected.h"
#include "tests/paths.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <triage/error.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace triage::lua {
namespace {

namespace fs = std::filesystem;

constexpr double seconds = 0.12;
constexpr size_t script_bytes = 32u << 20, tensor_bytes = 64u << 20;
constexpr int seconds_without_news = 20;  // then the process hangs
// That the process may have grown by during one of them. AddressSanitizer keeps freed memory.
#if defined(__SANITIZE_ADDRESS__)
constexpr long most_megabytes = 8000;
#else
constexpr long most_megabytes = 300;
#endif
constexpr char separator = '\x1f';

/// One script, and what its error may say, parts of texts with `|` between them; "ok": it may also end well.
struct Attack {
  std::string name, expected, source;
};

std::vector<Attack> attacks_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<Attack> attacks;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("--- ", 0) != 0) {
      REQUIRE_MESSAGE(!attacks.empty(), path.string() << " begins with a line --- name | expected");
      attacks.back().source += line + "\n";
      continue;
    }
    const size_t bar = line.find(" | ");
    REQUIRE_MESSAGE(bar != std::string::npos, line);
    attacks.push_back({line.substr(4, bar - 4), line.substr(bar + 3), ""});
  }
  return attacks;
}

std::vector<Attack> all_attacks() {
  const char* const folder = std::getenv("TRIAGE_ATTACKS_FOLDER");
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(folder ? folder : triage::test::source_dir() + "/tests/lua/sandbox/attacks"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<Attack> all;
  for (const fs::path& file : files)
    for (Attack& attack : attacks_of(file)) all.push_back(std::move(attack));
  return all;
}

bool is_expected(const Attack& attack, const std::string& outcome) {
  if (outcome.find("budget of time") != std::string::npos)
    return true;  // on a busy machine each may come to that first
  std::istringstream parts(attack.expected);
  for (std::string part; std::getline(parts, part, '|');)
    if (part == "ok" ? outcome == "ok" : outcome.find(part) != std::string::npos) return true;
  return false;
}

// --- the process that is attacked

/// What the script's error says, or "ok".
std::string outcome_of(ScriptState& state, const std::string& source) {
  try {
    Budget budget(state);
    in_protected_call(state.lua(), [&](lua_State*) {
      push_chunk(state, source, "@attack.lua");
      lua_call(state.lua(), 0, 0);
    });
    return state.context().expired ? "budget, and it went on" : "ok";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string attack(const std::string& source) {
  StateOptions options;
  options.path = "attack.lua";
  options.limits = {0, seconds, script_bytes, tensor_bytes};
  options.print = [](const std::string&) {};
  const auto state = make_script_state(std::move(options), {});
  return outcome_of(*state, source);
}

/// On a busy machine the budget of time may end before a healthy policy does: a process that is hurt stays so.
bool is_healthy() {
  for (int times = 0; times < 5; ++times)
    if (attack("local z = torch.tensor({{0/0}, {1.0}}) local f = flag_nan(z, 1023)\n"
               "assert(flags.repr(f) == 'ErrorFlags(2 samples, 1 errors: 1xNAN @ Location_1023)')\n"
               "local g = triage.export(function(x) return x * 2 end, {torch.ones({2})})\n"
               "assert(g(torch.ones({2})):sum():item() == 4)") == "ok")
      return true;
  return false;
}

/// In megabytes; the highest since it was last asked, where the system allows to restart.
long peak_memory() {
  std::ifstream status("/proc/self/status");
  long kilobytes = 0;
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) kilobytes = std::atol(line.c_str() + 6);
  std::ofstream("/proc/self/clear_refs") << "5";
  return kilobytes >> 10;
}

void report(int to, std::string line) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.resize(std::min<size_t>(line.size(), 1000));
  line += '\n';
  REQUIRE(::write(to, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
}

}  // namespace

TEST_CASE("attacked process" * doctest::skip()) {
  const char* const to = std::getenv("TRIAGE_ATTACK_REPORT");
  const char* const only = std::getenv("TRIAGE_ATTACK");
  if (!to) return;
  const int pipe = std::atoi(to);
  REQUIRE(is_healthy());
  peak_memory();  // which restarts here
  const long low = peak_memory();
  for (const Attack& one : all_attacks()) {
    if (only && one.name.find(only) == std::string::npos) continue;
    report(pipe, "start" + std::string(1, separator) + one.name);
    peak_memory();
    const auto start = std::chrono::steady_clock::now();
    const std::string outcome = attack(one.source);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const long grown = peak_memory() - low;
    const std::string words[] = {
        "end",  one.name, std::to_string(took.count()), std::to_string(grown), is_healthy() ? "healthy" : "hurt",
        outcome};
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "" : std::string(1, separator)) + word;
    report(pipe, line);
  }
}

// --- the process that watches

namespace {

class Watched {
 public:
  Watched() {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    read_ = ends[0];
    const std::string self = fs::read_symlink("/proc/self/exe");
    ::setenv("TRIAGE_ATTACK_REPORT", std::to_string(ends[1]).c_str(), 1);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::execl(self.c_str(), self.c_str(), "--no-skip", "--test-case=attacked process", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    ::unsetenv("TRIAGE_ATTACK_REPORT");
  }
  ~Watched() {
    if (!ended_) ::kill(pid_, SIGKILL);
    if (!ended_) ::waitpid(pid_, nullptr, 0);
    ::close(read_);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  /// The next line it reports; empty when it ended, or was silent for too long.
  std::string next_line() {
    size_t end = 0;
    while ((end = text_.find('\n')) == std::string::npos) {
      pollfd waits{read_, POLLIN, 0};
      if (::poll(&waits, 1, seconds_without_news * 1000) <= 0) return "";
      char buffer[4096];
      const ssize_t size = ::read(read_, buffer, sizeof buffer);
      if (size <= 0) return "";
      text_.append(buffer, static_cast<size_t>(size));
    }
    const std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

  /// Whether it ended well by itself.
  bool ends_well() {
    for (int tenths = 0; tenths < 10 * seconds_without_news; ++tenths) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        ended_ = true;
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
      }
      ::usleep(100'000);
    }
    return false;
  }

 private:
  pid_t pid_ = -1;
  int read_ = -1;
  bool ended_ = false;
  std::string text_;
};

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream in(line);
  for (std::string word; std::getline(in, word, separator);) words.push_back(word);
  return words;
}

}  // namespace

TEST_CASE("attacks on time and memory end within the budget, and the process goes on") {
  const bool shows = std::getenv("TRIAGE_ATTACKS") != nullptr;
  const std::vector<Attack> attacks = all_attacks();
  CHECK(!attacks.empty());
  Watched process;
  std::string running = "start-up";
  size_t ended = 0;
  for (std::string line; !(line = process.next_line()).empty();) {
    const std::vector<std::string> words = words_of(line);
    REQUIRE(words.size() >= 2);
    running = words[1];
    if (words[0] != "end") continue;
    REQUIRE(words.size() >= 6);
    ++ended;
    const auto attack =
        std::find_if(attacks.begin(), attacks.end(), [&](const Attack& a) { return a.name == running; });
    REQUIRE(attack != attacks.end());
    CHECK_MESSAGE(is_expected(*attack, words[5]), running << ": expected " << attack->expected << ", got " << words[5]);
    CHECK_MESSAGE(words[4] == "healthy", running << " hurt the process");
    CHECK_MESSAGE(std::stol(words[3]) <= most_megabytes, running << " took " << words[3] << " MB");
    if (shows) MESSAGE(words[2] << " s, " << words[3] << " MB: " << running << ": " << words[5].substr(0, 120));
  }
  const bool all = std::getenv("TRIAGE_ATTACK") || ended == attacks.size();
  CHECK_MESSAGE(all, "the process ended or hung during \"" << running << "\"");
  CHECK(process.ends_well());
}

}  // namespace triage::lua
