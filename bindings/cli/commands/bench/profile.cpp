#include "bindings/cli/commands/bench/profile.h"

#include <c10/util/Exception.h>
#include <stdlib.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "bindings/cli/commands/bench/span_recorder.h"
#include "runtime/files/disk.h"

namespace triage::bench {
namespace {

using Json = nlohmann::ordered_json;
namespace kineto = torch::autograd::profiler;
namespace profiler = torch::profiler::impl;

constexpr uint64_t largest_trace = uint64_t{1} << 30;  // bytes

/// A file of our own, gone when this is.
class TemporaryFile {
 public:
  TemporaryFile() {
    std::error_code ignored;
    // Kineto takes a name that ends otherwise for one that asks to be compressed, or for a folder of another service.
    path_ = (std::filesystem::temp_directory_path(ignored) / "triage-profile-XXXXXX.json").string();
    const int fd = ::mkstemps(path_.data(), 5);
    if (fd < 0)
      throw FileError("cannot make a temporary file at " + path_ + "; set TMPDIR to a folder that can be written");
    ::close(fd);
  }
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void repeat(const std::function<void()>& work, int calls) {
  for (int i = 0; i < calls; ++i) work();
}

/// Nothing where this LibTorch was built without Kineto: it profiles, but cannot save.
std::optional<std::string> trace_by_kineto(const std::function<void()>& work, int calls) {
  ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);  // else it tells standard error that it starts and stops
  const TemporaryFile file;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU};
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  repeat(work, calls);
  const auto result = kineto::disableProfiler();
  try {
    result->save(file.path());
  } catch (const c10::Error&) {
    return std::nullopt;
  }
  return files::read_text(file.path(), largest_trace);
}

/// LibTorch's legacy profiler can save everywhere, but takes 2 us for each span: more than a small call.
std::string trace_by_recorder(const std::function<void()>& work, int calls) {
  const SpanRecorder recorder;
  repeat(work, calls);
  const int process = ::getpid();
  const auto of_process = [&](Json event) {
    event["pid"] = process;
    event["tid"] = process;
    return event;
  };
  Json events = {of_process({{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", "triage"}}}})};
  for (const SpanRecorder::Span& span : recorder.spans())
    events.push_back(of_process({{"ph", "X"},
                                 {"cat", span.is_operator ? "cpu_op" : "user_annotation"},
                                 {"name", span.name},
                                 {"ts", static_cast<double>(span.begin) / 1000},
                                 {"dur", static_cast<double>(span.end - span.begin) / 1000}}));
  const Json trace = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  return trace.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string write_profile(const std::string& file, const std::function<void()>& work, int calls) {
  files::OutputFile out(file);  // before the work: it may not be writable
  const SpansOn spans;
  std::optional<std::string> trace = trace_by_kineto(work, calls);
  const std::string by = trace ? "Kineto" : "triage";
  if (!trace) trace = trace_by_recorder(work, calls);
  out.write(trace->data(), trace->size());
  out.commit();
  return by;
}

}  // namespace triage::bench
