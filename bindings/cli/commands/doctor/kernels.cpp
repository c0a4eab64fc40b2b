// The compiler, a kernel that it makes, and the folder where kernels are kept.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "bindings/cli/commands/doctor/finding.h"
#include "runtime/backends/fused/kernel_cache/kernel_files.h"
#include "runtime/backends/fused/kernels/build_directory.h"
#include "runtime/backends/fused/kernels/kernel.h"
#include "runtime/backends/fused/kernels/system_compiler.h"

namespace triage::cli::doctor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* cache_variable = "TRIAGE_KERNEL_CACHE";

/// Sums and products of small whole numbers: the same bits in every order.
constexpr const char* probe = R"(return function(z)
  local f = flag_nan_and_inf(z, "doctor")
  return fix(z * 3 + 5, f, "doctor", {fallback = 7})
end
)";

at::Tensor probe_input() {
  at::Tensor z = at::arange(33 * 67, at::kFloat).reshape({33, 67}) - 1000;
  z[3][5] = std::numeric_limits<float>::quiet_NaN();
  z[8][66] = std::numeric_limits<float>::infinity();
  return z;
}

/// The variable that names the cache folder, for a while.
class OtherCache {
 public:
  explicit OtherCache(const std::string& folder) {
    if (const char* before = std::getenv(cache_variable)) before_ = before;
    ::setenv(cache_variable, folder.c_str(), 1);
  }
  ~OtherCache() { before_.empty() ? ::unsetenv(cache_variable) : ::setenv(cache_variable, before_.c_str(), 1); }
  OtherCache(const OtherCache&) = delete;
  OtherCache& operator=(const OtherCache&) = delete;

 private:
  std::string before_;
};

struct Probed {
  bool compiled = false, right = false;
  std::vector<std::string> said;  // what the runtime said on the way
  double seconds = 0;
};

std::vector<at::Tensor> run_probe(const char* backend, Probed& probed, bool* is_kernel = nullptr) {
  RuntimeOptions options;
  options.backend = backend;
  options.compiler = CompilerMode::wait;
  std::mutex mutex;
  options.log = [&](const LogRecord& record) {
    const std::lock_guard lock(mutex);
    if (record.level >= LogLevel::warn) probed.said.emplace_back(record.text);
  };
  Runtime runtime(options);
  Policy policy = runtime.load_source(probe, "doctor.lua");
  const std::vector<at::Tensor> inputs = {probe_input()};
  policy.run(inputs);
  policy.prepare(inputs);
  std::vector<at::Tensor> outputs = policy.run(inputs);
  const LoopTiers loops = policy.cache().loops;
  if (is_kernel) *is_kernel = loops.kernels > 0 && loops.kernels == loops.count();
  return outputs;
}

/// Compiles, loads and runs a kernel, as a policy would, with `folder` as an empty cache.
Probed probe_kernel(const std::string& folder) {
  const OtherCache cache(folder);
  Probed probed;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<at::Tensor> outputs = run_probe("fused", probed, &probed.compiled);
  probed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<at::Tensor> expected = run_probe("eager", probed);
  probed.right = outputs.size() == expected.size() &&
                 std::equal(outputs.begin(), outputs.end(), expected.begin(),
                            [](const at::Tensor& a, const at::Tensor& b) { return a.equal(b); });
  fused::wait_for_kept_calls();  // the thread that writes them asks for the folder by then
  return probed;
}

const char* kernel_advice =
    "install a C++ compiler (Debian: g++), or name one in TRIAGE_CXX. Hosts without one take the kernels of `triage "
    "build` (RuntimeOptions::kernels, --kernels). Without kernels, loops run as tapes: the same bits, slower";

Finding compiler_finding() {
  const char* const chosen = std::getenv("TRIAGE_CXX");
  const std::string program = chosen && *chosen ? chosen : "c++";
  Finding finding{"compiler", Severity::fine, "", "", {}};
  try {
    static const std::atomic<bool> never{false};
    const std::string& identity = fused::SystemCompiler::instance(never).identity();
    const std::string release = identity.substr(0, identity.find('\n'));
    finding.text = fmt::format("{}: {}", program, release);
    finding.facts = {{"program", program}, {"found", true}, {"version", release}};
  } catch (const std::exception& error) {
    finding.severity = Severity::warning;
    finding.text = error.what();
    finding.advice = kernel_advice;
    finding.facts = {{"program", program}, {"found", false}, {"version", nullptr}};
  }
  return finding;
}

Finding kernel_finding(const Probed& probed, bool has_compiler) {
  Finding finding{
      "kernel", Severity::fine, fmt::format("compiled, loaded and right ({:.1f} s)", probed.seconds), "", {}};
  finding.facts = {{"compiled", probed.compiled}, {"right", probed.right}, {"seconds", probed.seconds}};
  const auto said = std::find_if(probed.said.begin(), probed.said.end(), [](const std::string& text) {
    return text.find("no fused kernel") != std::string::npos;
  });
  if (!probed.right) {
    finding.severity = Severity::error;
    finding.text = fmt::format("{} gives other numbers than ATen", probed.compiled ? "a compiled kernel" : "a loop");
    finding.advice =
        "use another compiler (TRIAGE_CXX), or none (`--compiler off`), and report this output: results of fused loops "
        "are "
        "wrong on this machine";
  } else if (!probed.compiled) {
    finding.severity = Severity::warning;
    finding.text = said != probed.said.end() ? *said : "no kernel was made, a tape ran in its place";
    if (has_compiler)
      finding.advice =
          "see what the compiler said above; TRIAGE_CXX names another one. Until then, loops run as tapes: the same "
          "bits, slower";
    else
      finding.text = "none: a tape ran in its place, with the right result";
  }
  return finding;
}

/// What lies in the folder, as far as it can be read.
struct Usage {
  size_t files = 0;
  uintmax_t bytes = 0;
};

Usage usage_of(const fs::path& folder) {
  Usage usage;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error)) {
    if (entry.path().extension() != ".so" || entry.symlink_status(error).type() != fs::file_type::regular) continue;
    const uintmax_t bytes = entry.file_size(error);
    if (!error) ++usage.files, usage.bytes += bytes;
  }
  return usage;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

std::string advice_for(const std::string& refused, const fs::path& folder, bool noexec) {
  if (noexec || refused.find("cannot be loaded") != std::string::npos)
    return fmt::format("name a folder in {} whose file system allows programs to be run (no `noexec`)", cache_variable);
  if (refused.find("others may write") != std::string::npos)
    return fmt::format("make it yours alone (`chmod 700 {}`), or name another folder in {}", folder.string(),
                       cache_variable);
  return fmt::format("free some space, make the folder writable, or name another one in {}", cache_variable);
}

/// `refused`: why the runtime keeps no kernel there; empty where it does.
Finding cache_finding(const fs::path& folder, const std::string& refused) {
  Finding finding{"cache", Severity::fine, "", "", {}};
  if (folder.empty()) {
    finding.severity = Severity::warning;
    finding.text =
        fmt::format("there is no folder for compiled kernels: {}, XDG_CACHE_HOME and HOME are not set", cache_variable);
    finding.advice = fmt::format("set {}: without it, each process compiles its kernels again", cache_variable);
    finding.facts = {{"folder", nullptr}};
    return finding;
  }
  struct statvfs system {};
  struct stat status {};
  const bool known = ::statvfs(folder.c_str(), &system) == 0, there = ::stat(folder.c_str(), &status) == 0;
  const double free_mib =
      known ? static_cast<double>(system.f_bavail) * static_cast<double>(system.f_frsize) / (1 << 20) : 0;
  const bool noexec = known && (system.f_flag & ST_NOEXEC), read_only = known && (system.f_flag & ST_RDONLY);
  const Usage usage = usage_of(folder);
  finding.text = fmt::format("{}\n{} kernels, {:.1f} MiB; {:.0f} MiB free", folder.string(), usage.files,
                             static_cast<double>(usage.bytes) / (1 << 20), free_mib);
  finding.facts = {{"folder", folder.string()},
                   {"kernels", usage.files},
                   {"bytes", usage.bytes},
                   {"free_bytes", known ? Json(static_cast<uint64_t>(system.f_bavail) * system.f_frsize) : Json()},
                   {"mode", there ? Json(fmt::format("{:04o}", status.st_mode & 07777)) : Json()},
                   {"owner", there ? Json(status.st_uid) : Json()},
                   {"noexec", noexec},
                   {"read_only", read_only},
                   {"kept", refused.empty()}};
  if (!refused.empty()) {
    finding.severity = Severity::warning;
    finding.text += "\nkernels are not kept for the next process: " + refused;
    finding.advice = advice_for(refused, folder, noexec);
  }
  return finding;
}

}  // namespace

std::vector<Finding> check_kernels() {
  std::vector<Finding> findings = {compiler_finding()};
  const bool has_compiler = findings[0].severity == Severity::fine;
  fused::KernelFiles files;
  const fs::path folder = fused::KernelFiles::wanted_folder();
  std::string refused = files.refused();
  // Inside the folder: what lets no kernel be kept there, the runtime says of the one that is made now.
  std::unique_ptr<fused::BuildDirectory> inside = files.build_directory();
  if (inside && !files.has_room(*inside)) refused = files.refused();
  if (!inside) {
    refused = files.refused();
    inside = std::make_unique<fused::BuildDirectory>();
  }
  const Probed probed = probe_kernel(*inside / "kernels");
  constexpr std::string_view unkept = "not kept for the next process: ";
  for (const std::string& text : probed.said)
    if (const size_t at = text.find(unkept); at != std::string::npos && refused.empty())
      refused = replaced(text.substr(at + unkept.size()), *inside / "kernels", folder.string());
  findings.push_back(kernel_finding(probed, has_compiler));
  findings.push_back(cache_finding(folder, refused));
  return findings;
}

}  // namespace triage::cli::doctor
