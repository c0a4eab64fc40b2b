// What a load or a reload pays for the rewriter: a script of 1,001 lines with all that it rewrites (20 ms at most on a
// quiet core).
#include "bindings/lua/rewriter/rewriter.h"

#include <benchmark/benchmark.h>

#include <string>

namespace {

void rewrite_1001_lines(benchmark::State& state) {
  std::string source = "local f\n";
  for (int i = 0; i < 125; ++i)
    source +=
        "f = function(z, t)\n  local total, name = 0, 'x'\n  for i = 1, 10 do\n    if i % 2 == 0 and t[i] ~= nil or "
        "not z then total = total + i end\n"
        "    t.count = (t.count or 0) + 1   -- counts\n    name = name .. i .. 'abc'\n  end\nreturn total > 3 and name "
        "or { total } end\n";
  for (auto _ : state) benchmark::DoNotOptimize(triage::lua::rewriter::rewrite(source, "@big.lua"));
}
BENCHMARK(rewrite_1001_lines);

}  // namespace
