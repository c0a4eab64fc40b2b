#pragma once
#include <functional>
#include <string>

namespace triage::bench {

/// Calls `work` so often under LibTorch's profiler, with triage's spans on, and writes `file` in Chrome's trace format,
/// which Perfetto and chrome://tracing open. Returns who made the trace: "Kineto" where LibTorch was built with it,
/// else "triage", of what at::RecordFunction tells of this thread. Throws FileError.
std::string write_profile(const std::string& file, const std::function<void()>& work, int calls);

}  // namespace triage::bench
