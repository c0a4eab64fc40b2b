// What a tape does with rows.
#include <algorithm>
#include <cstring>

#include "runtime/backends/fused/support/numbers.h"
#include "runtime/backends/fused/tape/edge_run.h"
#include "runtime/backends/fused/tape/record_steps.h"
#include "runtime/backends/fused/tape/segments.h"
#include "runtime/backends/fused/tape/slot_memory.h"
#include "runtime/backends/fused/tape/step_times.h"
#include "runtime/backends/fused/tape/steps.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {

using Home = Steps::TapeSlot::Home;
using How = Steps::OperandChoice::How;

namespace {

/// So much memory of rows that are searched at once stays in the first cache beside what else is there.
constexpr int64_t searched_bytes = 4 << 10;
/// So much of a call's input may still be in the second cache from whoever wrote it: nothing is fetched for it.
constexpr int64_t cached_bytes = 2 << 20;

}  // namespace

/// One call on one thread. `Clock`: NoClock, or the StepClock of a call that is timed.
template <class Clock>
class TapeRun {
  using SlotPlace = SlotMemory::SlotPlace;

 public:
  TapeRun(const Steps& steps, const LoopCall& call, Clock& clock)
      : steps_(steps), clock_(clock), memory_(steps, call), segments_(memory_), edges_(memory_) {}

  void run_rows(int64_t begin, int64_t end) {
    used_ = std::min(end - begin, memory_.block_rows);
    if (const int32_t input = steps_.fetched_input.slot; input >= 0)
      is_beyond_cache_ =
          (end - begin) * memory_.slot(input).size * memory_.extent(memory_.slot(input).extent) > cached_bytes;
    clock_.start();
    begin_call();
    for (int64_t row = begin; row < end; row += memory_.block_rows) {
      used_ = std::min(end - row, memory_.block_rows);
      read_block(row);
      left_ = end - row - memory_.block_rows;
      for (size_t i = 0; i < steps_.levels.size(); ++i) run_level(static_cast<int32_t>(i));
      write_block(row);
    }
  }

 private:
  // --- what is the same for all rows

  void begin_call() {
    for (const auto& [offset, bytes] : steps_.literals) std::memcpy(memory_.cells + offset, bytes.data(), bytes.size());
    size_t step = 0;
    const auto each = [&](const auto& list, const auto& act) {
      for (const auto& one : list) act(one), clock_.end_step(step++);
    };
    each(steps_.counts, [&](const auto& counted) {
      const int64_t count = memory_.extent(counted.second);
      std::memcpy(memory_.first(counted.first).memory, &count, sizeof(count));
    });
    each(steps_.numbers, [&](const Steps::Transfer& one) {
      read_values(one, memory_.input(one.number), 0, memory_.first(one.slot).memory, 1);
    });
    each(steps_.zeros, [&](int32_t index) {
      std::memset(memory_.first(index).memory, 0, static_cast<size_t>(memory_.slot(index).size * used_));
    });
    each(steps_.once, [&](const Steps::Op& op) { apply_to_cells(op, 1); });
    each(steps_.spread_once, [&](const Steps::Spread& one) { segments_.spread(one, 0); });
    each(steps_.positions, [&](const Steps::Positions& one) { segments_.fill_positions(one); });
  }

  // --- between memory of the caller and slots

  void read_values(const Steps::Transfer& one, const char* from, int64_t stride, char* to, int64_t count) const {
    const int64_t size = memory_.slot(one.slot).size;
    if (!one.step && stride == size) {
      std::memcpy(to, from, static_cast<size_t>(size * count));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const void* const in[] = {from + i * stride};
      if (one.step)
        one.step(to + i * size, in, 1, nullptr);
      else
        std::memcpy(to + i * size, in[0], static_cast<size_t>(size));
    }
  }

  void read_block(int64_t row) {
    for (const int32_t index : steps_.of_caller) {
      const Steps::TapeSlot& one = memory_.slot(index);
      SlotPlace& place = memory_.first(index);
      place.memory =
          one.home == Home::input ? memory_.input(one.number) : static_cast<char*>(memory_.call.out[one.number]);
      place.memory += row * place.step;
    }
    size_t step = steps_.first_read_step;
    for (const Steps::Transfer& one : steps_.reads) {
      const int64_t stride = memory_.call.in_stride[one.number];
      const char* const from = memory_.input(one.number) + row * stride;
      if (one.extent >= 0)
        primitives()
            .tiles(memory_.slot(one.slot).size)
            ->from_rows(memory_.first(one.slot).memory, from, stride, memory_.extent(one.extent),
                        static_cast<int32_t>(used_));
      else
        read_values(one, from, stride, memory_.first(one.slot).memory, used_);
      clock_.end_step(step++);
    }
  }

  void write_block(int64_t row) {
    size_t step = steps_.first_write_step;
    for (const Steps::Transfer& one : steps_.writes) {
      char* const to = static_cast<char*>(memory_.call.out[one.number]);
      const char* const from = memory_.first(one.slot).memory;
      const int32_t size = memory_.slot(one.slot).size;
      if (one.extent >= 0) {
        primitives().tiles(size)->to_rows(to + row * memory_.extent(one.extent) * size, from,
                                          memory_.extent(one.extent), static_cast<int32_t>(used_));
      } else if (one.step) {
        const void* const in[] = {from};
        one.step(to + row * 2, in, used_, nullptr);  // halves
      } else {
        std::memcpy(to + row * size, from, static_cast<size_t>(size * used_));
      }
      clock_.end_step(step++);
    }
  }

  // --- a level

  void run_level(int32_t number) {
    const Steps::Level& level = steps_.levels[static_cast<size_t>(number)];
    size_t step = level.first_step;
    for (const Steps::Op& op : level.cells) apply_to_cells(op, used_), clock_.end_step(step++);
    for (const Steps::Classified& one : level.classified) classify(one), clock_.end_step(step++);
    for (const Steps::Op& op : level.after) apply_to_cells(op, used_), clock_.end_step(step++);
    const int64_t turns = steps_.width > 1 ? 1 : used_;
    edges_.start_level(level);
    if (!search_level(level)) level.is_one_loop() ? run_together(number, turns) : run_row_by_row(number, turns);
    ahead_in_.memory = ahead_out_.memory = nullptr;
    if (steps_.width > 1) return;
    edges_.finish_level(level, used_);
    for (const Steps::Loop& loop : level.loops)
      for (const Steps::Reduction& one : loop.reductions) {
        if (one.edges < 0) one.steps->finish(memory_.first(one.out).memory, memory_.first(one.total).memory, used_);
        clock_.end_step(number_of(one, loop));
      }
  }
  static size_t number_of(const Steps::Op& op, const Steps::Loop& loop) {
    return loop.first_step + static_cast<size_t>(&op - loop.ops.data());
  }
  static size_t number_of(const Steps::Reduction& one, const Steps::Loop& loop) {
    return loop.first_step + loop.ops.size() + loop.edges.size() + static_cast<size_t>(&one - loop.reductions.data());
  }
  static size_t number_of(const Steps::EdgeReduction& one, const Steps::Loop& loop) {
    return loop.first_step + loop.ops.size() + static_cast<size_t>(&one - loop.edges.data());
  }

  void run_row_by_row(int32_t number, int64_t end) {
    const Steps::Level& level = steps_.levels[static_cast<size_t>(number)];
    for (int64_t row = next_row(level, 0); row < end; row = next_row(level, row + 1)) {
      size_t step = level.first_step + level.cells.size() + level.classified.size() + level.after.size();
      for (const Steps::Spread& one : level.spreads) segments_.spread(one, row), clock_.end_step(step++);
      look_ahead(number, row);
      for (const Steps::Loop& loop : level.loops)
        if (!is_searched(loop)) run_loop(loop, row, 1);
      step = level.first_segment_step;
      for (const Steps::SegmentReduction& one : level.segments) segments_.reduce(one, row), clock_.end_step(step++);
    }
  }
  void run_together(int32_t number, int64_t end) {
    const Steps::Level& level = steps_.levels[static_cast<size_t>(number)];
    const Steps::Loop& loop = level.loops[0];
    const int64_t count = memory_.extent(loop.extent) * steps_.width;
    int64_t rows = 1;
    for (int64_t row = next_row(level, 0); row < end; row = next_row(level, row + rows)) {
      const size_t active = prepare(loop, row, count);
      rows = rows_alike(loop, row, std::min(end - row, most_together(loop, count, active)));
      look_ahead(number, row);
      run_prepared(loop, rows, count, active);
    }
  }
  /// How many rows of `count` values can go through the loop step by step: as many as registers hold, or all where none
  /// is written.
  int64_t most_together(const Steps::Loop& loop, int64_t count, size_t active) const {
    if (count > Steps::chunk) return 1;
    const bool is_one_step = active + loop.passes == 1;
    if (is_one_step && (active == 0 || !is_register(memory_.current(memory_.active[0]->out))))
      return Steps::rows_at_once;
    return Steps::chunk / std::max<int64_t>(1, count);
  }
  bool is_register(const SlotPlace& place) const {
    return place.memory >= memory_.registers && place.memory < memory_.lanes;
  }
  /// How many rows from `row` on, at most so many, have the conditions of that one.
  int64_t rows_alike(const Steps::Loop& loop, int64_t row, int64_t most) const {
    for (const int32_t index : loop.conditions) {
      const SlotPlace& conditions = memory_.first(index);
      if (conditions.step == 0) continue;  // one for all rows
      const char* const first = conditions.memory + row;
      most = std::find_if(first + 1, first + most, [&](char other) { return (other != 0) != (*first != 0); }) - first;
    }
    return most;
  }

  /// Processors fetch within a page of memory; rows are many pages.
  void look_ahead(int32_t level, int64_t row) {
    const auto fetch = [&](const Steps::Fetch& one, int64_t wanted, SlotPlace& place) {
      if (one.level != level || memory_.extent(memory_.slot(one.slot).extent) > Steps::chunk ||
          !(one.slow || is_beyond_cache_))
        return;
      place = memory_.first(one.slot);
      place.memory += (wanted + one.rows_ahead) * place.step;
    };
    if (row < left_) fetch(steps_.fetched_input, row + memory_.block_rows, ahead_in_);
    fetch(steps_.fetched_output, row, ahead_out_);
  }

  void apply_to_cells(const Steps::Op& op, int64_t count) const {
    const void* in[Steps::most_operands];
    for (size_t i = 0; i < op.in.size() && op.in[i] >= 0; ++i) in[i] = memory_.first(op.in[i]).memory;
    op.step(memory_.first(op.out).memory, in, count, op.numbers.data());
  }

  /// The first row from `row` on that may need something of the level.
  int64_t next_row(const Steps::Level& level, int64_t row) const {
    if (!level.only || row >= used_) return row;
    const SlotPlace& conditions = memory_.first(level.only->condition);
    if (conditions.step != 1) return row;  // one for all rows
    const void* const next = std::memchr(conditions.memory + row, level.only->wanted, static_cast<size_t>(used_ - row));
    return next ? static_cast<const char*>(next) - conditions.memory : used_;
  }

  // --- rows that are searched

  /// Rows that lie side by side are searched at once; where something is there, one by one. Whether that was all of the
  /// level.
  bool search_level(const Steps::Level& level) {
    bool all = level.has_only_loops();
    for (const Steps::Loop& loop : level.loops) is_searched(loop) ? search_loop(loop) : void(all = false);
    return all;
  }
  bool is_searched(const Steps::Loop& loop) const { return loop.searches && lies_side_by_side(loop); }
  bool lies_side_by_side(const Steps::Loop& loop) const {
    const auto is_dense = [&](int32_t index) {
      return index < 0 || memory_.first(index).step == memory_.slot(index).size * memory_.extent(loop.extent);
    };
    return std::all_of(loop.reductions.begin(), loop.reductions.end(), [&](const Steps::Reduction& one) {
      return is_dense(one.stored) &&
             (one.merged ? std::all_of(one.in.begin(), one.in.end(), is_dense) : is_dense(one.operand));
    });
  }
  void search_loop(const Steps::Loop& loop) {
    const int64_t at_once = searched_bytes / (8 * std::max<int64_t>(1, memory_.extent(loop.extent)));
    if (at_once <= 1) return search_one_by_one(loop);
    for (int64_t row = 0; row < used_; row += at_once) {
      const int64_t rows = std::min(at_once, used_ - row);
      if (!finds_nothing(loop, row, rows)) run_loop(loop, row, rows);
    }
  }
  void search_one_by_one(const Steps::Loop& loop) {
    const int64_t rows = memory_.extent(loop.extent) > Steps::chunk ? 1 : used_;
    for (int64_t row = 0; row < used_; row += rows) run_loop(loop, row, rows);
  }
  /// If so, the totals of all these rows say it.
  bool finds_nothing(const Steps::Loop& loop, int64_t row, int64_t rows) {
    const int64_t count = memory_.extent(loop.extent) * rows;
    run_prepared(loop, 1, count, prepare(loop, row, count));
    const auto says_nothing = [&](const Steps::Reduction& one) {
      if (one.edges >= 0) return edges_.find_nothing(loop, static_cast<size_t>(one.edges), row);
      const char* const total = memory_.memory(one.total, row);
      if (one.join == Join::any)
        return std::all_of(total, total + memory_.slot(one.total).size, [](char byte) { return byte == 0; });
      const int32_t largest = *reinterpret_cast<const int32_t*>(total);
      return !tells_nan(largest) && !tells_inf(largest);
    };
    if (!std::all_of(loop.reductions.begin(), loop.reductions.end(), says_nothing)) return false;
    for (const Steps::EdgeReduction& one : loop.edges) edges_.repeat(one, row, rows - 1);
    for (const Steps::Reduction& one : loop.reductions) {
      if (one.edges >= 0) continue;  // told by these, wherever somebody asks
      with_number_of(memory_.slot(one.total).size, [&](auto type) {
        auto* const total = reinterpret_cast<decltype(type)*>(memory_.memory(one.total, row));
        std::fill_n(total + 1, rows - 1, *total);
      });
    }
    return true;
  }

  // --- the positions of rows

  /// One row, or rows that need the same steps and are no longer than a chunk.
  void run_loop(const Steps::Loop& loop, int64_t row, int64_t rows) {
    const int64_t count = memory_.extent(loop.extent) * steps_.width;
    run_prepared(loop, rows, count, prepare(loop, row, count));
  }
  /// Finds the slots and the ops of rows of `count` values, the first of which is `row`. How many ops there are.
  size_t prepare(const Steps::Loop& loop, int64_t row, int64_t count) {
    size_t active = 0;
    if (loop.only && memory_.holds(loop.only->condition, row) != loop.only->wanted) return 0;
    for (const Steps::Op& op : loop.ops)
      if (!loop.guarded || loop.only || is_needed(op, row)) memory_.active[active++] = &op;
    if (active == 0 && loop.reductions.empty()) return 0;
    for (const int32_t index : loop.moving) memory_.move_to(index, row);
    for (const int32_t index : loop.registers) memory_.current(index).step = memory_.slot(index).size * count;
    if (!loop.choices.empty()) choose(loop, row);
    return active;
  }
  void run_prepared(const Steps::Loop& loop, int64_t rows, int64_t count, size_t active) {
    if (active == 0 && loop.reductions.empty()) return;
    for (const Steps::EdgeReduction& one : loop.edges)
      if (one.lanes < 0) edges_.start(one, rows);
    for (const Steps::Reduction& one : loop.reductions)
      if (one.edges < 0) start_totals(one, rows);
    for (int64_t first = 0; first < count; first += Steps::chunk) {
      const int64_t n = std::min(Steps::chunk, count - first);
      for (size_t k = 0; k < active; ++k) {
        apply(*memory_.active[k], first, n, rows);
        clock_.end_step(number_of(*memory_.active[k], loop));
      }
      for (const Steps::EdgeReduction& one : loop.edges) {
        if (one.lanes >= 0) continue;
        edges_.join(one, joined_rows({one.values, -1, -1, -1, -1}, one.stored, first, rows), n);
        clock_.end_step(number_of(one, loop));
      }
      for (const Steps::Reduction& one : loop.reductions) {
        if (one.edges >= 0) continue;
        reduce(one, first, n, rows);
        clock_.end_step(number_of(one, loop));
      }
    }
  }

  RowOperands operands(const Steps::Operands& slots, int64_t first) const {
    RowOperands found;
    for (size_t i = 0; i < slots.size() && slots[i] >= 0; ++i) {
      const SlotPlace& place = memory_.current(slots[i]);
      found.in[i] = place.at(first);
      found.steps[i] = place.step;
    }
    return found;
  }
  void apply(const Steps::Op& op, int64_t first, int64_t n, int64_t rows) const {
    RowOperands from = operands(op.in, first);
    MapStep step = op.step;
    if (op.choice >= 0) {  // of which operand the rows are told: operand 0
      const size_t chosen = *static_cast<const uint8_t*>(from.in[0]) ? 1 : 2;
      from.in[0] = from.in[chosen], from.steps[0] = from.steps[chosen];
      step =
          op.single >> chosen & 1 ? primitives().fill(memory_.slot(op.out).size) : copy_step(memory_.slot(op.out).size);
    }
    const SlotPlace& out = memory_.current(op.out);
    char* to = out.at(first);
    if (rows > 1 && are_dense(op, n)) n *= rows, rows = 1;
    for (; rows > 0; --rows, to += out.step) {
      if (op.watched)
        op.watched(to, from.in, n, edges_.lanes(op.lanes));
      else
        step(to, from.in, n, op.numbers.data());
      for (size_t i = 0; i < op.in.size() && op.in[i] >= 0; ++i)
        from.in[i] = static_cast<const char*>(from.in[i]) + from.steps[i];
    }
  }

  /// Whether rows of `n` values are as good as one long row.
  bool are_dense(const Steps::Op& op, int64_t n) const {
    const auto is_dense = [&](int32_t index) {
      const Steps::TapeSlot& slot = memory_.slot(index);
      return slot.home == Home::number || (slot.home != Home::cell && memory_.current(index).step == n * slot.size);
    };
    return op.choice < 0 && is_dense(op.out) &&
           std::all_of(op.in.begin(), op.in.end(), [&](int32_t slot) { return slot < 0 || is_dense(slot); });
  }

  bool is_needed(const Steps::Op& op, int64_t row) const {
    for (const Steps::TapeGuard& guard : op.guards)
      if (memory_.holds(guard.condition, row) != guard.wanted) return false;
    if (op.choice < 0) return true;
    const Steps::OperandChoice& choice = steps_.choices[static_cast<size_t>(op.choice)];
    const How how = choice.how[memory_.holds(choice.condition, row)];
    return how == How::run || how == How::copy;
  }

  /// Values go straight to where the last of the selections that they pass belongs; then others are read where they
  /// are.
  void choose(const Steps::Loop& loop, int64_t row) {
    for (size_t i = loop.choices.size(); i-- > 0;) {
      const Steps::OperandChoice& one = steps_.choices[static_cast<size_t>(loop.choices[i])];
      const bool which = memory_.holds(one.condition, row);
      if (one.how[which] == How::through) memory_.current(one.of[which]) = memory_.current(one.out);
    }
    for (const int32_t index : loop.choices) {
      const Steps::OperandChoice& one = steps_.choices[static_cast<size_t>(index)];
      const bool which = memory_.holds(one.condition, row);
      if (one.how[which] == How::forward) memory_.current(one.out) = memory_.current(one.of[which]);
    }
  }

  void start_totals(const Steps::Reduction& one, int64_t rows) const {
    if (steps_.width > 1) return one.steps->start(memory_.first(one.out).memory, tile_lanes, one.start);
    const SlotPlace& total = memory_.current(one.total);
    for (int64_t i = 0; i < rows; ++i) start_total(steps_, one, total.memory + i * total.step);
  }
  void reduce(const Steps::Reduction& one, int64_t first, int64_t n, int64_t rows) const {
    if (steps_.width > 1)
      return one.steps->into_tile(memory_.first(one.out).memory, memory_.current(one.operand).at(first),
                                  n / tile_lanes);
    const SlotPlace& total = memory_.current(one.total);
    if (!one.merged) {
      const SlotPlace& from = memory_.current(one.operand);
      for (int64_t i = 0; i < rows; ++i)
        one.steps->block(total.memory + i * total.step, from.at(first) + i * from.step, n, one.start);
      return;
    }
    JoinedRows all = joined_rows(one.in, one.stored, first, rows);
    all.total = total.memory, all.total_step = total.step;
    one.merged(all, n, one.start);
  }
  JoinedRows joined_rows(const Steps::Operands& in, int32_t stored, int64_t first, int64_t rows) const {
    JoinedRows all{};
    all.count = rows;
    if (stored >= 0) all.stored = memory_.current(stored).at(first), all.stored_step = memory_.current(stored).step;
    all.from = operands(in, first);
    if (first == 0) {
      all.read_ahead = ahead_in_.memory, all.read_step = ahead_in_.step;
      all.write_ahead = ahead_out_.memory, all.write_step = ahead_out_.step;
    }
    return all;
  }
  /// The largest magnitude tells all but whether there is an Inf beside a NaN: such a row, which is rare, is looked at
  /// once more.
  void classify(const Steps::Classified& one) const {
    one.type == Type::f64 ? classify<double, int64_t>(one) : classify<float, int32_t>(one);
  }
  template <class Real, class Bits>
  void classify(const Steps::Classified& one) const {
    const auto* const largest = reinterpret_cast<const Bits*>(memory_.first(one.largest).memory);
    auto* const to = reinterpret_cast<NonFinite*>(memory_.first(one.out).memory);
    const bool tile = steps_.width > 1;
    for (int64_t row = 0; row < used_; ++row) {
      to[row] = {tells_nan(largest[row]), tells_inf(largest[row])};
      if (!to[row].nan) continue;
      const int64_t count = memory_.extent(one.extent);
      const auto* const values = reinterpret_cast<const Real*>(memory_.memory(one.element, tile ? 0 : row));
      if (!tile) to[row].inf |= primitives().has_inf(values, count, one.type);
      for (int64_t i = 0; tile && i < count; ++i) to[row].inf |= is_inf(values[i * tile_lanes + row]);
    }
  }

  const Steps& steps_;
  Clock& clock_;
  SlotMemory memory_;
  const SegmentSteps segments_;
  const EdgeRun edges_;
  SlotPlace ahead_in_{}, ahead_out_{};
  bool is_beyond_cache_ = false;
  int64_t used_ = 1, left_ = 0;  // rows of the block; behind it
};

Tape::Tape(Steps&& steps) : steps_(std::make_unique<const Steps>(std::move(steps))) {}
Tape::~Tape() = default;
int64_t Tape::scratch_bytes(c10::ArrayRef<int64_t> extents) const { return SlotMemory::bytes(*steps_, extents.data()); }
size_t Tape::steps() const {
  size_t count = 0;
  for (const Steps::Level& level : steps_->levels)
    for (const Steps::Loop& loop : level.loops) count += loop.ops.size() + loop.passes;
  return count;
}
void Tape::run(const LoopCall& call, int64_t begin, int64_t end) const {
  if (!call.times) {
    NoClock none;
    return TapeRun(*steps_, call, none).run_rows(begin, end);
  }
  StepClock clock(steps_->count);
  TapeRun(*steps_, call, clock).run_rows(begin, end);
  call.times->add(*this, clock.times());
}

}  // namespace triage::fused
