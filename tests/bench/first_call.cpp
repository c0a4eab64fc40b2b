// How long a new policy keeps a host waiting: its first call against the script alone (5 ms more at most).
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <triage/compiler_config.h>
#include <triage/runtime.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string>
#include <utility>
#include <vector>

namespace triage::bench {
namespace {

Line line_of_times(const std::vector<double>& times, const std::string& work, const std::string& shape) {
  const TimingSummary all = summarize(times);
  Line line{work, shape, all.median, all.spread};
  line.unit = "ms";
  return line;
}

/// The policy and one addition, of another number each time: nothing was captured of it before.
std::string new_source(const std::string& source) {
  static int count = 0;
  return "local run = (function()\n" + source + "\nend)()\nreturn function(x) return run(x + " +
         std::to_string(++count) + ".5) end";
}

/// As in a new process: what calls before have left to the allocator is given back, so that neither of two calls lives
/// on the memory of the other.
void forget_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

/// Milliseconds. The Runtime ends with it, and has destroyed all that the policy held by then.
double call_new_policy(const Work& work, const at::Tensor& z, Stance stance) {
  Runtime runtime;
  set_stance(stance);
  const Policy policy = runtime.load_source(new_source(work.source));
  forget_freed_memory();
  const double call = milliseconds([&] { policy.run({z}); });
  set_stance(Stance::default_stance);
  return call;
}

void measure_first_calls(const Add& add) {
  constexpr int rounds = 7;
  for (const auto& [name, work] : works()) {
    for (const auto& [rows, columns] : {std::pair{32L, 512L}, {4096L, 1024L}}) {
      const at::Tensor z = noise(rows, columns);
      std::vector<double> script, first, more;
      for (int round = 0; round <= rounds; ++round) {
        const double alone = call_new_policy(work, z, Stance::force_eager);
        const double captured = call_new_policy(work, z, Stance::default_stance);
        if (round == 0) continue;  // LibTorch's own first calls
        script.push_back(alone), first.push_back(captured), more.push_back(captured - alone);
      }
      const std::string shape = shape_name(rows, columns);
      add(line_of_times(script, name + ": the script alone", shape));
      add(line_of_times(first, name + ": the first call", shape));
      Line above = line_of_times(more, name + ": ... above the script", shape);
      above.goal = 5;
      add(above);
    }
  }
}

const Table first_call_table("first_call", "The first call of a new policy on the fused backend (ms)",
                             measure_first_calls);

}  // namespace
}  // namespace triage::bench
