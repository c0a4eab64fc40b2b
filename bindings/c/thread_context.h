#pragma once
#include <triage/bundle.h>
#include <triage/candidate.h>
#include <triage/error.h>
#include <triage/runtime.h>
#include <triage_c.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace triage::c {

/// An error, and the memory of its texts.
struct LastError {
  std::string message, file, traceback;
  TriageError error{TRIAGE_OK, 0, "", "", ""};

  void set(TriageStatus status, std::string text, const Error* of_script = nullptr);
};

/// A freed handle, until what it stood for is destroyed.
struct Freed {
  void (*destroy)(void* handle) noexcept = nullptr;
  void* handle = nullptr;
  Freed* next = nullptr;
};

/// What a thread is in: functions of the table, callbacks, both several times over; and what is freed meanwhile.
struct CallStack {
  int calls = 0, callbacks = 0;
  Freed* freed = nullptr;
  size_t number = 0;  // of the thread, from 1 on; 0: it has none yet
};

/// A version of a bundle, and the arrays that tell its policies.
struct BundleTexts {
  BundleVersion version;
  std::vector<const char*> policy_names;
  std::vector<int32_t> policy_versions;
};

struct CandidateTexts {
  CandidateReport report;
  std::string text, json;
};

/// What a host may read of a thread's latest calls, and where the thread is.
struct HostThreadContext {
  CallStack stack;
  LastError error;
  RunInfo info;                       // what one allocates, a thread allocates once
  std::vector<VersionInfo> versions;  // the texts of its latest TriageVersions
  std::vector<BundleTexts> bundle_versions;
  CandidateTexts candidate;
  void* stream = nullptr;  // of the host, for its present call
};

/// Of the thread, because threads share handles: what one of them reads, another one's call must not change.
inline thread_local HostThreadContext context;

}  // namespace triage::c
