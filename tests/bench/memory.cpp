// What a warm call of a policy takes in memory: at most, beside its inputs, and in pages that the system has to give
// it.
#include "table.h"
#include "tests/memory_use.h"
#include "work.h"

#include <ATen/ATen.h>
#include <triage/runtime.h>

#include <string>
#include <thread>
#include <vector>

namespace triage::bench {
namespace {

constexpr double megabyte = 1 << 20;
constexpr int warm_calls = 100;

size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

/// Peak: inputs, what the policy keeps for its next call, and what it takes meanwhile; against inputs and outputs.
void measure_policy(const std::string& name, const Work& work, int64_t rows, int64_t columns, const Add& add) {
  test::CountedTensorMemory memory;
  Runtime runtime;
  const size_t before = memory.now();
  const at::Tensor z = noise(rows, columns);
  const Policy policy = runtime.load_source(work.source);
  policy.prepare({z});
  for (int i = 0; i < 3; ++i) policy.run({z});
  memory.begin();
  const size_t outputs = bytes_of(policy.run({z}));
  Line peak{name + ": peak", shape_name(rows, columns), static_cast<double>(memory.highest() - before) / megabyte};
  peak.unit = "MB";
  peak.limit = "inputs, outputs";
  peak.limit_took = static_cast<double>(z.nbytes() + outputs) / megabyte;
  peak.ratio = peak.took / peak.limit_took;
  peak.goal = 1.01;
  add(peak);
  const int64_t faults = test::page_faults();
  for (int i = 0; i < warm_calls; ++i) policy.run({z});
  Line pages{name + ": fresh pages a call", shape_name(rows, columns),
             static_cast<double>(test::page_faults() - faults) / warm_calls};
  pages.unit = "pages";
  pages.goal = 0.1;
  add(pages);
}

/// Each on a thread of its own, which takes with it what is kept by thread.
void measure_memory(const Add& add) {
  for (const auto& [name, work] : works())
    for (const auto& [rows, columns] : shapes)
      std::thread([&, &name = name, &work = work, rows = rows, columns = columns] {
        measure_policy(name, work, rows, columns, add);
      }).join();
}

const Table memory_table("memory", "Memory of a warm call on the fused backend", measure_memory);

}  // namespace
}  // namespace triage::bench
