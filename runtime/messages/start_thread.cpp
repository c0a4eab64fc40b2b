#include "runtime/messages/start_thread.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <triage/error.h>

#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace triage::messages {
namespace {

std::optional<int64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

/// The number behind `key` in /proc/self/status: "Threads:", "VmSize:" (KiB).
int64_t status_number(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return std::strtoll(line.c_str() + key.size(), nullptr, 10);
  return 0;
}

/// Of the process's own control group (version 2), or the one above it that the container sees as the root.
std::string tasks_of_group() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (const std::string& folder : {"/sys/fs/cgroup" + line.substr(3), std::string("/sys/fs/cgroup")}) {
      const auto most = number_in(folder + "/pids.max"), now = number_in(folder + "/pids.current");
      if (most && now && *now >= *most)
        return fmt::format("its control group has {} tasks, as many as its pids.max allows", *now);
    }
  }
  return "";
}

std::string met_limit(const std::error_code& error) {
  if (error == std::errc::operation_not_permitted) return "a filter of system calls (seccomp) refuses to start one";
  if (const std::string of_group = tasks_of_group(); !of_group.empty()) return of_group;
  rlimit space{}, tasks{};
  ::getrlimit(RLIMIT_AS, &space);
  ::getrlimit(RLIMIT_NPROC, &tasks);
  constexpr int64_t stack = int64_t{8} << 20;
  const int64_t used = status_number("VmSize:") << 10;
  if (space.rlim_cur != RLIM_INFINITY && used + stack > static_cast<int64_t>(space.rlim_cur))
    return fmt::format("it uses {} MiB of the {} MiB of addresses that `ulimit -v` allows", used >> 20,
                       space.rlim_cur >> 20);
  const std::string of_user =
      tasks.rlim_cur == RLIM_INFINITY ? "" : fmt::format("; `ulimit -u` allows its user {}", tasks.rlim_cur);
  return fmt::format("it has {} threads{}", status_number("Threads:"), of_user);
}

}  // namespace

std::thread start_thread(std::function<void()> work, const char* task, const char* otherwise) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw LimitError(fmt::format("the system gives this process no thread {} ({}): {}. {}", task,
                                 error.code().message(), met_limit(error.code()), otherwise));
  }
}

}  // namespace triage::messages
