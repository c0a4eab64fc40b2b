// Errors of samples as structs.
#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "bindings/c/tensors.h"

#include <triage/flags.h>
#include <triage/runtime.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <string>

namespace triage::c {
namespace {

struct InternedName {
  const std::string text;
  InternedName* next;
};

/// The same text, for the life of the process. There are at most about two thousand: names of locations, and `(3
/// dropped)`; and few names of a policy's own codes. No lock: a child forked while another thread held it would wait
/// forever. Two threads at once may keep a name twice.
const char* kept(const std::string& name) {
  static std::atomic<InternedName*> lists[256];
  std::atomic<InternedName*>& newest = lists[std::hash<std::string>()(name) % std::size(lists)];
  for (const InternedName* known = newest; known; known = known->next)
    if (known->text == name) return known->text.c_str();
  auto* const added = new InternedName{name, newest};
  while (!newest.compare_exchange_weak(added->next, added)) {
  }
  return added->text.c_str();
}

TriageFlag flag_of(int64_t location, const std::string& location_name, Code code, const std::string& name,
                   Severity severity) {
  TriageFlag flag{};
  flag.sample = -1;
  flag.count = 1;
  flag.location = static_cast<int32_t>(location);
  flag.code = static_cast<int32_t>(to_int(code));
  flag.severity = static_cast<int32_t>(to_int(severity));
  flag.location_name = kept(location_name);
  flag.code_name = name == code_name(code) ? code_name(code).c_str() : kept(name);
  flag.severity_name = severity_name(severity).c_str();
  return flag;
}

void read_all(const DLManagedTensor* tensor, const CodeNames& codes, TriageFlag* flags, size_t* count) {
  size_t& places = required(count, "count", "the address of the number of flags that there is room for");
  const std::vector<flags::TableRow> rows = flags::to_table(borrow(tensor, "tensor"), {.codes = codes});
  const size_t placed = place(flags, places, rows.size(), "flags");
  for (size_t i = 0; i < placed; ++i) {
    const flags::UnpackedError& error = rows[i].error;
    flags[i] = flag_of(error.location, error.location_name, error.code, error.code_name, error.severity);
    flags[i].sample = rows[i].sample;
  }
}

}  // namespace

TriageStatus read_flags(const DLManagedTensor* tensor, TriageFlag* flags, size_t* count) {
  return guarded("read_flags", [&] { read_all(tensor, {}, flags, count); });
}

TriageStatus read_policy_flags(TriagePolicy* policy, const DLManagedTensor* tensor, TriageFlag* flags, size_t* count) {
  return guarded("read_policy_flags", [&] { read_all(tensor, HandleUse(policy)->signature().codes, flags, count); });
}

TriageStatus flag_counts(TriagePolicy* policy, TriageFlag* flags, size_t* count) {
  return guarded("flag_counts", [&] {
    size_t& places = required(count, "count", "the address of the number of flags that there is room for");
    const std::vector<FlagCount> counts = HandleUse(policy)->statistics().total.flags;
    const size_t placed = place(flags, places, counts.size(), "flags");
    for (size_t i = 0; i < placed; ++i) {
      flags[i] = flag_of(counts[i].location, ErrorLocation::name(counts[i].location), counts[i].code,
                         counts[i].code_name, counts[i].severity);
      flags[i].count = static_cast<int64_t>(counts[i].count);
    }
  });
}

}  // namespace triage::c
