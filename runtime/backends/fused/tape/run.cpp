// What a tape does with rows.
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>

#include "runtime/backends/fused/support/numbers.h"
#include "runtime/backends/fused/support/tiles.h"
#include "runtime/backends/fused/tape/record_steps.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {

using Home = Tape::Slot::Home;

/// One call on one thread.
class TapeRun {
 public:
  TapeRun(const Tape& tape, const Call& call) : tape_(tape), call_(call), base_(tape.slots_.size(), nullptr) {
    char* memory = call.scratch;
    const auto take = [&](int64_t bytes) { return std::exchange(memory, memory + Tape::whole_lines(bytes)); };
    cells_ = take(tape.cell_bytes_);
    registers_ = take(tape.registers_ * kRegister);
    lanes_ = take(kLanes);
    totals_ = take(kTotals);
    states_ = take(tape.most_reductions_ * kState);
    tile_ = take(kTile);
    for (size_t i = 0; i < base_.size(); ++i) {
      const Tape::Slot& slot = tape.slots_[i];
      if (slot.home == Home::cell) base_[i] = cells_ + slot.offset;
      if (slot.home == Home::chunk) base_[i] = registers_ + slot.number * kRegister;
      if (slot.home == Home::row) base_[i] = take(slot.size * extent(slot.extent) * tape.width_);
      if (slot.home == Home::column) base_[i] = memory_of_input(slot.number);
    }
  }

  static int64_t scratch_bytes(const Tape& tape, c10::ArrayRef<int64_t> extents) {
    int64_t bytes = 0;
    for (const int64_t part :
         {tape.cell_bytes_, tape.registers_ * kRegister, kLanes, kTotals, tape.most_reductions_ * kState, kTile})
      bytes += Tape::whole_lines(part);
    for (const Tape::Slot& slot : tape.slots_)
      if (slot.home == Home::row)
        bytes += Tape::whole_lines(slot.size * extents[static_cast<size_t>(slot.extent)] * tape.width_);
    return bytes;
  }

  void run(int64_t begin, int64_t end) {
    begin_call();
    for (int64_t row = begin; row < end; row += tape_.width_) {
      used_ = std::min(end - row, tape_.width_);
      read(row);
      for (const Tape::Level& level : tape_.levels_) run(level);
      write(row);
    }
  }

 private:
  // Bytes of scratch memory.
  static constexpr int64_t kRegister = Tape::chunk * 8, kLanes = lane_count * 8, kTotals = tile_lanes * 8;
  static constexpr int64_t kState = kLanes + 64;  // of one reduction: its lanes, its total
  static constexpr int64_t segment_block = 64, kTile = segment_block * tile_lanes * 8;
  static constexpr int64_t block = 2048;  // positions, as in kernels (loops/emit.cpp)

  int64_t extent(int32_t index) const { return call_.extents[index]; }
  char* memory_of_input(int32_t number) const { return static_cast<char*>(const_cast<void*>(call_.in[number])); }
  const Tape::Slot& slot(int32_t index) const { return tape_.slots_[static_cast<size_t>(index)]; }
  char* base(int32_t index) const { return base_[static_cast<size_t>(index)]; }

  // --- what is the same for all rows

  void begin_call() {
    for (const auto& [offset, bytes] : tape_.literals_) std::memcpy(cells_ + offset, bytes.data(), bytes.size());
    for (const auto& [cell, counted] : tape_.counts_) {
      const int64_t count = extent(counted);
      std::memcpy(base(cell), &count, sizeof(count));
    }
    for (const Tape::Transfer& one : tape_.numbers_) read_cell(one, memory_of_input(one.number), base(one.slot));
    for (const Tape::Op& op : tape_.once_) apply(op, 0, 1);
    for (const Tape::Spread& one : tape_.spread_once_) spread(one);
    for (const Tape::Positions& one : tape_.positions_) positions(one);
  }

  void positions(const Tape::Positions& one) const {
    auto* to = reinterpret_cast<int64_t*>(base(one.out));
    const Parts parts = parts_of(one.extent);
    for (int64_t i = 0; i < extent(one.extent); ++i)
      for (int64_t lane = 0; lane < tape_.width_; ++lane) *to++ = one.in_segment ? parts.position(i) : i;
  }

  // --- between memory of the caller and slots

  void read_cell(const Tape::Transfer& one, const char* from, char* to) const {
    const void* const in[] = {from, nullptr, nullptr};
    if (one.step)
      one.step(to, in, 1, nullptr);
    else
      std::memcpy(to, from, static_cast<size_t>(slot(one.slot).size));
  }

  void read(int64_t row) {
    for (const int32_t index : tape_.moving_) {
      const Tape::Slot& one = slot(index);
      base_[static_cast<size_t>(index)] =
          one.home == Home::input ? memory_of_input(one.number) + row * call_.in_stride[one.number]
                                  : static_cast<char*>(call_.out[one.number]) + row * extent(one.extent) * one.size;
    }
    for (const Tape::Transfer& one : tape_.reads_) {
      const int64_t stride = call_.in_stride[one.number];
      const char* const from = memory_of_input(one.number) + row * stride;
      const int32_t size = slot(one.slot).size;
      if (one.extent >= 0)
        turn(size, [&](auto type) {
          using T = decltype(type);
          rows_to_lanes(reinterpret_cast<T*>(base(one.slot)), reinterpret_cast<const T*>(from), stride,
                        extent(one.extent), static_cast<int32_t>(used_));
        });
      else
        for (int64_t lane = 0; lane < used_; ++lane) read_cell(one, from + lane * stride, base(one.slot) + lane * size);
    }
  }

  void write(int64_t row) const {
    for (const Tape::Transfer& one : tape_.writes_) {
      char* const to = static_cast<char*>(call_.out[one.number]);
      const int32_t size = slot(one.slot).size;
      if (one.extent >= 0) {
        turn(size, [&](auto type) {
          using T = decltype(type);
          lanes_to_rows(reinterpret_cast<T*>(to) + row * extent(one.extent), reinterpret_cast<const T*>(base(one.slot)),
                        extent(one.extent), static_cast<int32_t>(used_));
        });
      } else if (one.step) {
        const void* const in[] = {base(one.slot), nullptr, nullptr};
        one.step(to + row * 2, in, used_, nullptr);  // halves
      } else {
        std::memcpy(to + row * size, base(one.slot), static_cast<size_t>(size * used_));
      }
    }
  }

  template <class Do>
  static void turn(int32_t size, const Do& act) {
    switch (size) {
      case 1:
        return act(uint8_t{});
      case 2:
        return act(uint16_t{});
      case 4:
        return act(uint32_t{});
      default:
        return act(uint64_t{});
    }
  }

  // --- a level

  void run(const Tape::Level& level) {
    for (const Tape::Op& op : level.cells) apply(op, 0, tape_.width_);
    for (const Tape::Classified& one : level.classified) classify(one);
    for (const Tape::Op& op : level.after) apply(op, 0, tape_.width_);
    for (const Tape::Spread& one : level.spreads) spread(one);
    for (const Tape::Loop& loop : level.loops) run(loop);
    for (const Tape::SegmentReduction& one : level.segments) reduce(one);
  }

  void apply(const Tape::Op& op, int64_t first, int64_t n) const {
    const void* in[3] = {nullptr, nullptr, nullptr};
    for (size_t i = 0; i < 3 && op.in[i] >= 0; ++i) in[i] = at(op.in[i], first);
    op.step(at(op.out, first), in, n, op.numbers.data());
  }
  char* at(int32_t index, int64_t first) const {
    const Tape::Slot& one = slot(index);
    return base(index) + (one.advances() ? first * one.size : 0);
  }

  /// Sums of blocks are added up as doubles: in one float a lane would lose a row of a million elements.
  void run(const Tape::Loop& loop) const {
    const int64_t count = extent(loop.extent) * tape_.width_;
    const bool tile = tape_.width_ > 1;
    for (size_t i = 0; i < loop.reductions.size(); ++i) {
      const Tape::Reduction& one = loop.reductions[i];
      tile ? one.steps->start(base(one.out), tile_lanes, one.start) : start_total(one, total(i));
    }
    for (int64_t first = 0; first < count; first += Tape::chunk) {
      const int64_t n = std::min(Tape::chunk, count - first);
      for (const Tape::Op& op : loop.ops) apply(op, first, n);
      for (size_t i = 0; i < loop.reductions.size(); ++i) {
        const Tape::Reduction& one = loop.reductions[i];
        if (tile) {
          one.steps->into_tile(base(one.out), at(one.operand, first), n / tile_lanes);
          continue;
        }
        const int64_t begun = first / block * block;
        if (first == begun) one.steps->start(lanes(i), lane_count, one.start);
        one.steps->into_lanes(lanes(i), at(one.operand, first), n);
        if (first + n == std::min(begun + block, count)) one.steps->total(total(i), lanes(i), first + n - begun);
      }
    }
    if (tile) return;
    for (size_t i = 0; i < loop.reductions.size(); ++i)
      loop.reductions[i].steps->finish(base(loop.reductions[i].out), total(i), 1);
  }
  char* lanes(size_t reduction) const { return states_ + static_cast<int64_t>(reduction) * kState; }
  char* total(size_t reduction) const { return lanes(reduction) + kLanes; }
  /// What a sum begins with has the same bits as a double.
  static void start_total(const Tape::Reduction& one, char* total) {
    std::memcpy(total, &one.start, sizeof(one.start));
  }

  // --- segments

  /// Of an extent: how many segments, and positions in each; `inner` segments lie side by side between two positions.
  struct Parts {
    int64_t segments, positions, inner;
    int64_t segment(int64_t i) const { return i / (positions * inner) * inner + i % inner; }
    int64_t position(int64_t i) const { return i / inner % positions; }
    int64_t first_of(int64_t segment) const { return segment / inner * positions * inner + segment % inner; }
  };
  Parts parts_of(int32_t index) const {
    const Extent& whole = tape_.extents_[static_cast<size_t>(index)];
    if (whole.segments < 0) return {1, extent(index), 1};
    return {extent(whole.segments), extent(whole.positions), whole.inner < 0 ? 1 : extent(whole.inner)};
  }

  void reduce(const Tape::SegmentReduction& one) const {
    const Parts parts = parts_of(one.extent);
    if (tape_.width_ > 1)
      reduce_tile(one, parts);
    else if (one.in_lanes)
      reduce_in_lanes(one, parts);
    else
      reduce_by_blocks(one, parts);
  }

  void reduce_tile(const Tape::SegmentReduction& one, const Parts& parts) const {
    const int64_t from = slot(one.of.operand).size * tile_lanes, to = slot(one.of.out).size * tile_lanes;
    if (one.whole) one.of.steps->start(base(one.of.out), tile_lanes, one.of.start);
    for (int64_t segment = 0; segment < parts.segments; ++segment) {
      char* const out = base(one.of.out) + (one.whole ? 0 : segment * to);
      if (!one.whole) one.of.steps->start(out, tile_lanes, one.of.start);
      const char* const first = base(one.of.operand) + parts.first_of(segment) * from;
      if (parts.inner == 1) {
        one.of.steps->into_tile(out, first, parts.positions);
        continue;
      }
      for (int64_t i = 0; i < parts.positions; ++i) one.of.steps->into_tile(out, first + i * parts.inner * from, 1);
    }
  }

  void reduce_by_blocks(const Tape::SegmentReduction& one, const Parts& parts) const {
    const int64_t from = slot(one.of.operand).size, to = slot(one.of.out).size;
    for (int64_t segment = 0; segment < parts.segments; ++segment) {
      if (segment == 0 || !one.whole) start_total(one.of, totals_);
      const char* const first = base(one.of.operand) + segment * parts.positions * from;
      for (int64_t i = 0; i < parts.positions; i += block) {
        const int64_t n = std::min(block, parts.positions - i);
        one.of.steps->start(lanes_, lane_count, one.of.start);
        one.of.steps->into_lanes(lanes_, first + i * from, n);
        one.of.steps->total(totals_, lanes_, n);
      }
      if (!one.whole) one.of.steps->finish(base(one.of.out) + segment * to, totals_, 1);
    }
    if (one.whole) one.of.steps->finish(base(one.of.out), totals_, 1);
  }

  /// tile_lanes segments at a time, each in a lane of its own.
  void reduce_in_lanes(const Tape::SegmentReduction& one, const Parts& parts) const {
    const int64_t from = slot(one.of.operand).size, to = slot(one.of.out).size;
    const int64_t side_by_side = is_inner(one.extent) ? parts.inner : parts.segments;
    const auto start_totals = [&] {
      for (int64_t lane = 0; lane < tile_lanes; ++lane) start_total(one.of, totals_ + lane * total_size(one.of));
    };
    if (one.whole) start_totals();
    for (int64_t outer = 0; outer < parts.segments / side_by_side; ++outer)
      for (int64_t first = 0; first < side_by_side; first += tile_lanes) {
        const int64_t segment = outer * side_by_side + first, used = std::min(tile_lanes, side_by_side - first);
        if (!one.whole) start_totals();
        add_segments(one, parts, segment, used, from);
        if (!one.whole) one.of.steps->finish(base(one.of.out) + segment * to, totals_, used);
      }
    if (one.whole) one.of.steps->joined_totals(base(one.of.out), totals_);
  }
  bool is_inner(int32_t index) const { return tape_.extents_[static_cast<size_t>(index)].inner >= 0; }
  /// Sums of real numbers are added up as doubles.
  int64_t total_size(const Tape::Reduction& one) const { return one.wide ? 8 : slot(one.out).size; }

  void add_segments(const Tape::SegmentReduction& one, const Parts& parts, int64_t segment, int64_t used,
                    int64_t size) const {
    for (int64_t begun = 0; begun < parts.positions; begun += segment_block) {
      const int64_t n = std::min(segment_block, parts.positions - begun);
      std::memset(tile_, 0, static_cast<size_t>(n * tile_lanes * size));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t lane = 0; lane < used; ++lane)
          std::memcpy(tile_ + (i * tile_lanes + lane) * size,
                      base(one.of.operand) + (parts.first_of(segment + lane) + (begun + i) * parts.inner) * size,
                      static_cast<size_t>(size));
      one.of.steps->start(lanes_, tile_lanes, one.of.start);
      one.of.steps->into_tile(lanes_, tile_, n);
      one.of.steps->totals(totals_, lanes_, used);
    }
  }

  // --- values in more places

  void spread(const Tape::Spread& one) const {
    turn(slot(one.in).size, [&](auto type) {
      using T = decltype(type);
      const T* const from = reinterpret_cast<const T*>(base(one.in));
      T* to = reinterpret_cast<T*>(base(one.out));
      const int64_t count = extent(one.extent), width = tape_.width_;
      const Parts parts = parts_of(one.extent);
      for (int64_t i = 0; i < count; ++i, to += width) {
        switch (one.from) {
          case Tape::Spread::From::lanes:
            std::copy_n(from, width, to);
            break;
          case Tape::Spread::From::positions_of_tile:
            std::fill_n(to, width, from[i]);
            break;
          case Tape::Spread::From::segments:
            std::copy_n(from + parts.segment(i) * width, width, to);
            break;
          case Tape::Spread::From::positions:
            std::copy_n(from + parts.position(i) * width, width, to);
            break;
        }
      }
    });
  }

  /// The largest magnitude tells all but whether there is an Inf beside a NaN: such a row, which is rare, is looked at once more.
  void classify(const Tape::Classified& one) const {
    one.type == Type::f64 ? classify<double, int64_t>(one) : classify<float, int32_t>(one);
  }
  template <class Real, class Bits>
  void classify(const Tape::Classified& one) const {
    const auto* const largest = reinterpret_cast<const Bits*>(base(one.largest));
    const auto* const values = reinterpret_cast<const Real*>(base(one.element));
    auto* const to = reinterpret_cast<NonFinite*>(base(one.out));
    for (int64_t lane = 0; lane < tape_.width_; ++lane) {
      to[lane] = {tells_nan(largest[lane]), tells_inf(largest[lane])};
      if (!to[lane].nan || lane >= used_) continue;
      for (int64_t i = 0; i < extent(one.extent); ++i) to[lane].inf |= is_inf(values[i * tape_.width_ + lane]);
    }
  }

  const Tape& tape_;
  const Call& call_;
  c10::SmallVector<char*, 64> base_;
  char *cells_, *registers_, *lanes_, *totals_, *states_, *tile_;
  int64_t used_ = 1;
};

int64_t Tape::scratch_bytes(c10::ArrayRef<int64_t> extents) const { return TapeRun::scratch_bytes(*this, extents); }
void Tape::run(const Call& call, int64_t begin, int64_t end) const { TapeRun(*this, call).run(begin, end); }

}  // namespace triage::fused
