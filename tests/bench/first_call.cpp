// How long a new policy keeps a host waiting: its first call against the script alone (5 ms more at most), and when its kernels
// are there, with nothing in the cache (half a second later at most).
#include "bindings/cli/bench/empty_cache.h"
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <triage/compiler_config.h>
#include <triage/runtime.h>

#include <string>
#include <utility>
#include <vector>

namespace triage::bench {
namespace {

Line line_of(const std::vector<double>& times, const std::string& work, const std::string& shape) {
  const Summary all = summarize(times);
  Line line{work, shape, all.median, all.spread};
  line.unit = "ms";
  return line;
}

/// The policy and one addition, of another number each time: no kernel has been compiled before.
std::string new_source(const std::string& source) {
  static int count = 0;
  return "local run = (function()\n" + source + "\nend)()\nreturn function(x) return run(x + " +
         std::to_string(++count) + ".5) end";
}

void measure_first_calls(const Add& add) {
  const EmptyCache empty;
  RuntimeOptions options;
  options.backend = "fused";
  Runtime runtime(options);
  constexpr int rounds = 7;
  for (const auto& [name, work] : works()) {
    for (const auto& [rows, columns] : {std::pair{32L, 512L}, {4096L, 1024L}}) {
      const at::Tensor z = noise(rows, columns);
      std::vector<double> script, first, more, ready;
      for (int round = 0; round <= rounds; ++round) {
        set_stance(Stance::force_eager);
        const Policy plain = runtime.load_source(new_source(work.source));
        const double alone = milliseconds([&] { plain.run({z}); });
        set_stance(Stance::default_stance);
        const Policy policy = runtime.load_source(new_source(work.source));
        const double call = milliseconds([&] { policy.run({z}); });
        const double later = milliseconds([&] { policy.prepare({z}); });
        if (round == 0) continue;  // LibTorch's own first calls
        script.push_back(alone), first.push_back(call), more.push_back(call - alone), ready.push_back(call + later);
      }
      const std::string shape = shape_name(rows, columns);
      add(line_of(script, name + ": the script alone", shape));
      add(line_of(first, name + ": the first call", shape));
      Line above = line_of(more, name + ": ... above the script", shape),
           kernels = line_of(ready, name + ": kernels ready after", shape);
      above.goal = 5;
      kernels.goal = 500;
      add(above);
      add(kernels);
    }
  }
}

const Table table("first_call", "The first call of a new policy on the fused backend, with an empty cache (ms)",
                  measure_first_calls);

}  // namespace
}  // namespace triage::bench
