// What a tape does with rows.
#include <algorithm>
#include <cstring>

#include "runtime/backends/fused/support/numbers.h"
#include "runtime/backends/fused/tape/record_steps.h"
#include "runtime/backends/fused/tape/scratch.h"
#include "runtime/backends/fused/tape/step_times.h"
#include "runtime/backends/fused/tape/steps.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {

using Home = Steps::Slot::Home;
using How = Steps::Choice::How;

namespace {

/// So much memory of rows that are searched at once stays in the first cache beside what else is there.
constexpr int64_t searched_bytes = 4 << 10;
/// So much of a call's input may still be in the second cache from whoever wrote it: nothing is fetched for it.
constexpr int64_t cached_bytes = 2 << 20;

}  // namespace

/// One call on one thread. `Clock`: NoClock, or the StepClock of a call that is timed.
template <class Clock>
class TapeRun {
  using Place = Scratch::Place;

 public:
  TapeRun(const Steps& steps, const Call& call, Clock& clock)
      : steps_(steps), call_(call), clock_(clock), scratch_(steps, call) {}

  void run(int64_t begin, int64_t end) {
    used_ = std::min(end - begin, scratch_.block_rows);
    if (const int32_t input = steps_.fetched_input.slot; input >= 0)
      is_beyond_cache_ = (end - begin) * slot(input).size * extent(slot(input).extent) > cached_bytes;
    clock_.start();
    begin_call();
    for (int64_t row = begin; row < end; row += scratch_.block_rows) {
      used_ = std::min(end - row, scratch_.block_rows);
      read(row);
      left_ = end - row - scratch_.block_rows;
      for (size_t i = 0; i < steps_.levels.size(); ++i) run(static_cast<int32_t>(i));
      write(row);
    }
  }

 private:
  int64_t extent(int32_t index) const { return call_.extents[index]; }
  char* memory_of_input(int32_t number) const { return static_cast<char*>(const_cast<void*>(call_.in[number])); }
  const Steps::Slot& slot(int32_t index) const { return steps_.slot(index); }
  const Place& block(int32_t index) const { return scratch_.block[index]; }
  Place& here(int32_t index) { return scratch_.here[index]; }
  const Place& here(int32_t index) const { return scratch_.here[index]; }

  bool holds(int32_t condition, int64_t row) const { return *own_memory(condition, row) != 0; }
  /// Where the slot itself has the row, whatever it selects.
  char* own_memory(int32_t index, int64_t row) const {
    const Place& place = block(index);
    return place.memory + row * place.step;
  }
  Place in_row(int32_t index, int64_t row) const {
    if (const int32_t choice = slot(index).choice; choice >= 0) {
      const Steps::Choice& one = steps_.choices[static_cast<size_t>(choice)];
      const bool which = holds(one.condition, row);
      if (one.how[which] == How::forward) return in_row(one.of[which], row);
    }
    Place place = block(index);
    place.memory += row * place.step;
    return place;
  }
  char* memory(int32_t index, int64_t row) const { return in_row(index, row).memory; }

  // --- what is the same for all rows

  void begin_call() {
    for (const auto& [offset, bytes] : steps_.literals)
      std::memcpy(scratch_.cells + offset, bytes.data(), bytes.size());
    size_t step = 0;
    const auto each = [&](const auto& list, const auto& act) {
      for (const auto& one : list) act(one), clock_.end_step(step++);
    };
    each(steps_.counts, [&](const auto& counted) {
      const int64_t count = extent(counted.second);
      std::memcpy(block(counted.first).memory, &count, sizeof(count));
    });
    each(steps_.numbers, [&](const Steps::Transfer& one) {
      read_values(one, memory_of_input(one.number), 0, block(one.slot).memory, 1);
    });
    each(steps_.zeros,
         [&](int32_t index) { std::memset(block(index).memory, 0, static_cast<size_t>(slot(index).size * used_)); });
    each(steps_.once, [&](const Steps::Op& op) { apply_to_cells(op, 1); });
    each(steps_.spread_once, [&](const Steps::Spread& one) { spread(one, 0); });
    each(steps_.positions, [&](const Steps::Positions& one) { positions(one); });
  }

  void positions(const Steps::Positions& one) const {
    auto* to = reinterpret_cast<int64_t*>(block(one.out).memory);
    const Parts parts = one.in_segment ? parts_of(one.extent) : Parts{1, extent(one.extent), 1};
    const int64_t side_by_side = parts.inner * steps_.width;
    for (int64_t outer = 0; outer < parts.segments / parts.inner; ++outer)
      for (int64_t i = 0; i < parts.positions; ++i, to += side_by_side) std::fill_n(to, side_by_side, i);
  }

  // --- between memory of the caller and slots

  void read_values(const Steps::Transfer& one, const char* from, int64_t stride, char* to, int64_t count) const {
    const int64_t size = slot(one.slot).size;
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

  void read(int64_t row) {
    for (const int32_t index : steps_.of_caller) {
      const Steps::Slot& one = slot(index);
      Place& place = scratch_.block[index];
      place.memory = one.home == Home::input ? memory_of_input(one.number) : static_cast<char*>(call_.out[one.number]);
      place.memory += row * place.step;
    }
    size_t step = steps_.first_read_step;
    for (const Steps::Transfer& one : steps_.reads) {
      const int64_t stride = call_.in_stride[one.number];
      const char* const from = memory_of_input(one.number) + row * stride;
      if (one.extent >= 0)
        primitives()
            .tiles(slot(one.slot).size)
            ->from_rows(block(one.slot).memory, from, stride, extent(one.extent), static_cast<int32_t>(used_));
      else
        read_values(one, from, stride, block(one.slot).memory, used_);
      clock_.end_step(step++);
    }
  }

  void write(int64_t row) const {
    size_t step = steps_.first_write_step;
    for (const Steps::Transfer& one : steps_.writes) {
      char* const to = static_cast<char*>(call_.out[one.number]);
      const char* const from = block(one.slot).memory;
      const int32_t size = slot(one.slot).size;
      if (one.extent >= 0) {
        primitives().tiles(size)->to_rows(to + row * extent(one.extent) * size, from, extent(one.extent),
                                          static_cast<int32_t>(used_));
      } else if (one.step) {
        const void* const in[] = {from};
        one.step(to + row * 2, in, used_, nullptr);  // halves
      } else {
        std::memcpy(to + row * size, from, static_cast<size_t>(size * used_));
      }
      clock_.end_step(step++);
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

  void run(int32_t number) {
    const Steps::Level& level = steps_.levels[static_cast<size_t>(number)];
    size_t step = level.first_step;
    for (const Steps::Op& op : level.cells) apply_to_cells(op, used_), clock_.end_step(step++);
    for (const Steps::Classified& one : level.classified) classify(one), clock_.end_step(step++);
    for (const Steps::Op& op : level.after) apply_to_cells(op, used_), clock_.end_step(step++);
    const int64_t turns = steps_.width > 1 ? 1 : used_;
    if (!search(level)) level.is_one_loop() ? run_together(number, turns) : run_one_by_one(number, turns);
    ahead_in_.memory = ahead_out_.memory = nullptr;
    if (steps_.width > 1) return;
    for (const Steps::Loop& loop : level.loops)
      for (const Steps::Reduction& one : loop.reductions) {
        one.steps->finish(block(one.out).memory, block(one.total).memory, used_);
        clock_.end_step(number_of(one, loop));
      }
  }
  static size_t number_of(const Steps::Op& op, const Steps::Loop& loop) {
    return loop.first_step + static_cast<size_t>(&op - loop.ops.data());
  }
  static size_t number_of(const Steps::Reduction& one, const Steps::Loop& loop) {
    return loop.first_step + loop.ops.size() + static_cast<size_t>(&one - loop.reductions.data());
  }

  void run_one_by_one(int32_t number, int64_t end) {
    const Steps::Level& level = steps_.levels[static_cast<size_t>(number)];
    for (int64_t row = next_row(level, 0); row < end; row = next_row(level, row + 1)) {
      size_t step = level.first_step + level.cells.size() + level.classified.size() + level.after.size();
      for (const Steps::Spread& one : level.spreads) spread(one, row), clock_.end_step(step++);
      look_ahead(number, row);
      for (const Steps::Loop& loop : level.loops)
        if (!is_searched(loop)) run(loop, row, 1);
      step = level.first_segment_step;
      for (const Steps::SegmentReduction& one : level.segments) reduce(one, row), clock_.end_step(step++);
    }
  }
  void run_together(int32_t number, int64_t end) {
    const Steps::Level& level = steps_.levels[static_cast<size_t>(number)];
    const Steps::Loop& loop = level.loops[0];
    const int64_t count = extent(loop.extent) * steps_.width;
    int64_t rows = 1;
    for (int64_t row = next_row(level, 0); row < end; row = next_row(level, row + rows)) {
      const size_t active = prepare(loop, row, count);
      rows = rows_alike(loop, row, std::min(end - row, most_together(loop, count, active)));
      look_ahead(number, row);
      run(loop, rows, count, active);
    }
  }
  /// How many rows of `count` values can go through the loop step by step: as many as registers hold, or all where none is written.
  int64_t most_together(const Steps::Loop& loop, int64_t count, size_t active) const {
    if (count > Steps::chunk) return 1;
    const bool is_one_step = active + loop.reductions.size() == 1;
    if (is_one_step && (active == 0 || !is_register(here(scratch_.active[0]->out)))) return Steps::rows_at_once;
    return Steps::chunk / std::max<int64_t>(1, count);
  }
  bool is_register(const Place& place) const {
    return place.memory >= scratch_.registers && place.memory < scratch_.lanes;
  }
  /// How many rows from `row` on, at most so many, have the conditions of that one.
  int64_t rows_alike(const Steps::Loop& loop, int64_t row, int64_t most) const {
    for (const int32_t index : loop.conditions) {
      const Place& conditions = block(index);
      if (conditions.step == 0) continue;  // one for all rows
      const char* const first = conditions.memory + row;
      most = std::find_if(first + 1, first + most, [&](char other) { return (other != 0) != (*first != 0); }) - first;
    }
    return most;
  }

  /// Processors fetch within a page of memory; rows are many pages.
  void look_ahead(int32_t level, int64_t row) {
    const auto fetch = [&](const Steps::Fetch& one, int64_t wanted, Place& place) {
      if (one.level != level || extent(slot(one.slot).extent) > Steps::chunk || !(one.slow || is_beyond_cache_)) return;
      place = block(one.slot);
      place.memory += (wanted + one.rows_ahead) * place.step;
    };
    if (row < left_) fetch(steps_.fetched_input, row + scratch_.block_rows, ahead_in_);
    fetch(steps_.fetched_output, row, ahead_out_);
  }

  void apply_to_cells(const Steps::Op& op, int64_t count) const {
    const void* in[Steps::most_operands];
    for (size_t i = 0; i < op.in.size() && op.in[i] >= 0; ++i) in[i] = block(op.in[i]).memory;
    op.step(block(op.out).memory, in, count, op.numbers.data());
  }

  /// The first row from `row` on that may need something of the level.
  int64_t next_row(const Steps::Level& level, int64_t row) const {
    if (!level.only || row >= used_) return row;
    const Place& conditions = block(level.only->condition);
    if (conditions.step != 1) return row;  // one for all rows
    const void* const next = std::memchr(conditions.memory + row, level.only->wanted, static_cast<size_t>(used_ - row));
    return next ? static_cast<const char*>(next) - conditions.memory : used_;
  }

  // --- rows that are searched

  /// Rows that lie side by side are searched at once; where something is there, one by one. Whether that was all of the level.
  bool search(const Steps::Level& level) {
    bool all = level.has_only_loops();
    for (const Steps::Loop& loop : level.loops) is_searched(loop) ? search(loop) : void(all = false);
    return all;
  }
  bool is_searched(const Steps::Loop& loop) const { return loop.searches && lies_side_by_side(loop); }
  bool lies_side_by_side(const Steps::Loop& loop) const {
    const auto is_dense = [&](int32_t index) {
      return index < 0 || block(index).step == slot(index).size * extent(loop.extent);
    };
    return std::all_of(loop.reductions.begin(), loop.reductions.end(), [&](const Steps::Reduction& one) {
      return is_dense(one.stored) &&
             (one.merged ? std::all_of(one.in.begin(), one.in.end(), is_dense) : is_dense(one.operand));
    });
  }
  void search(const Steps::Loop& loop) {
    const int64_t at_once = searched_bytes / (8 * std::max<int64_t>(1, extent(loop.extent)));
    if (at_once <= 1) return search_one_by_one(loop);
    for (int64_t row = 0; row < used_; row += at_once) {
      const int64_t rows = std::min(at_once, used_ - row);
      if (!finds_nothing(loop, row, rows)) run(loop, row, rows);
    }
  }
  void search_one_by_one(const Steps::Loop& loop) {
    const int64_t rows = extent(loop.extent) > Steps::chunk ? 1 : used_;
    for (int64_t row = 0; row < used_; row += rows) run(loop, row, rows);
  }
  /// If so, the totals of all these rows say it.
  bool finds_nothing(const Steps::Loop& loop, int64_t row, int64_t rows) {
    const int64_t count = extent(loop.extent) * rows;
    run(loop, 1, count, prepare(loop, row, count));
    const auto says_nothing = [&](const Steps::Reduction& one) {
      const char* const total = memory(one.total, row);
      if (one.join == Join::any)
        return std::all_of(total, total + slot(one.total).size, [](char byte) { return byte == 0; });
      const int32_t largest = *reinterpret_cast<const int32_t*>(total);
      return !tells_nan(largest) && !tells_inf(largest);
    };
    if (!std::all_of(loop.reductions.begin(), loop.reductions.end(), says_nothing)) return false;
    for (const Steps::Reduction& one : loop.reductions)
      turn(slot(one.total).size, [&](auto type) {
        auto* const total = reinterpret_cast<decltype(type)*>(memory(one.total, row));
        std::fill_n(total + 1, rows - 1, *total);
      });
    return true;
  }

  // --- the positions of rows

  /// One row, or rows that need the same steps and are no longer than a chunk.
  void run(const Steps::Loop& loop, int64_t row, int64_t rows) {
    const int64_t count = extent(loop.extent) * steps_.width;
    run(loop, rows, count, prepare(loop, row, count));
  }
  /// Finds the slots and the ops of rows of `count` values, the first of which is `row`. How many ops there are.
  size_t prepare(const Steps::Loop& loop, int64_t row, int64_t count) {
    size_t active = 0;
    if (loop.only && holds(loop.only->condition, row) != loop.only->wanted) return 0;
    for (const Steps::Op& op : loop.ops)
      if (!loop.guarded || loop.only || is_needed(op, row)) scratch_.active[active++] = &op;
    if (active == 0 && loop.reductions.empty()) return 0;
    for (const int32_t index : loop.moving) here(index) = in_row(index, row);
    for (const int32_t index : loop.registers) here(index).step = slot(index).size * count;
    if (!loop.choices.empty()) choose(loop, row);
    return active;
  }
  void run(const Steps::Loop& loop, int64_t rows, int64_t count, size_t active) const {
    if (active == 0 && loop.reductions.empty()) return;
    for (const Steps::Reduction& one : loop.reductions) start(one, rows);
    for (int64_t first = 0; first < count; first += Steps::chunk) {
      const int64_t n = std::min(Steps::chunk, count - first);
      for (size_t k = 0; k < active; ++k) {
        apply(*scratch_.active[k], first, n, rows);
        clock_.end_step(number_of(*scratch_.active[k], loop));
      }
      for (const Steps::Reduction& one : loop.reductions) {
        reduce(one, first, n, rows);
        clock_.end_step(number_of(one, loop));
      }
    }
  }

  RowOperands operands(const Steps::Operands& slots, int64_t first) const {
    RowOperands found;
    for (size_t i = 0; i < slots.size() && slots[i] >= 0; ++i) {
      const Place& place = here(slots[i]);
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
      step = op.single >> chosen & 1 ? primitives().fill(slot(op.out).size) : copy_step(slot(op.out).size);
    }
    const Place& out = here(op.out);
    char* to = out.at(first);
    for (; rows > 0; --rows, to += out.step) {
      step(to, from.in, n, op.numbers.data());
      for (size_t i = 0; i < op.in.size() && op.in[i] >= 0; ++i)
        from.in[i] = static_cast<const char*>(from.in[i]) + from.steps[i];
    }
  }

  bool is_needed(const Steps::Op& op, int64_t row) const {
    for (const Steps::Guard& guard : op.guards)
      if (holds(guard.condition, row) != guard.wanted) return false;
    if (op.choice < 0) return true;
    const Steps::Choice& choice = steps_.choices[static_cast<size_t>(op.choice)];
    const How how = choice.how[holds(choice.condition, row)];
    return how == How::run || how == How::copy;
  }

  /// Values go straight to where the last of the selections that they pass belongs; then others are read where they are.
  void choose(const Steps::Loop& loop, int64_t row) {
    for (size_t i = loop.choices.size(); i-- > 0;) {
      const Steps::Choice& one = steps_.choices[static_cast<size_t>(loop.choices[i])];
      const bool which = holds(one.condition, row);
      if (one.how[which] == How::through) here(one.of[which]) = here(one.out);
    }
    for (const int32_t index : loop.choices) {
      const Steps::Choice& one = steps_.choices[static_cast<size_t>(index)];
      const bool which = holds(one.condition, row);
      if (one.how[which] == How::forward) here(one.out) = here(one.of[which]);
    }
  }

  void start(const Steps::Reduction& one, int64_t rows) const {
    if (steps_.width > 1) return one.steps->start(block(one.out).memory, tile_lanes, one.start);
    const Place& total = here(one.total);
    for (int64_t i = 0; i < rows; ++i) start_total(one, total.memory + i * total.step);
  }
  void reduce(const Steps::Reduction& one, int64_t first, int64_t n, int64_t rows) const {
    if (steps_.width > 1)
      return one.steps->into_tile(block(one.out).memory, here(one.operand).at(first), n / tile_lanes);
    const Place& total = here(one.total);
    if (!one.merged) {
      const Place& from = here(one.operand);
      for (int64_t i = 0; i < rows; ++i)
        one.steps->block(total.memory + i * total.step, from.at(first) + i * from.step, n, one.start);
      return;
    }
    JoinedRows all{};
    all.count = rows, all.total = total.memory, all.total_step = total.step;
    if (one.stored >= 0) all.stored = here(one.stored).at(first), all.stored_step = here(one.stored).step;
    all.from = operands(one.in, first);
    if (first == 0) {
      all.read_ahead = ahead_in_.memory, all.read_step = ahead_in_.step;
      all.write_ahead = ahead_out_.memory, all.write_step = ahead_out_.step;
    }
    one.merged(all, n, one.start);
  }
  /// Sums of blocks are added up as doubles: in one float a lane would lose a row of a million elements. What a sum begins with
  /// has the same bits as a double; totals of others have the size of the value.
  void start_total(const Steps::Reduction& one, char* total) const {
    std::memcpy(total, &one.start, static_cast<size_t>(total_size(one)));
  }

  // --- segments

  /// Of an extent: how many segments, and positions in each; `inner` segments lie side by side between two positions.
  struct Parts {
    int64_t segments, positions, inner;
    int64_t first_of(int64_t segment) const { return segment / inner * positions * inner + segment % inner; }
  };
  Parts parts_of(int32_t index) const {
    const Extent& whole = steps_.extents[static_cast<size_t>(index)];
    if (whole.segments < 0) return {1, extent(index), 1};
    return {extent(whole.segments), extent(whole.positions), whole.inner < 0 ? 1 : extent(whole.inner)};
  }

  /// The memory of a reduction in the row at hand.
  struct Ends {
    const char* from;
    char* to;
    int64_t from_size, to_size;
  };
  void reduce(const Steps::SegmentReduction& one, int64_t row) const {
    const Parts parts = parts_of(one.extent);
    const Ends ends{memory(one.of.operand, row), memory(one.of.out, row), slot(one.of.operand).size,
                    slot(one.of.out).size};
    if (steps_.width > 1)
      reduce_tile(one, parts, ends);
    else if (one.in_lanes)
      reduce_in_lanes(one, parts, ends);
    else
      reduce_by_blocks(one, parts, ends);
  }

  static void reduce_tile(const Steps::SegmentReduction& one, const Parts& parts, const Ends& ends) {
    const int64_t from = ends.from_size * tile_lanes, to = ends.to_size * tile_lanes;
    if (one.whole) one.of.steps->start(ends.to, tile_lanes, one.of.start);
    for (int64_t segment = 0; segment < parts.segments; ++segment) {
      char* const out = ends.to + (one.whole ? 0 : segment * to);
      if (!one.whole) one.of.steps->start(out, tile_lanes, one.of.start);
      const char* const first = ends.from + parts.first_of(segment) * from;
      if (parts.inner == 1) {
        one.of.steps->into_tile(out, first, parts.positions);
        continue;
      }
      for (int64_t i = 0; i < parts.positions; ++i) one.of.steps->into_tile(out, first + i * parts.inner * from, 1);
    }
  }

  void reduce_by_blocks(const Steps::SegmentReduction& one, const Parts& parts, const Ends& ends) const {
    for (int64_t segment = 0; segment < parts.segments; ++segment) {
      if (segment == 0 || !one.whole) start_total(one.of, scratch_.totals);
      const char* const first = ends.from + segment * parts.positions * ends.from_size;
      for (int64_t i = 0; i < parts.positions; i += block_positions)
        one.of.steps->block(scratch_.totals, first + i * ends.from_size, std::min(block_positions, parts.positions - i),
                            one.of.start);
      if (!one.whole) one.of.steps->finish(ends.to + segment * ends.to_size, scratch_.totals, 1);
    }
    if (one.whole) one.of.steps->finish(ends.to, scratch_.totals, 1);
  }

  /// tile_lanes segments at a time, each in a lane of its own.
  void reduce_in_lanes(const Steps::SegmentReduction& one, const Parts& parts, const Ends& ends) const {
    const int64_t side_by_side = is_inner(one.extent) ? parts.inner : parts.segments;
    const auto start_totals = [&] {
      for (int64_t lane = 0; lane < tile_lanes; ++lane)
        start_total(one.of, scratch_.totals + lane * total_size(one.of));
    };
    if (one.whole) start_totals();
    for (int64_t outer = 0; outer < parts.segments / side_by_side; ++outer)
      for (int64_t first = 0; first < side_by_side; first += tile_lanes) {
        const int64_t segment = outer * side_by_side + first, used = std::min(tile_lanes, side_by_side - first);
        if (!one.whole) start_totals();
        add_segments(one, parts, segment, used, ends);
        if (!one.whole) one.of.steps->finish(ends.to + segment * ends.to_size, scratch_.totals, used);
      }
    if (one.whole) one.of.steps->joined_totals(ends.to, scratch_.totals);
  }
  bool is_inner(int32_t index) const { return steps_.extents[static_cast<size_t>(index)].inner >= 0; }
  /// Sums of real numbers are added up as doubles.
  int64_t total_size(const Steps::Reduction& one) const { return one.wide ? 8 : slot(one.out).size; }

  void add_segments(const Steps::SegmentReduction& one, const Parts& parts, int64_t segment, int64_t used,
                    const Ends& ends) const {
    const int64_t size = ends.from_size;
    for (int64_t begun = 0; begun < parts.positions; begun += segment_block_positions) {
      const int64_t n = std::min(segment_block_positions, parts.positions - begun);
      const char* const first = ends.from + (parts.first_of(segment) + begun * parts.inner) * size;
      if (parts.inner == 1)
        primitives()
            .tiles(static_cast<int32_t>(size))
            ->from_rows(scratch_.tile, first, parts.positions * size, n, static_cast<int32_t>(used));
      else  // the segments lie side by side
        for (int64_t i = 0; i < n; ++i)
          std::memcpy(scratch_.tile + i * tile_lanes * size, first + i * parts.inner * size,
                      static_cast<size_t>(used * size));
      one.of.steps->start(scratch_.lanes, tile_lanes, one.of.start);
      one.of.steps->into_tile(scratch_.lanes, scratch_.tile, n);
      one.of.steps->totals(scratch_.totals, scratch_.lanes, used);
    }
  }

  // --- values in more places

  void spread(const Steps::Spread& one, int64_t row) const {
    if (one.from == Steps::Spread::From::lanes)
      return primitives().tiles(slot(one.in).size)->fill(memory(one.out, row), memory(one.in, row), extent(one.extent));
    turn(slot(one.in).size, [&](auto type) {
      using T = decltype(type);
      const T* const from = reinterpret_cast<const T*>(memory(one.in, row));
      T* const to = reinterpret_cast<T*>(memory(one.out, row));
      switch (one.from) {
        case Steps::Spread::From::positions_of_tile:
          for (int64_t i = 0; i < extent(one.extent); ++i) std::fill_n(to + i * steps_.width, steps_.width, from[i]);
          break;
        case Steps::Spread::From::segments:
          spread_segments(parts_of(one.extent), from, to);
          break;
        case Steps::Spread::From::positions:
          spread_positions(parts_of(one.extent), from, to);
          break;
        case Steps::Spread::From::lanes:  // above
          break;
      }
    });
  }
  /// Each value as often as its segment has positions.
  template <class T>
  void spread_segments(const Parts& parts, const T* from, T* to) const {
    const int64_t side_by_side = parts.inner * steps_.width;
    for (int64_t outer = 0; outer < parts.segments / parts.inner; ++outer, from += side_by_side)
      for (int64_t i = 0; i < parts.positions; ++i, to += side_by_side) {
        if (side_by_side == 1)
          *to = *from;
        else
          std::copy_n(from, side_by_side, to);
      }
  }
  /// The values of all positions, for each segment.
  template <class T>
  void spread_positions(const Parts& parts, const T* from, T* to) const {
    const int64_t width = steps_.width;
    for (int64_t outer = 0; outer < parts.segments / parts.inner; ++outer)
      if (parts.inner == 1) {
        to = std::copy_n(from, parts.positions * width, to);
      } else if (width == 1) {
        for (int64_t i = 0; i < parts.positions; ++i) to = std::fill_n(to, parts.inner, from[i]);
      } else {
        for (int64_t i = 0; i < parts.positions; ++i)
          for (int64_t k = 0; k < parts.inner; ++k) to = std::copy_n(from + i * width, width, to);
      }
  }

  /// The largest magnitude tells all but whether there is an Inf beside a NaN: such a row, which is rare, is looked at once more.
  void classify(const Steps::Classified& one) const {
    one.type == Type::f64 ? classify<double, int64_t>(one) : classify<float, int32_t>(one);
  }
  template <class Real, class Bits>
  void classify(const Steps::Classified& one) const {
    const auto* const largest = reinterpret_cast<const Bits*>(block(one.largest).memory);
    auto* const to = reinterpret_cast<NonFinite*>(block(one.out).memory);
    const bool tile = steps_.width > 1;
    for (int64_t row = 0; row < used_; ++row) {
      to[row] = {tells_nan(largest[row]), tells_inf(largest[row])};
      if (!to[row].nan) continue;
      const int64_t count = extent(one.extent);
      const auto* const values = reinterpret_cast<const Real*>(memory(one.element, tile ? 0 : row));
      if (!tile) to[row].inf |= primitives().has_inf(values, count, one.type);
      for (int64_t i = 0; tile && i < count; ++i) to[row].inf |= is_inf(values[i * tile_lanes + row]);
    }
  }

  const Steps& steps_;
  const Call& call_;
  Clock& clock_;
  Scratch scratch_;
  Place ahead_in_{}, ahead_out_{};
  bool is_beyond_cache_ = false;
  int64_t used_ = 1, left_ = 0;  // rows of the block; behind it
};

Tape::Tape(Steps&& steps) : steps_(std::make_unique<const Steps>(std::move(steps))) {}
Tape::~Tape() = default;
int64_t Tape::scratch_bytes(c10::ArrayRef<int64_t> extents) const { return Scratch::bytes(*steps_, extents.data()); }
size_t Tape::steps() const {
  size_t count = 0;
  for (const Steps::Level& level : steps_->levels)
    for (const Steps::Loop& loop : level.loops) count += loop.ops.size() + loop.reductions.size();
  return count;
}
void Tape::run(const Call& call, int64_t begin, int64_t end) const {
  if (!call.times) {
    NoClock none;
    return TapeRun(*steps_, call, none).run(begin, end);
  }
  StepClock clock(steps_->count);
  TapeRun(*steps_, call, clock).run(begin, end);
  call.times->add(*this, clock.times());
}

}  // namespace triage::fused
