#pragma once
#include <triage/error.h>
#include <triage/runtime.h>
#include <triage_c.h>

#include <string>
#include <vector>

namespace triage::c {

/// An error, and the memory of its texts.
struct LastError {
  std::string message, file, traceback;
  TriageError error{TRIAGE_OK, 0, "", "", ""};

  void set(TriageStatus status, std::string text, const Error* of_script = nullptr);
};

/// What a host may read of a thread's latest calls.
struct ThreadContext {
  LastError error;
  RunInfo info;                       // what one allocates, a thread allocates once
  std::vector<VersionInfo> versions;  // the texts of its latest TriageVersions
};

/// Of the thread, because threads share handles: what one of them reads, another one's call must not change.
inline thread_local ThreadContext context;

}  // namespace triage::c
