#include "runtime/backends/fused/tape/instructions.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "runtime/messages/logs/log.h"

namespace triage::fused {

namespace baseline {
extern const Primitives steps;
}
namespace avx2 {
extern const Primitives steps;
}
namespace avx512 {
extern const Primitives steps;
}

namespace {

std::vector<const Primitives*> find_sets() {
  std::vector<const Primitives*> sets;
#ifdef __x86_64__
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    sets.push_back(&avx512::steps);
  if (has_avx2) sets.push_back(&avx2::steps);
#endif
  sets.push_back(&baseline::steps);
  return sets;
}

const Primitives& chosen_set() {
  const std::vector<const Primitives*>& sets = instruction_sets();
  const char* const wanted = std::getenv("TRIAGE_INSTRUCTION_SET");
  if (!wanted || !*wanted) return *sets.front();
  std::string names;
  for (const Primitives* set : sets) {
    if (std::string_view(set->name) == wanted) return *set;
    names += (names.empty() ? "" : ", ") + std::string(set->name);
  }
  messages::warn(fmt::format("TRIAGE_INSTRUCTION_SET is \"{}\"; this processor has {}. Loops run on {}", wanted, names,
                             sets.front()->name));
  return *sets.front();
}

std::atomic<const Primitives*> used{nullptr};

}  // namespace

const std::vector<const Primitives*>& instruction_sets() {
  static const auto& sets = *new std::vector<const Primitives*>(find_sets());
  return sets;
}

const Primitives& primitives() {
  if (const Primitives* set = used.load(std::memory_order_acquire)) return *set;
  static const Primitives& chosen = chosen_set();
  return chosen;
}

void use_instructions(const Primitives* set) { used.store(set, std::memory_order_release); }

std::string architecture() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

std::vector<std::string> processor_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

}  // namespace triage::fused
