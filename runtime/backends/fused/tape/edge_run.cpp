#include "runtime/backends/fused/tape/edge_run.h"

#include <algorithm>

#include "runtime/backends/fused/support/numbers.h"

namespace triage::fused {

namespace {

EdgeTotals totals_at(char* highest, char* farthest, char* nearest) {
  return {reinterpret_cast<int32_t*>(highest), reinterpret_cast<uint32_t*>(farthest),
          reinterpret_cast<uint32_t*>(nearest)};
}

}  // namespace

EdgeTotals EdgeRun::totals(const Steps::EdgeReduction& edges, int64_t row) const {
  const auto at = [&](size_t k) { return memory_.own_memory(edges.totals[k], row); };
  return totals_at(at(0), at(1), at(2));
}
EdgeTotals EdgeRun::current(const Steps::EdgeReduction& edges) const {
  const auto at = [&](size_t k) { return memory_.current(edges.totals[k]).memory; };
  return totals_at(at(0), at(1), at(2));
}

void EdgeRun::answer(const Steps::Reduction& one, void* out, const EdgeTotals& of, int64_t rows) const {
  const void* bounds[2];
  for (size_t i = 0; i < 2; ++i) bounds[i] = one.bounds[i] < 0 ? nullptr : memory_.first(one.bounds[i]).memory;
  primitives().edges->answer(one.question, out, of, rows, bounds);
}

void EdgeRun::start_level(const Steps::Level& level) const {
  for (const Steps::Loop& loop : level.loops)
    for (const Steps::EdgeReduction& edges : loop.edges)
      if (edges.lanes >= 0) primitives().edges->start_lanes(edges.watching, lanes(edges.lanes));
}

void EdgeRun::finish_level(const Steps::Level& level, int64_t rows) const {
  for (const Steps::Loop& loop : level.loops)
    for (size_t i = 0; i < loop.edges.size(); ++i) {
      const Steps::EdgeReduction& edges = loop.edges[i];
      const EdgeTotals of = totals(edges, 0);
      bool nothing = false;
      if (edges.lanes >= 0) {
        primitives().edges->finish_lanes(edges.watching, of, lanes(edges.lanes));
        nothing = find_nothing(loop, i, 0);
        if (!nothing) look_again(edges, loop.extent, rows);
      }
      for (const Steps::Reduction& one : loop.reductions) {
        if (one.edges != static_cast<int32_t>(i)) continue;
        char* const out = memory_.first(one.out).memory;
        nothing ? void(std::fill_n(out, rows * memory_.slot(one.out).size, 0)) : answer(one, out, of, rows);
      }
    }
}

void EdgeRun::look_again(const Steps::EdgeReduction& edges, int32_t extent, int64_t rows) const {
  const EdgeTotals of = totals(edges, 0);
  primitives().edges->start(of, rows);
  const SlotMemory::SlotPlace& values = memory_.first(edges.values);
  const int64_t count = memory_.extent(extent);
  for (int64_t first = 0; first < count; first += Steps::chunk) {
    JoinedRows all{};
    all.count = rows, all.from.in[0] = values.at(first), all.from.steps[0] = values.step;
    primitives().edges->join(all, of, std::min(Steps::chunk, count - first));
  }
}

void EdgeRun::start(const Steps::EdgeReduction& edges, int64_t rows) const {
  primitives().edges->start(current(edges), rows);
}

void EdgeRun::join(const Steps::EdgeReduction& edges, const JoinedRows& rows, int64_t n) const {
  primitives().edges->join(rows, current(edges), n);
}

bool EdgeRun::find_nothing(const Steps::Loop& loop, size_t edges, int64_t row) const {
  const EdgeTotals of = totals(loop.edges[edges], row);
  return std::none_of(loop.reductions.begin(), loop.reductions.end(), [&](const Steps::Reduction& one) {
    if (one.edges != static_cast<int32_t>(edges)) return false;
    int32_t found = 0;
    answer(one, &found, of, 1);
    return one.question == EdgeQuestion::magnitude ? tells_nan(found) || tells_inf(found) : found != 0;
  });
}

void EdgeRun::repeat(const Steps::EdgeReduction& edges, int64_t row, int64_t rows) const {
  const EdgeTotals from = totals(edges, row);
  std::fill_n(from.highest + 1, rows, *from.highest);
  std::fill_n(from.farthest + 1, rows, *from.farthest);
  std::fill_n(from.nearest + 1, rows, *from.nearest);
}

}  // namespace triage::fused
