#pragma once
// The edges of rows (support/edges.h), for the primitives of one instruction set.
#include "runtime/backends/fused/support/edges.h"
#include "runtime/backends/fused/tape/exponentials.h"
#include "runtime/backends/fused/tape/primitives.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

/// Whether floats are finite: the sum of their products with 0 is 0 then, else NaN.
struct FiniteSum {
  EdgeLanes::Floats sum{};

  [[gnu::always_inline]] void join(EdgeLanes::Floats floats) {
#ifdef __AVX2__
    sum = (EdgeLanes::Floats)multiply_add({(Floats::Vector)floats}, Floats::all(0), {(Floats::Vector)sum}).v;
#else
    sum = sum + floats * 0.0f;
#endif
  }
  [[gnu::always_inline]] void join(const FiniteSum& other) { sum = sum + other.sum; }
  [[gnu::always_inline]] Edges edges() const {
    const EdgeLanes::Bits bits = (EdgeLanes::Bits)sum & (EdgeLanes::Bits{} + INT32_MAX);
    return joined_register<Any, EdgeLanes::count, uint32_t>(bits) ? Edges{INT32_MAX, INT32_MAX, 0} : Edges{0, 0, 0};
  }
};

static_assert(sizeof(AllEdges) <= edge_lanes_bytes);
template <class Lanes>
[[gnu::always_inline]] inline Lanes lanes_from(const void* memory) {
  Lanes lanes;
  __builtin_memcpy(&lanes, memory, sizeof(lanes));
  return lanes;
}
template <class Lanes>
[[gnu::always_inline]] inline void lanes_to(void* memory, const Lanes& lanes) {
  __builtin_memcpy(memory, &lanes, sizeof(lanes));
}

inline Edges edges_at(const EdgeTotals& totals, int64_t row) {
  return {totals.highest[row], totals.farthest[row], totals.nearest[row]};
}
inline void put_edges(const EdgeTotals& totals, int64_t row, const Edges& edges) {
  totals.highest[row] = edges.highest, totals.farthest[row] = edges.farthest, totals.nearest[row] = edges.nearest;
}

inline void start_edges(const EdgeTotals& totals, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) put_edges(totals, row, Edges());
}
inline void join_edges(const EdgeTotals& totals, int64_t row, const Edges& found) {
  Edges all = edges_at(totals, row);
  Largest::join(all.highest, found.highest);
  Largest::join(all.farthest, found.farthest);
  Smallest::join(all.nearest, found.nearest);
  put_edges(totals, row, all);
}

/// Two chains of comparisons, which do not wait for each other.
template <bool stores>
inline Edges edges_of(const float* values, float* stored, int64_t n, const float* read_ahead,
                      const float* write_ahead) {
  AllEdges even, odd;
  const auto one = [&](AllEdges & lanes, int64_t i) __attribute__((always_inline)) {
    const EdgeLanes::Floats floats = EdgeLanes::at(values + i);
    if constexpr (stores) EdgeLanes::put(stored + i, floats);
    lanes.join(floats);
  };
  int64_t i = 0;
  for (; i + lane_count <= n; i += lane_count) {
    if (read_ahead) fetch_to_read(read_ahead + i, 0);
    if (write_ahead) fetch_to_write(write_ahead + i, 0);
#pragma GCC unroll 16
    for (int64_t k = 0; k < lane_count; k += 2 * EdgeLanes::count) one(even, i + k), one(odd, i + k + EdgeLanes::count);
  }
  for (; i + EdgeLanes::count <= n; i += EdgeLanes::count) one(even, i);
  if (i < n) {
    odd.join(EdgeLanes::some_at(values + i, n - i));
    if constexpr (stores) __builtin_memmove(stored + i, values + i, static_cast<size_t>(n - i) * sizeof(float));
  }
  even.join(odd);
  return even.edges();
}

inline void joined_edges(const JoinedRows& rows, const EdgeTotals& totals, int64_t n) {
  const auto in_row = [](const void* memory, int64_t offset) {
    return memory ? reinterpret_cast<const float*>(static_cast<const char*>(memory) + offset) : nullptr;
  };
  for (int64_t row = 0; row < rows.count; ++row) {
    const float* const values = in_row(rows.from.in[0], row * rows.from.steps[0]);
    float* const stored = const_cast<float*>(in_row(rows.stored, row * rows.stored_step));
    const float* const read = in_row(rows.read_ahead, row * rows.read_step);
    const float* const write = in_row(rows.write_ahead, row * rows.write_step);
    join_edges(
        totals, row,
        stored ? edges_of<true>(values, stored, n, read, write) : edges_of<false>(values, nullptr, n, read, write));
  }
}

template <class Act>
inline void with_lanes(Watching what, const Act& act) {
  switch (what) {
    case Watching::edges:
      return act(AllEdges());
    case Watching::far_edge:
      return act(FarEdge());
    case Watching::finite:
      return act(FiniteSum());
  }
}
inline void start_edge_lanes(Watching what, void* memory) {
  with_lanes(what, [&](const auto& lanes) { lanes_to(memory, lanes); });
}
inline void finish_edge_lanes(Watching what, const EdgeTotals& total, const void* memory) {
  with_lanes(what, [&](auto lanes) { put_edges(total, 0, lanes_from<decltype(lanes)>(memory).edges()); });
}

template <class Answer>
[[gnu::always_inline]] inline void answers(void* out, const EdgeTotals& of, int64_t rows, const Answer& answer) {
  auto* const to = static_cast<int32_t*>(out);
#pragma omp simd
  for (int64_t row = 0; row < rows; ++row) to[row] = answer(Edges{of.highest[row], of.farthest[row], of.nearest[row]});
}
inline void answer_of_edges(EdgeQuestion question, void* out, const EdgeTotals& of, int64_t rows,
                            const void* const* bounds) {
  const auto bound = [&](size_t i) { return bounds[i] ? *static_cast<const float*>(bounds[i]) : 0; };
  const float first = bound(0), second = bound(1);
  switch (question) {
    case EdgeQuestion::magnitude:
      return answers(
          out, of, rows, [](Edges edges) __attribute__((always_inline)) { return edges.magnitude(); });
    case EdgeQuestion::below:
      return answers(
          out, of, rows, [=](Edges edges) __attribute__((always_inline)) { return edges.below(first); });
    case EdgeQuestion::above:
      return answers(
          out, of, rows, [=](Edges edges) __attribute__((always_inline)) { return edges.above(first); });
    case EdgeQuestion::outside:
      return answers(
          out, of,
          rows, [=](Edges edges) __attribute__((always_inline)) { return edges.below(first) | edges.above(second); });
    case EdgeQuestion::nan:
      return answers(
          out, of, rows, [](Edges edges) __attribute__((always_inline)) { return edges.has_nan(); });
    case EdgeQuestion::not_finite:
      return answers(
          out, of, rows, [](Edges edges) __attribute__((always_inline)) { return edges.not_finite(); });
  }
}

inline constexpr EdgeSteps edge_steps{&start_edges, &joined_edges, &start_edge_lanes, &finish_edge_lanes,
                                      &answer_of_edges};

/// Computes `n` floats, which join the lanes on their way to memory. Where it takes long until a vector is there
/// (`slow`), those are joined that were made a while ago: the processor would look ahead less far with instructions
/// that wait.
template <class Lanes, bool slow, class ValueAt>
[[gnu::always_inline]] inline void watch(float* to, int64_t n, void* memory, const ValueAt& value) {
  constexpr int64_t count = EdgeLanes::count, behind = slow && std::is_same_v<Lanes, AllEdges> ? 8 * count : 0;
  Lanes lanes = lanes_from<Lanes>(memory);
  float values[count];
  const auto make = [&](int64_t first) __attribute__((always_inline)) {
#pragma omp simd
    for (int64_t lane = 0; lane < count; ++lane) values[lane] = value(first + lane);
    const EdgeLanes::Floats made = EdgeLanes::at(values);
    EdgeLanes::put(to + first, made);
    return made;
  };
  int64_t i = 0, joined = 0;
  if constexpr (!slow) {
    for (; i + 4 * count <= n; i += 4 * count) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < 4; ++k) lanes.join(make(i + k * count));
    }
    joined = i;
  }
  for (; i < behind && i + count <= n; i += count) make(i);
  for (; i + count <= n; i += count, joined += count) {
    const EdgeLanes::Floats made = make(i);
    lanes.join(behind > 0 ? EdgeLanes::at(to + joined) : made);
  }
  for (; joined < i; joined += count) lanes.join(EdgeLanes::at(to + joined));
  if (i < n) {
    for (int64_t rest = i; rest < n; ++rest) to[rest] = value(rest);
    lanes.join(EdgeLanes::some_at(to + i, n - i));
  }
  lanes_to(memory, lanes);
}
/// The exponentials of `n` floats, which may lie where they go: some at a time, which are in the first cache when they
/// are looked at.
template <class Lanes>
[[gnu::always_inline]] inline void watch_exponentials(float* to, const float* x, int64_t n, void* memory) {
  constexpr int64_t count = EdgeLanes::count, chains = 4, piece = 512;
  Lanes lanes[chains] = {lanes_from<Lanes>(memory)};  // others begin empty; none waits for another
  for (int64_t first = 0; first < n; first += piece) {
    const int64_t end = first + piece < n ? first + piece : n;
    exponentials(to + first, x + first, end - first);
    int64_t i = first;
    for (; i + chains * count <= end; i += chains * count) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < chains; ++k) lanes[k].join(EdgeLanes::at(to + i + k * count));
    }
    for (; i + count <= end; i += count) lanes[0].join(EdgeLanes::at(to + i));
    if (i < end) lanes[0].join(EdgeLanes::some_at(to + i, end - i));
  }
  for (int64_t k = 1; k < chains; ++k) lanes[0].join(lanes[k]);
  lanes_to(memory, lanes[0]);
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
