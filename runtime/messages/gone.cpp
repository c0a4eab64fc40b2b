#include "runtime/messages/gone.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/version.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

namespace triage {
namespace {

constexpr std::array<std::string_view, 6> names{"compiler",  "kernels",      "--compiler",
                                                "--kernels", "triage build", "triage cache"};
constexpr std::array variables{"TRIAGE_CXX", "TRIAGE_CXX_TIMEOUT", "TRIAGE_KERNEL_CACHE"};

std::string text_of(const std::string& what, bool several) {
  const char* const them = several ? "them" : "it";
  return fmt::format(
      "{} {} gone, and nothing replaces {}: on the CPU fused loops are tapes of precompiled steps, and triage neither "
      "compiles nor loads machine code; remove {}",
      what, several ? "are" : "is", them, them);
}

}  // namespace

std::string text_if_gone(std::string_view name) {
  const bool gone = std::find(names.begin(), names.end(), name) != names.end();
  return gone ? text_of(fmt::format("`{}`", name), /*several=*/false) : "";
}

std::string messages::text_of_gone_variables() {
  std::vector<const char*> set;
  for (const char* const name : variables)
    if (const char* const value = std::getenv(name); value && *value) set.push_back(name);
  std::string text = set.empty() ? "" : text_of(fmt::format("{}", fmt::join(set, ", ")), set.size() > 1);
  if (const char* const value = std::getenv("TRIAGE_REPRO_DIR"); value && *value)
    text +=
        fmt::format("{}TRIAGE_REPRO_DIR is gone: TRIAGE_DEBUG_DIR names that folder, too", text.empty() ? "" : ". ");
  return text;
}

}  // namespace triage
