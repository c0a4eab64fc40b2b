// The machine: processor, threads, file watches, GPU, and the variables that change what triage does.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "bindings/cli/commands/doctor/finding.h"
#include "bindings/cli/commands/version.h"
#include "runtime/backends/fused/tape/instructions.h"

extern char** environ;

namespace triage::cli::doctor {
namespace {

using Json = nlohmann::ordered_json;

/// The first line of a file of the system; empty where there is none.
std::string line_of(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(": "); line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  return fused::architecture();
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

int allowed_processors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));  // more of them than the set can count
}

/// How many processors' time the control group of this process may use; nothing where it has no limit.
std::optional<double> processor_quota() {
  double quota = 0, period = 0;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> quota >> period && period > 0) return quota / period;
  std::ifstream(std::string("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")) >> quota;
  std::ifstream(std::string("/sys/fs/cgroup/cpu/cpu.cfs_period_us")) >> period;
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

/// Why no folder can be watched; empty where one can.
std::string watch_failure() {
  const int watches = ::inotify_init1(IN_CLOEXEC);
  if (watches < 0) return std::strerror(errno);
  const bool watched = ::inotify_add_watch(watches, "/", IN_DELETE_SELF) >= 0;
  const std::string reason = watched ? "" : std::strerror(errno);
  ::close(watches);
  return reason;
}

}  // namespace

DoctorFinding check_processor() {
  const std::string wanted = variable("TRIAGE_INSTRUCTION_SET"),
                    capability = torch_setting(at::show_config(), "CPU capability usage: ");
  const auto& sets = fused::instruction_sets();
  const auto chosen = std::find_if(sets.begin(), sets.end(), [&](const auto* set) { return set->name == wanted; });
  const bool known = wanted.empty() || chosen != sets.end();
  const std::string used = (chosen == sets.end() ? sets.front() : *chosen)->name;
  std::vector<std::string> names;
  for (const auto* set : sets) names.emplace_back(set->name);
  DoctorFinding finding{"processor",
                        Severity::fine,
                        fmt::format("{}\ntapes run on {}; LibTorch runs on {}", processor_name(), used, capability),
                        "",
                        {}};
  finding.facts = {{"name", processor_name()},          {"architecture", fused::architecture()},
                   {"instruction_set", used},           {"instruction_sets", names},
                   {"libtorch_capability", capability}, {"features", fused::processor_features()}};
  if (!known) {
    finding.severity = Severity::warning;
    finding.text += fmt::format("\nTRIAGE_INSTRUCTION_SET is \"{}\", which this processor does not have", wanted);
    finding.advice = fmt::format("set it to one of {}, or unset it", fmt::join(names, ", "));
  } else if (used != names.front()) {
    finding.severity = Severity::note;
    finding.text += fmt::format("\nTRIAGE_INSTRUCTION_SET chose {}; {} is the fastest here", used, names.front());
  }
  return finding;
}

DoctorFinding check_threads() {
  const int threads = at::get_num_threads(), allowed = allowed_processors();
  const std::optional<double> quota = processor_quota();
  const int usable = quota ? std::max(1, std::min(allowed, static_cast<int>(std::ceil(*quota)))) : allowed;
  DoctorFinding finding{"threads",
                        Severity::fine,
                        fmt::format("LibTorch uses {}; this process may use {} processors", threads, allowed),
                        "",
                        {}};
  if (quota) finding.text += fmt::format(", and the time of {:g} by its control group", *quota);
  finding.facts = {{"threads", threads}, {"processors", allowed}, {"quota", quota ? Json(*quota) : Json()}};
  if (threads > usable) {
    finding.severity = Severity::warning;
    finding.text += "\nmore threads than processors wait for each other";
    finding.advice = fmt::format("set OMP_NUM_THREADS={}", usable);
  }
  return finding;
}

DoctorFinding check_watches() {
  const std::string folder = "/proc/sys/fs/inotify/", watches = line_of(folder + "max_user_watches"),
                    instances = line_of(folder + "max_user_instances");
  const std::string failure = watch_failure();
  DoctorFinding finding{"watches",
                        Severity::fine,
                        fmt::format("inotify works; limits of this user: {} watches, {} instances", watches, instances),
                        "",
                        {}};
  finding.facts = {{"works", failure.empty()}, {"max_user_watches", watches}, {"max_user_instances", instances}};
  if (!failure.empty()) {
    finding.severity = Severity::warning;
    finding.text = fmt::format("inotify does not work: {}; limits of this user: {} watches, {} instances", failure,
                               watches, instances);
    finding.advice =
        "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (sysctl), or reload by polling: "
        "`triage watch --poll 500`, WatchOptions::poll_interval";
  }
  return finding;
}

DoctorFinding check_gpu() {
  DoctorFinding finding{"GPU", Severity::fine, "", "", {}};
  const bool cuda = at::hasCUDA();
  const bool present = ::access("/dev/nvidiactl", F_OK) == 0;
  finding.facts = {{"libtorch_has_cuda", cuda}, {"driver", present}};
  if (cuda) {
    finding.text = "CUDA works (`--device cuda`)";
  } else {
    finding.severity = Severity::note;
    finding.text = present ? "there is a GPU, but this LibTorch has no CUDA" : "none that LibTorch can use";
    if (present) finding.advice = "use a LibTorch with CUDA if policies are to run on it";
  }
  return finding;
}

DoctorFinding check_environment() {
  std::vector<std::string> chosen;
  for (char** entry = environ; entry && *entry; ++entry)
    for (const char* start : {"TRIAGE_", "OMP_", "GOMP_", "KMP_", "MKL_", "ATEN_", "LD_PRELOAD=", "LD_LIBRARY_PATH="})
      if (std::strncmp(*entry, start, std::strlen(start)) == 0) chosen.emplace_back(*entry);
  std::sort(chosen.begin(), chosen.end());
  DoctorFinding finding{
      "environment",
      Severity::fine,
      chosen.empty() ? "no variable that triage or LibTorch reads is set" : fmt::format("{}", fmt::join(chosen, "\n")),
      "",
      {}};
  finding.facts = {{"variables", chosen}};
  return finding;
}

}  // namespace triage::cli::doctor
