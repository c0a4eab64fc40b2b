// The C++ of docs/profiling.md, which examples_test.cpp finds here: compiled, and run.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/profiler_legacy.h>
#include <triage/triage.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

TEST_CASE("D15: the host of docs/profiling.md writes a trace with spans of triage") {
  triage::Runtime runtime;
  const triage::Policy policy =
      runtime.load_source("return policy { name = 'p', run = function(z) return z:exp() * 2 end }");
  const at::Tensor z = at::ones({4, 3});
  policy.prepare({z});
  const std::string trace_file =
      (std::filesystem::temp_directory_path() / ("triage-trace-" + std::to_string(::getpid()) + ".json")).string();

  triage::Diagnostics diagnostics = triage::get_diagnostics();
  diagnostics.profiler_spans = true;
  triage::set_diagnostics(diagnostics);
  {
    const torch::autograd::profiler::RecordProfile profile(trace_file);
    policy.run({z});
  }

  triage::set_diagnostics({});
  std::ifstream file(trace_file);
  const std::string trace{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove(trace_file);
  for (const char* span : {"triage::policy p", "triage::graph p[0]", "triage::fused group p: ", "triage::tape p: "})
    CHECK_MESSAGE(trace.find(span) != std::string::npos, trace);
}
