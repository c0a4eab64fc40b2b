// CompileProfiler and compile_times for a C++ host.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/compile_profiler.h>
#include <triage/compile_times.h>
#include <triage/runtime.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace {

using triage::CompileProfiler;
using triage::LogRecord;
using triage::PhaseTime;
using triage::Policy;
using triage::Runtime;
using triage::RuntimeOptions;

RuntimeOptions profiled(const std::shared_ptr<CompileProfiler>& profiler) {
  RuntimeOptions options;
  options.profiler = profiler;
  options.log = [](const LogRecord&) {};
  return options;
}

constexpr const char* loop = R"(return policy {
  name = "loop", inputs = {"z"},
  run = function(z)
    local sum = z[0] * 0
    for i = 0, z:size(0) - 1 do sum = sum + z[i] end
    return z + sum
  end,
})";

}  // namespace

TEST_CASE("D18: a host counts the graph breaks and recompiles of its policies, and they keep their backend") {
  const auto profiler = std::make_shared<CompileProfiler>();
  Runtime runtime(profiled(profiler));
  const Policy policy = runtime.load_source(loop, "loop.lua");
  for (const int64_t rows : {1, 2, 31, 32, 33}) policy.run({at::ones({rows, 64})});
  REQUIRE(profiler->recompiles().size() == 1);
  const CompileProfiler::Recompile recompile = profiler->recompiles()[0];
  CHECK(recompile.count == 4);
  CHECK(recompile.function == "loop");
  CHECK(recompile.guard == "tensor 'z' size mismatch at index 0 (read at loop.lua:5)");
  CHECK(recompile.example == "tensor 'z' size mismatch at index 0. expected 32, actual 33 (read at loop.lua:5)");
  CHECK(profiler->graphs() == 5);
  CHECK(policy.cache().loops.count() > 0);

  const Policy broken = runtime.load_source(
      "return function(z) local n = z:sum():item() if n > 0 then z = z * 2 + 1 end return z end", "broken.lua");
  for (int i = 0; i < 3; ++i) broken.run({at::ones({2, 3})});
  REQUIRE(profiler->breaks().size() == 1);
  CHECK(profiler->breaks()[0].reason == "`item` reads a value of a tensor (TB0001)");
  CHECK(profiler->breaks()[0].source.file == "broken.lua");
  CHECK(profiler->breaks()[0].count >= 3);
  CHECK(profiler->report().find("broken.lua:1: `item` reads a value") != std::string::npos);
}

TEST_CASE("D18: threads may count while others read") {
  const auto profiler = std::make_shared<CompileProfiler>();
  Runtime runtime(profiled(profiler));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Policy policy = runtime.load_source(loop, "loop" + std::to_string(t) + ".lua");
      for (int64_t rows = 1; rows < 6; ++rows) {
        policy.run({at::ones({rows, 3})});
        profiler->report();
      }
    });
  for (auto& thread : threads) thread.join();
  size_t count = 0;
  for (const auto& one : profiler->recompiles()) count += one.count;
  CHECK(count == 16);
}

TEST_CASE("D15: compile times of a policy, in text and CSV") {
  Runtime runtime;
  const Policy policy = runtime.load_source(
      "return policy {name = 'timed_policy', inputs = {'z'}, run = function(z) return z:exp() + 1 end}", "timed.lua");
  policy.run({at::ones({3, 40})});
  const std::vector<PhaseTime> times = triage::compile_times();
  for (const char* phase : {"capture", "fused loops"}) {
    const auto found = std::find_if(times.begin(), times.end(), [&](const PhaseTime& one) {
      return one.phase == phase && one.function == "timed_policy";
    });
    REQUIRE(found != times.end());
    CHECK(found->count == 1);
    CHECK(found->seconds > 0);
  }
  CHECK(triage::compile_times_csv({{"capture", "a,\"b\"\n", 2, 0.5}}) ==
        "phase,function,count,seconds\ncapture,\"a,\"\"b\"\"\n\",2,0.500000000\n");
  CHECK(triage::compile_times_text({{"capture", "f", 2, 0.5}, {"kernels", "g", 1, 1.25}}) ==
        "phase      count     seconds  function\n"
        "capture        2    0.500000  f\n"
        "kernels        1    1.250000  g\n"
        "capture        2    0.500000  (all)\n"
        "kernels        1    1.250000  (all)\n");
}
