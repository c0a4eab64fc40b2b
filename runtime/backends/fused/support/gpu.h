#pragma once
// What loops on a GPU have beside the rest of this folder: which threads compute a row, and how they join what its
// positions give. Position i of a block of block_positions goes into lane i % lane_count, and lanes and blocks are
// joined in the order of the CPU's loops (joins.h): sums have the same bits. A warp takes one block after the other,
// and its threads the lanes.
//
// In front of it stands what the device has (cuda.h): warp_threads, threadIdx and its kind, shared memory, and
//   wait_for_warp(), wait_for_block(), wait_for_cluster()
//   other_thread(word, distance)   the word of the thread of the warp that is `distance` behind
//   shared_of(word, block)         a word of shared memory, of another block of threads of the cluster
//   load(pointer)                  from memory that the kernel does not write
#include "runtime/backends/fused/support/gpu_grid.h"

namespace triage::fused {
inline namespace TRIAGE_SUPPORT {

inline constexpr int most_rounds = 4;  // blocks of positions that a warp takes before they join the total
inline constexpr int lanes_of_thread = static_cast<int>(lane_count) / warp_threads;

/// The threads that compute one row: `warps`, of which `own_warps` are in this block of threads.
struct RowThreads {
  int thread, warp, warps, own_warp, own_warps, row_in_block;
  bool is_cluster;

  /// `joins`: rows have values that their positions are joined to.
  static RowThreads of_this(bool joins) {
    RowThreads threads;
    threads.thread = threadIdx.x % warp_threads;
    threads.own_warp = threadIdx.x / warp_threads;
    threads.own_warps = blockDim.x / warp_threads;
    threads.warp = blockIdx.y * threads.own_warps + threads.own_warp;
    threads.warps = gridDim.y * threads.own_warps;
    threads.row_in_block = threadIdx.y;
    threads.is_cluster = joins && gridDim.y > 1;
    return threads;
  }
  bool is_first() const { return thread == 0 && warp == 0; }

  /// Rows that share a block of threads have a warp each, and do not wait for each other.
  void wait() const {
    if (is_cluster)
      wait_for_cluster();
    else if (own_warps > 1)
      wait_for_block();
    else
      wait_for_warp();
  }
};

/// Calls visit(position, lane) for what this thread has of a block of positions. `at_once`: so many loads of each lane
/// can be under way.
template <int at_once, class Visit>
inline void each_position(const RowThreads& threads, int64_t block, int64_t count, Visit visit) {
  const int64_t first = block * block_positions + threads.thread;
  if ((block + 1) * block_positions <= count) {
#pragma unroll at_once
    for (int64_t i = first; i < first + block_positions; i += lane_count)
#pragma unroll
      for (int lane = 0; lane < lanes_of_thread; ++lane) visit(i + lane * warp_threads, lane);
  } else {
    for (int64_t i = first; i < count; i += lane_count)
#pragma unroll
      for (int lane = 0; lane < lanes_of_thread; ++lane)
        if (i + lane * warp_threads < count) visit(i + lane * warp_threads, lane);
  }
}

/// Calls visit(position) for what this thread has of a row.
template <int at_once, class Visit>
inline void each_position(const RowThreads& threads, int64_t count, Visit visit) {
  for (int64_t block = threads.warp; block * block_positions < count; block += threads.warps)
    each_position<at_once>(threads, block, count, [&](int64_t i, int) { visit(i); });
}

/// Calls visit(first, blocks) for as many blocks of positions as the threads take before they join the total.
template <class Visit>
inline void each_round(const RowThreads& threads, int64_t count, Visit visit) {
  const int64_t all = (count + block_positions - 1) / block_positions, at_once = most_rounds * threads.warps;
  for (int64_t first = 0; first < all; first += at_once) visit(first, all - first < at_once ? all - first : at_once);
}

template <class T>
inline T from_word(uint64_t word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof(value));
  return value;
}
template <class T>
inline uint64_t to_word(T value) {
  uint64_t word = 0;
  __builtin_memcpy(&word, &value, sizeof(value));
  return word;
}

/// What blocks of positions come to, on their way to the totals of `count` reductions.
template <int count>
struct Parts {
  uint64_t own[count][most_warps * most_rounds];                // of this block of threads
  uint64_t all[count][most_warps * most_rounds * most_blocks];  // of a cluster

  /// What the lanes of a block come to, by halves.
  template <class Join, class T>
  void keep(int reduction, const RowThreads& threads, int round, T (&lanes)[lanes_of_thread]) {
#pragma unroll
    for (int half = lanes_of_thread / 2; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) Join::join(lanes[lane], lanes[lane + half]);
#pragma unroll
    for (int half = warp_threads / 2; half > 0; half /= 2)
      Join::join(lanes[0], from_word<T>(other_thread(to_word(lanes[0]), half)));
    if (threads.thread == 0) own[reduction][at(threads, round, threads.own_warp)] = to_word(lanes[0]);
  }

  /// Between `keep` and `join`: brings together what other threads have kept.
  void gather(const RowThreads& threads) {
    threads.wait();
    if (!threads.is_cluster) return;
    for (int reduction = 0; reduction < count; ++reduction)
      for (int i = threadIdx.x; i < most_rounds * threads.warps; i += blockDim.x) {
        const int warp = i % threads.warps;
        const int place = at(threads, i / threads.warps, warp % threads.own_warps);
        all[reduction][i] = shared_of(&own[reduction][place], warp / threads.own_warps);
      }
    threads.wait();
  }

  /// The total, and the first `blocks` of what was gathered, in their order.
  template <class Join, class T, class Total>
  void join(int reduction, const RowThreads& threads, int64_t blocks, Total& total) const {
    const uint64_t* words = threads.is_cluster ? all[reduction] : &own[reduction][at(threads, 0, 0)];
    for (int i = 0; i < blocks; ++i) Join::join(total, static_cast<Total>(from_word<T>(words[i])));
  }

 private:
  static int at(const RowThreads& threads, int round, int own_warp) {
    return (threads.row_in_block * most_rounds + round) * threads.own_warps + own_warp;
  }
};

/// A number of the host comes as its bits, one of the device as an address.
template <class T>
inline T number(const void* address, int64_t bits) {
  return address ? *static_cast<const T*>(address) : from_word<T>(static_cast<uint64_t>(bits));
}

}  // namespace TRIAGE_SUPPORT
}  // namespace triage::fused
