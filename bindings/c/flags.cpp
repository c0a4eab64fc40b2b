// Errors of samples as structs.
#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "bindings/c/tensors.h"

#include <triage/flags.h>
#include <triage/runtime.h>

#include <mutex>
#include <string>
#include <unordered_set>

#include "runtime/messages/fork_safe_mutex.h"

namespace triage::c {
namespace {

/// The same text, for the life of the process. There are at most about two thousand: names of locations, and `(3 dropped)`.
const char* kept(const std::string& name) {
  static auto& mutex = *new messages::ForkSafeMutex;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

TriageFlag flag_of(int64_t location, const std::string& location_name, Code code, Severity severity) {
  TriageFlag flag{};
  flag.sample = -1;
  flag.count = 1;
  flag.location = static_cast<int32_t>(location);
  flag.code = static_cast<int32_t>(to_int(code));
  flag.severity = static_cast<int32_t>(to_int(severity));
  flag.location_name = kept(location_name);
  flag.code_name = code_name(code).c_str();
  flag.severity_name = severity_name(severity).c_str();
  return flag;
}

}  // namespace

TriageStatus read_flags(const DLManagedTensor* tensor, TriageFlag* flags, size_t* count) {
  return guarded("read_flags", [&] {
    size_t& places = required(count, "count", "the address of the number of flags that there is room for");
    const std::vector<flags::TableRow> rows = flags::to_table(borrow(tensor, "tensor"));
    const size_t placed = place(flags, places, rows.size(), "flags");
    for (size_t i = 0; i < placed; ++i) {
      const flags::UnpackedError& error = rows[i].error;
      flags[i] = flag_of(error.location, error.location_name, error.code, error.severity);
      flags[i].sample = rows[i].sample;
    }
  });
}

TriageStatus flag_counts(TriagePolicy* policy, TriageFlag* flags, size_t* count) {
  return guarded("flag_counts", [&] {
    size_t& places = required(count, "count", "the address of the number of flags that there is room for");
    const std::vector<FlagCount> counts = value_of(policy).statistics().total.flags;
    const size_t placed = place(flags, places, counts.size(), "flags");
    for (size_t i = 0; i < placed; ++i) {
      flags[i] =
          flag_of(counts[i].location, ErrorLocation::name(counts[i].location), counts[i].code, counts[i].severity);
      flags[i].count = static_cast<int64_t>(counts[i].count);
    }
  });
}

}  // namespace triage::c
