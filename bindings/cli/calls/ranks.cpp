#include "bindings/cli/calls/ranks.h"

#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"

#ifndef TRIAGE_GLOO

namespace triage::cli {

int in_ranks(const std::string&, double, const std::function<int(const Group&)>&) {
  throw UsageError("--ranks: this program was built without the headers of Gloo (Debian: libgloo-dev)");
}

}  // namespace triage::cli

#else

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/version.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "runtime/messages/debugging/verbose.h"

namespace triage::cli {
namespace {

constexpr int most_ranks = 1024;  // of one machine

using Gloo = c10d::ProcessGroupGloo;
using Store = c10::intrusive_ptr<c10d::Store>;

struct Rank {
  int number, count;
  std::chrono::milliseconds timeout;
};

Group connect(const Store& store, const Rank& rank, std::shared_ptr<gloo::transport::Device> device) {
  auto options = Gloo::Options::create();
  options->devices.push_back(std::move(device));
  options->timeout = rank.timeout;
  return Group(c10::make_intrusive<Gloo>(store, rank.number, rank.count, options));
}

std::optional<int> parsed(const std::string& text, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && number >= least && number <= most ? std::optional(number) : std::nullopt;
}

/// A rank writes to the sockets of one that has ended: that is an error of its operation, not its own end.
void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

// Ranks that a launcher has started

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (!value || !*value)
    throw UsageError(fmt::format(
        "--ranks env: the environment variable {} is missing. A launcher sets RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT, for example: torchrun --no-python --nproc-per-node=4 triage exec --ranks env SCRIPT.lua. To "
        "start "
        "the processes on this machine: --ranks 4",
        name));
  return value;
}

int number_of(const char* name, int least, int most) {
  const std::string text = variable(name);
  const auto number = parsed(text, least, most);
  if (!number)
    throw UsageError(
        fmt::format("--ranks env: expected a number from {} to {} in the environment variable {}, got '{}'", least,
                    most, name, text));
  return *number;
}

/// LibTorch since 2.4 asks for libuv by default, also where it was built without.
Store connect_store(const std::string& host, c10d::TCPStoreOptions& options) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  try {
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  } catch (const c10::Error& error) {
    if (std::string_view(error.what_without_backtrace()).find("libuv") == std::string_view::npos) throw;
    options.useLibUV = false;
  }
#endif
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// Where all ranks meet: at rank 0, unless the launcher itself waits there, as torchrun does.
Store store_of_environment(const Rank& rank) {
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(number_of("MASTER_PORT", 1, 65535));
  options.isServer = rank.number == 0 && !(agent && std::strcmp(agent, "True") == 0);
  options.timeout = rank.timeout;
  return c10::make_intrusive<c10d::PrefixStore>(std::string("triage/") + (restarts ? restarts : "0"),
                                                connect_store(variable("MASTER_ADDR"), options));
}

int run_launched(std::chrono::milliseconds timeout, const std::function<int(const Group&)>& work) {
  const int count = number_of("WORLD_SIZE", 1, 1 << 20);
  const Rank rank{number_of("RANK", 0, count - 1), count, timeout};
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  ignore_broken_pipes();
  return work(connect(store_of_environment(rank), rank,
                      interface ? Gloo::createDeviceForInterface(interface) : Gloo::createDefaultDevice()));
}

// Ranks on this machine

/// Where they meet; removed at the end.
class MeetingPlace {
 public:
  MeetingPlace() : folder_((std::filesystem::temp_directory_path() / "triage-ranks-XXXXXX").string()) {
    if (!::mkdtemp(folder_.data()))
      throw UsageError(fmt::format("--ranks: cannot make a folder in {}, where the processes meet: {}",
                                   std::filesystem::temp_directory_path().string(), std::strerror(errno)));
  }
  ~MeetingPlace() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  Store store(int count) const { return c10::make_intrusive<c10d::FileStore>(folder_ + "/store", count); }

 private:
  std::string folder_;
};

/// The processes share the cores, unless the user has said how many threads each has.
void share_cores(int count) {
  if (!std::getenv("OMP_NUM_THREADS")) at::set_num_threads(std::max(1, at::get_num_threads() / count));
}

/// In a process of its own, which ends without destructors: the meeting place is the parent's, and a group waits for
/// its threads.
[[noreturn]] void run_as(const Rank& rank, const MeetingPlace& place, const std::function<int(const Group&)>& work) {
  int status = 1;
  try {
    ignore_broken_pipes();
    share_cores(rank.count);
    status = work(connect(place.store(rank.count), rank, Gloo::createDeviceForHostname("127.0.0.1")));
  } catch (const std::exception& error) {
    say(stderr, "triage exec: rank {} of {}: {}\n", rank.number, rank.count,
        messages::message_without_backtrace(error));
  }
  std::fflush(nullptr);
  ::_exit(status);
}

struct EndedRank {
  int rank = -1, status = 0;
};

/// The next process that ends; it is no longer among `processes`.
EndedRank next_ended(std::vector<pid_t>& processes) {
  int status = 0;
  pid_t process = -1;
  do process = ::waitpid(-1, &status, 0);
  while (process < 0 && errno == EINTR);
  const auto place = std::find(processes.begin(), processes.end(), process);
  if (place == processes.end()) return {};
  *place = 0;
  return {static_cast<int>(place - processes.begin()), status};
}

/// The exit status of the first that fails; it ends the others, which would wait for it.
int wait_for(std::vector<pid_t> processes) {
  int failed = 0;
  for (size_t left = processes.size(); left > 0; --left) {
    const EndedRank ended = next_ended(processes);
    if (ended.status == 0 || failed != 0) continue;
    failed = WIFEXITED(ended.status) ? WEXITSTATUS(ended.status) : 1;
    if (WIFSIGNALED(ended.status))
      say(stderr, "triage exec: rank {} of {} was ended by signal {} ({})\n", ended.rank, processes.size(),
          WTERMSIG(ended.status), ::strsignal(WTERMSIG(ended.status)));
    for (const pid_t other : processes)
      if (other > 0) ::kill(other, SIGTERM);
  }
  return failed;
}

int run_here(int count, std::chrono::milliseconds timeout, const std::function<int(const Group&)>& work) {
  const MeetingPlace place;
  const pid_t parent = ::getpid();
  std::vector<pid_t> processes;
  for (int number = 0; number < count; ++number) {
    const pid_t process = ::fork();
    if (process < 0) {
      for (const pid_t other : processes) ::kill(other, SIGTERM);
      wait_for(processes);
      throw UsageError(
          fmt::format("--ranks {}: the system refuses process {}: {}", count, number, std::strerror(errno)));
    }
    if (process > 0) {
      processes.push_back(process);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);  // it ended before
    run_as({number, count, timeout}, place, work);
  }
  return wait_for(std::move(processes));
}

}  // namespace

int in_ranks(const std::string& ranks, double timeout, const std::function<int(const Group&)>& work) {
  if (!(timeout >= 0.001 && timeout <= 1e6))
    throw UsageError(fmt::format("--timeout: expected seconds from 0.001 to 1000000, got {}", timeout));
  const std::chrono::milliseconds limit(static_cast<int64_t>(timeout * 1000));
  if (ranks == "env") return run_launched(limit, work);
  const auto count = parsed(ranks, 1, most_ranks);
  if (!count)
    throw UsageError(
        fmt::format("--ranks: expected a number of processes from 1 to {}, or env, got '{}'", most_ranks, ranks));
  return run_here(*count, limit, work);
}

}  // namespace triage::cli

#endif
