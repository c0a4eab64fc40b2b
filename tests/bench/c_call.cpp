// A warm call through the table of the C interface, from DLPack to DLPack, against the same call in C++.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/runtime.h>
#include <triage_c.h>

#include <stdexcept>

namespace triage::bench {
namespace {

void check(TriageStatus status) {
  if (status != TRIAGE_OK) throw std::runtime_error(triage_get_api(1)->last_error()->message);
}

void measure_shape(const Add& add, int64_t rows, int64_t columns) {
  const TriageApi& api = *triage_get_api(TRIAGE_C_VERSION);
  const std::string& source = works().at("detect_repair").source;
  const at::Tensor z = at::randn({rows, columns});
  Runtime runtime;
  const Policy policy = runtime.load_source(source, "repair.lua");
  policy.prepare({z});
  TriageRuntime* c_runtime;
  TriagePolicy* c_policy;
  check(api.create_runtime(nullptr, &c_runtime));
  check(api.load_source(c_runtime, source.data(), source.size(), "repair.lua", &c_policy));
  int64_t shape[] = {rows, columns};
  DLManagedTensor input{};
  input.dl_tensor = {z.data_ptr(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
  DLManagedTensor* inputs[] = {&input};
  check(api.prepare(c_policy, inputs, 1, nullptr));
  const Timing timing = measure({
      [&] { benchmark::DoNotOptimize(policy.run({z}).data()); },
      [&] {
        benchmark::DoNotOptimize(policy.run({at::from_blob(z.data_ptr(), {rows, columns})}).data());
      },
      [&] {
        DLManagedTensor* outputs[2];
        size_t count = 2;
        check(api.run(c_policy, inputs, 1, nullptr, outputs, &count));
        benchmark::DoNotOptimize(outputs);
        for (DLManagedTensor* output : outputs) output->deleter(output);
      },
  });
  const std::string shape_text = shape_name(rows, columns);
  add(line_of(timing, 0, "C++, a tensor", shape_text));
  add(line_of(timing, 1, "C++, from_blob of memory", shape_text, "C++"));
  add(line_of(timing, 2, "C, DLPack over memory", shape_text, "C++", 1.1, 1.0));
  check(api.free_policy(c_policy));
  check(api.free_runtime(c_runtime));
}

void measure_c_calls(const Add& add) {
  measure_shape(add, 4, 8);
  measure_shape(add, 256, 1024);
}

const Table c_call_table("c_call", "A warm call of detect_repair through the C interface (us)", measure_c_calls);

}  // namespace
}  // namespace triage::bench
