#include "runtime/backends/fused/kernels/system_compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/backends/run_program.h"

namespace triage::fused {
namespace {

// No -ffast-math: NaN and Inf are the subject, and the order of sums stands in the source (support/lanes.h). Loops are neither
// peeled for alignment nor unswitched: their copies are not vectorised as they are. Integers wrap, as ATen's do.
const auto& flags = *new std::vector<std::string>{"-std=c++20",
                                                  "-O3",
                                                  "-mprefer-vector-width=512",
                                                  "-fopenmp-simd",
                                                  "-ffp-contract=off",
                                                  "-fno-math-errno",
                                                  "-fno-trapping-math",
                                                  "-fPIC",
                                                  "-fno-unswitch-loops",
                                                  "-fwrapv",
                                                  "-fvisibility=hidden",
                                                  "-w",
                                                  "--param=vect-max-peeling-for-alignment=0"};

/// TRIAGE_CXX_TIMEOUT seconds, a minute without it.
std::chrono::duration<double> time_limit() {
  const char* chosen = std::getenv("TRIAGE_CXX_TIMEOUT");
  if (!chosen || !*chosen) return std::chrono::minutes(1);
  double seconds = 0;  // read in the same way in every locale
  const auto [end, error] = std::from_chars(chosen, chosen + std::strlen(chosen), seconds);
  if (error != std::errc() || *end != '\0' || !(seconds > 0))
    throw std::runtime_error(
        fmt::format("TRIAGE_CXX_TIMEOUT is \"{}\"; it is a number of seconds above 0, 60 where it is not set", chosen));
  return std::chrono::duration<double>(std::min(seconds, 86400.0));
}

/// Throws as `run_program` does; whatever the compiler leaves behind when it is ended goes to `folder`, where one is given.
std::string run(const std::vector<std::string>& words, const std::string& input, const std::atomic<bool>& give_up,
                const std::filesystem::path& folder = {}) {
  try {
    return run_program({words, input, time_limit(), folder}, give_up);
  } catch (const CannotStart& error) {
    throw std::runtime_error(std::string(error.what()) + "; TRIAGE_CXX names a program, without arguments");
  }
}

/// The one of the build directory that it is made in.
std::filesystem::path folder_of(const std::string& output) { return std::filesystem::path(output).parent_path(); }

}  // namespace

const SystemCompiler& SystemCompiler::instance(const std::atomic<bool>& give_up) {
  static const SystemCompiler* const compiler =
      new SystemCompiler(give_up);  // a thread may be at work while statics are destroyed
  return *compiler;
}

SystemCompiler::SystemCompiler(const std::atomic<bool>& give_up) {
  const char* chosen = std::getenv("TRIAGE_CXX");
  program_ = chosen && *chosen ? chosen : "c++";
  identity_ = run({program_, "--version"}, "", give_up) + processor_lines();
  for (const auto& flag : flags) identity_ += flag + "\n";
}

std::vector<std::string> SystemCompiler::words(const std::string& cpu) const {
  std::vector<std::string> words{program_};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back("-march=" + cpu);
  return words;
}

void SystemCompiler::compile(const std::string& source, const std::string& output,
                             const std::vector<std::string>& more_flags, const std::atomic<bool>& give_up) const {
  std::vector<std::string> command = words("native");
  command.insert(command.end(), more_flags.begin(), more_flags.end());
  command.insert(command.end(), {"-shared", "-x", "c++", "-", "-o", output});
  run(command, source, give_up, folder_of(output));
}

void SystemCompiler::compile_object(const std::string& source, const std::string& output, const std::string& cpu,
                                    const std::vector<std::string>& more_flags,
                                    const std::atomic<bool>& give_up) const {
  std::vector<std::string> command = words(cpu);
  command.insert(command.end(), more_flags.begin(), more_flags.end());
  command.insert(command.end(), {"-c", "-x", "c++", "-", "-o", output});
  run(command, source, give_up, folder_of(output));
}

void SystemCompiler::link(const std::vector<std::string>& objects, const std::string& output,
                          const std::atomic<bool>& give_up) const {
  std::vector<std::string> command{program_, "-shared", "-o", output};
  command.insert(command.end(), objects.begin(), objects.end());
  run(command, "", give_up, folder_of(output));
}

std::string SystemCompiler::macros(const std::string& cpu) const {
  std::vector<std::string> command = words(cpu);
  command.insert(command.end(), {"-dM", "-E", "-x", "c++", "-"});
  return run(command, "", false);
}

}  // namespace triage::fused
