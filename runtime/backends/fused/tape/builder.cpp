// From loops to the steps of a tape.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "runtime/backends/fused/loops/schedule.h"
#include "runtime/backends/fused/support/tiles.h"
#include "runtime/backends/fused/tape/record_steps.h"
#include "runtime/backends/fused/tape/steps.h"
#include "runtime/backends/fused/tape/tape.h"
#include "runtime/messages/assert.h"

namespace triage::fused {

using Kind = LoopValue::Kind;
using Home = Steps::TapeSlot::Home;

namespace {

int32_t bytes_of(Type type) {
  switch (type) {
    case Type::boolean:
    case Type::u8:
    case Type::i8:
      return 1;
    case Type::i16:
    case Type::non_finite:
      return 2;
    case Type::i32:
    case Type::u32:
    case Type::f32:
      return 4;
    default:
      return 8;
  }
}

bool looks_at_segments(const Loops& loops) {
  return std::any_of(loops.extents.begin(), loops.extents.end(),
                     [](const RowExtent& extent) { return extent.segments >= 0; });
}

/// A loop has no primitive for some value.
struct NoTape {};

/// In which level, a pass over the row, each value is computed, and which are kept for later ones.
class Levels {
 protected:
  Levels(const Loops& loops, int width) : loops_(loops), schedule_(loops, looks_at_segments(loops)), width_(width) {
    find_levels();
    count_steps_again();
    delay();
    find_kept();
    find_behind_classified();
  }

  const LoopValue& at(Ref ref) const { return loops_.values[static_cast<size_t>(ref)]; }
  bool is_element(Ref ref) const { return at(ref).place == Place::element; }
  bool is_record(Ref ref) const { return at(ref).type == Type::record; }
  const TensorForm& form_of(Ref input) const { return loops_.inputs[static_cast<size_t>(at(input).slot)].form; }
  bool is_column(Ref ref) const { return at(ref).kind == Kind::input && form_of(ref).kind == TensorForm::Kind::column; }

  /// Whether a value of another extent stands for segments, or positions, of those that `user` is computed for.
  bool is_part(Ref operand, Ref user) const {
    return is_element(operand) && is_element(user) && at(operand).extent != at(user).extent;
  }

  /// Whether memory holds the input in another form than it is computed in.
  bool is_loaded(Ref ref) const {
    return at(ref).kind == Kind::input && !is_record(ref) && primitives().load(at(ref).dtype);
  }

  int level_from(Ref operand, Ref user) const {
    const LoopValue& value = at(operand);
    const int level = levels_[static_cast<size_t>(operand)];
    const bool made_in_loop = is_element(operand) && (value.kind == Kind::map || is_loaded(operand));
    const bool whole = is_part(operand, user) || (at(user).kind == Kind::classify && is_element(operand));
    return level + (value.kind == Kind::reduce || (made_in_loop && whole) ? 1 : 0);
  }

  void find_levels() {
    levels_.assign(loops_.values.size(), 0);
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      for (const Ref operand : loops_.values[i].operands)
        levels_[i] = std::max(levels_[i], level_from(operand, static_cast<Ref>(i)));
      last_level_ = std::max(last_level_, levels_[i]);
    }
    for (const LoopOutput& output : loops_.outputs)
      if (at(output.value).kind == Kind::reduce)
        last_level_ = std::max(last_level_, levels_[static_cast<size_t>(output.value)] + 1);
  }

  bool has_segments(Ref reduction) const {
    const int32_t extent = at(at(reduction).operands[0]).extent;
    const int pass = schedule_.time_of_reduction(reduction).pass;
    const auto [known, fresh] = has_segments_.try_emplace({pass, extent});
    if (fresh) known->second = schedule_.has_segments(pass, extent);
    return known->second;
  }
  /// Whether it needs all positions of its operand, in an order of their own.
  bool is_reduced_after(Ref user) const {
    if (at(user).kind == Kind::classify) return true;
    if (at(user).kind != Kind::reduce) return false;
    const int32_t extent = at(at(user).operands[0]).extent;
    if (is_element(user)) return true;
    if (!has_segments(user)) return false;
    return width_ == 1 || loops_.extents[static_cast<size_t>(extent)].inner >= 0;
  }

  // --- what is read after the loop that makes it: it is computed again where that is cheap, else kept for all
  // positions

  /// How many steps it takes to compute elements again. (Operands come first.)
  void count_steps_again() {
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      const auto ref = static_cast<Ref>(i);
      int& steps = steps_again_.emplace_back(0);
      if (!is_element(ref)) continue;
      if (value.kind != Kind::map || value.expensive || value.opcode == Opcode::position) {
        steps = value.kind == Kind::input && !is_loaded(ref) ? 0 : never;
        continue;
      }
      steps = value.is(Opcode::pick) && !is_element(value.operands[0]) ? 0 : 1;
      for (const Ref operand : value.operands)
        steps += is_part(operand, ref) ? never : steps_again_[static_cast<size_t>(operand)];
      steps = std::min(steps, never);
    }
  }
  bool is_cheap_again(Ref ref) const {
    return width_ == 1 && at(ref).kind == Kind::map && steps_again_[static_cast<size_t>(ref)] <= few;
  }

  /// Elements are computed where they are read first, if that does not keep others for them: so rows that do not take
  /// them need not compute them, and fewer are kept.
  void delay() {
    std::vector<int> latest(loops_.values.size(), -1);
    for (const LoopOutput& output : loops_.outputs)
      latest[static_cast<size_t>(output.value)] = levels_[static_cast<size_t>(output.value)];
    for (size_t i = loops_.values.size(); i-- > 0;) {
      const auto user = static_cast<Ref>(i);
      if (latest[i] < 0) latest[i] = levels_[i];
      for (const Ref operand : at(user).operands) {
        const auto k = static_cast<size_t>(operand);
        const bool whole = is_part(operand, user) || is_reduced_after(user);
        const int read = whole ? levels_[k] : is_element(user) && at(user).kind == Kind::map ? latest[i] : levels_[i];
        latest[k] = latest[k] < 0 ? read : std::min(latest[k], read);
      }
    }
    for (size_t i = 0; i < levels_.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      const auto ref = static_cast<Ref>(i);
      if (value.kind != Kind::map || !is_element(ref) || value.opcode == Opcode::position || latest[i] <= levels_[i])
        continue;
      const bool free = std::all_of(value.operands.begin(), value.operands.end(), [&](Ref operand) {
        return !is_element(operand) || levels_[static_cast<size_t>(operand)] == latest[i] ||
               (!is_part(operand, ref) && steps_again_[static_cast<size_t>(operand)] <= few);
      });
      if (free) levels_[i] = latest[i];
    }
    for (size_t i = levels_.size(); i-- > 0;)  // a reader that could not be delayed
      for (const Ref operand : loops_.values[i].operands) {
        int& level = levels_[static_cast<size_t>(operand)];
        level = std::min(level, levels_[i]);
      }
  }

  void find_kept() {
    kept_.assign(loops_.values.size(), false);
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const auto user = static_cast<Ref>(i);
      for (const Ref operand : at(user).operands) {
        const bool later = levels_[i] > levels_[static_cast<size_t>(operand)];
        if (is_part(operand, user) || is_reduced_after(user) || (later && !is_cheap_again(operand)))
          kept_[static_cast<size_t>(operand)] = true;
      }
    }
  }
  bool is_kept(Ref ref) const { return kept_[static_cast<size_t>(ref)]; }

  /// Notes which values come behind one of their level that is told of a row's elements. (Operands come first.)
  void find_behind_classified() {
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const Refs& operands = loops_.values[i].operands;
      behind_classified_.push_back(std::any_of(operands.begin(), operands.end(), [&](Ref operand) {
        if (levels_[static_cast<size_t>(operand)] != levels_[i]) return false;
        return at(operand).kind == Kind::classify ||
               (at(operand).kind == Kind::map && !is_element(operand) && is_behind_classified(operand));
      }));
    }
  }
  bool is_behind_classified(Ref ref) const { return behind_classified_[static_cast<size_t>(ref)]; }

  const Loops& loops_;
  const Schedule schedule_;
  const int width_;  // Steps::width
  std::vector<int> levels_;
  int last_level_ = 0;
  std::vector<bool> behind_classified_;
  static constexpr int few = 2, never = 1000;
  std::vector<int> steps_again_;
  std::vector<bool> kept_;
  mutable std::map<std::pair<int, int32_t>, bool> has_segments_;  // by pass and extent
};

class Builder : Levels {
 public:
  Builder(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place)
      : Levels(loops, lanes == Lanes::rows ? tile_lanes : 1), lanes_(lanes), in_place_(in_place) {
    steps_.extents = loops.extents;
    steps_.width = width_;
    steps_.levels.resize(static_cast<size_t>(last_level_) + 1);
  }

  Steps run() {
    slots_.assign(loops_.values.size(), -1);
    for (size_t i = 0; i < loops_.values.size(); ++i) add(static_cast<Ref>(i));
    for (size_t i = 0; i < loops_.outputs.size(); ++i) store(i);
    return std::move(steps_);
  }

 private:
  Steps::Level& level(Ref ref) { return steps_.levels[static_cast<size_t>(levels_[static_cast<size_t>(ref)])]; }
  static Steps::Loop& loop(Steps::Level& level, int32_t extent) {
    for (Steps::Loop& one : level.loops)
      if (one.extent == extent) return one;
    level.loops.emplace_back().extent = extent;
    return level.loops.back();
  }
  Steps::Loop& loop(int at_level, int32_t extent) { return loop(steps_.levels[static_cast<size_t>(at_level)], extent); }

  // --- slots

  int32_t slot(Steps::TapeSlot made) {
    steps_.slots.push_back(made);
    return static_cast<int32_t>(steps_.slots.size() - 1);
  }
  int32_t in_cells(Home home, int64_t size) {
    const int64_t offset = steps_.cell_bytes;
    steps_.cell_bytes += whole_lines(home == Home::number ? size : size * Steps::rows_at_once);
    return slot({home, static_cast<int32_t>(size), 0, -1, offset});
  }
  int32_t cell_of(int32_t size) { return in_cells(Home::cell, size); }
  int32_t cell(Ref ref) {
    return in_cells(at(ref).place == Place::number ? Home::number : Home::cell,
                    is_record(ref) ? at(ref).slots * 2 : bytes_of(at(ref).type));
  }
  int32_t row(int32_t size, int32_t extent) { return slot({Home::row, size, 0, extent, 0}); }
  int32_t shared(int32_t size, int32_t extent) { return slot({Home::shared, size, 0, extent, 0}); }
  int32_t chunk(int32_t size) { return slot({Home::chunk, size, 0, -1, 0}); }

  // --- values

  void add(Ref ref) {
    int32_t& own = slots_[static_cast<size_t>(ref)];
    switch (at(ref).kind) {
      case Kind::input:
        own = add_input(ref);
        break;
      case Kind::map:
        own = is_element(ref) ? add_element(ref) : add_cell(ref);
        break;
      case Kind::reduce:
        own = add_reduction(ref);
        break;
      case Kind::classify:
        own = cell(ref);
        level(ref).classified.push_back({slots_[static_cast<size_t>(at(ref).operands[0])],
                                         slots_[static_cast<size_t>(at(ref).operands[1])], own,
                                         at(at(ref).operands[0]).extent, at(at(ref).operands[0]).type, at(ref).line});
        break;
    }
  }

  int32_t add_input(Ref ref) {
    const LoopValue& value = at(ref);
    const MapStep load = is_record(ref) ? nullptr : primitives().load(value.dtype);
    if (!is_element(ref)) {
      const int32_t own = cell(ref);
      (value.place == Place::number ? steps_.numbers : steps_.reads).push_back({own, value.slot, -1, load});
      return own;
    }
    const auto stored = static_cast<int32_t>(c10::elementSize(value.dtype));
    int32_t from = 0;
    if (steps_.width == 1 || is_column(ref)) {
      from = slot({is_column(ref) ? Home::column : Home::input, stored, value.slot, value.extent, 0});
    } else {
      from = row(stored, value.extent);
      steps_.reads.push_back({from, value.slot, value.extent, nullptr});
    }
    if (is_column(ref) && steps_.width > 1) {
      const int32_t tile = shared(stored, value.extent);
      steps_.spread_once.push_back({Steps::Spread::From::positions_of_tile, from, tile, value.extent});
      from = tile;
    }
    if (!load) return from;
    const int32_t own = is_kept(ref) ? row(bytes_of(value.type), value.extent) : chunk(bytes_of(value.type));
    loop(0, value.extent).ops.push_back(plain_op(ref, load, own, from));
    return own;
  }

  int32_t add_cell(Ref ref) {
    const LoopValue& value = at(ref);
    const int32_t own = cell(ref);
    if (value.opcode == Opcode::literal) {
      std::vector<char> bytes(static_cast<size_t>(bytes_of(value.type)));
      std::memcpy(bytes.data(), value.numbers.data(), bytes.size());
      steps_.literals.emplace_back(steps_.slots[static_cast<size_t>(own)].offset, std::move(bytes));
      return own;
    }
    if (value.opcode == Opcode::count) {
      steps_.counts.emplace_back(own, static_cast<int32_t>(value.numbers[0]));
      return own;
    }
    if (value.opcode == Opcode::record_empty) {
      steps_.zeros.push_back(own);
      return own;
    }
    std::vector<Steps::Op>& ops = value.place == Place::number ? steps_.once
                                  : is_behind_classified(ref)  ? level(ref).after
                                                               : level(ref).cells;
    if (is_of_records(ref)) {
      const RecordStep how = record_numbers(ref);
      const MapStep step = record_step(value.opcode, how.width);
      if (!step) throw NoTape{};
      ops.push_back({step, own, operands(ref), how.as_numbers(), value.opcode, Type::record});
      ops.back().result = value.type, ops.back().line = value.line;
      return own;
    }
    ops.push_back(op_of(ref, own, operands(ref), ops));
    return own;
  }

  Steps::Operands operands(Ref ref) const {
    Steps::Operands in = Steps::none;
    for (size_t i = 0; i < at(ref).operands.size(); ++i) in[i] = slots_[static_cast<size_t>(at(ref).operands[i])];
    return in;
  }

  bool is_of_records(Ref ref) const {
    return is_record(ref) || std::any_of(at(ref).operands.begin(), at(ref).operands.end(), [&](Ref operand) {
             return is_record(operand) || at(operand).type == Type::non_finite;
           });
  }

  RecordStep record_numbers(Ref ref) const {
    const Refs& operands = at(ref).operands;
    const auto is_single = [&](size_t i) { return operands.size() == 3 && at(operands[i]).place == Place::number; };
    const bool selects = at(ref).is(Opcode::select);
    RecordStep how{at(ref).slots, Type::i64, is_single(selects ? 0 : 1), is_single(2), at(ref).numbers};
    for (const Ref operand : operands) {
      how.width = std::max<int64_t>(how.width, at(operand).slots);
      if (!is_record(operand) && at(operand).type != Type::boolean) how.code = at(operand).type;
    }
    return how;
  }

  Type operand_type(Ref ref) const {
    for (const Ref operand : at(ref).operands)
      if (at(operand).type != Type::boolean) return at(operand).type;
    return at(at(ref).operands[0]).type;
  }

  /// Whether one value of the operand serves all that are computed at once.
  bool is_single(Ref operand, Ref user) const {
    return at(operand).place == Place::number ||
           (at(operand).place == Place::row && steps_.width == 1 && is_element(user));
  }

  /// The op with operands that are single where primitives take them so; else they are written side by side first.
  Steps::Op op_of(Ref ref, int32_t out, Steps::Operands in, std::vector<Steps::Op>& ops) {
    unsigned single = 0;
    for (size_t i = 0; i < at(ref).operands.size(); ++i)
      if (is_single(at(ref).operands[i], ref)) single |= 1u << i;
    const unsigned all = (1u << at(ref).operands.size()) - 1;
    if (at(ref).place == Place::number) single = 0;
    const Type type = operand_type(ref);
    if (single == all && at(ref).is(Opcode::copy))
      return plain_op(ref, primitives().fill(steps_.slot(out).size), out, in[0], type);
    MapStep step = single == all ? nullptr : primitives().map(at(ref).opcode, type, at(ref).type, single);
    if (!step && single != 0) {
      for (size_t i = 0; i < at(ref).operands.size(); ++i) {
        if (!(single >> i & 1)) continue;
        const int32_t size = steps_.slot(in[i]).size;
        const int32_t filled = is_element(ref) ? chunk(size) : cell_of(size);
        ops.push_back(plain_op(ref, primitives().fill(size), filled, in[i], type));
        in[i] = filled;
      }
      single = 0;
      step = primitives().map(at(ref).opcode, type, at(ref).type, 0);
    }
    if (!step) throw NoTape{};
    return {step, out, in, at(ref).numbers, at(ref).opcode, type, single, -1, {}, at(ref).type, at(ref).line};
  }

  /// What moves values that `ref` is computed from, or itself.
  Steps::Op plain_op(Ref ref, MapStep step, int32_t out, int32_t in, Type type = Type::non_finite) const {
    Steps::Op op{step, out, {in, -1, -1, -1, -1}, {}, Opcode::literal, type};
    op.line = at(ref).line;
    return op;
  }

  int32_t add_element(Ref ref) {
    const LoopValue& value = at(ref);
    if (value.opcode == Opcode::position) {
      const int32_t own = shared(8, value.extent);
      steps_.positions.push_back({own, value.extent, value.numbers[0] >= 0});
      return own;
    }
    const int32_t own = is_kept(ref) ? row(bytes_of(value.type), value.extent) : chunk(bytes_of(value.type));
    compute(ref, own, levels_[static_cast<size_t>(ref)]);
    return own;
  }

  void compute(Ref ref, int32_t out, int at_level) {
    Steps::Operands in = Steps::none;
    for (size_t i = 0; i < at(ref).operands.size(); ++i) {
      const Ref operand = at(ref).operands[i];
      in[i] = spread(operand, ref, slot_at(operand, at_level));
    }
    Steps::Loop& here = loop(at_level, at(ref).extent);
    here.ops.push_back(op_of(ref, out, in, here.ops));
    made_in_[out] = {at_level, at(ref).extent};
    here.slow |= at(ref).expensive;
  }

  /// Where the loops of that level find it.
  int32_t slot_at(Ref ref, int at_level) {
    const size_t i = static_cast<size_t>(ref);
    TRIAGE_ASSERT(levels_[i] <= at_level || !is_element(ref));  // else a loop would read what is not there yet
    if (!is_element(ref) || levels_[i] == at_level || is_kept(ref) || at(ref).kind != Kind::map) return slots_[i];
    if (steps_.slot(slots_[i]).home != Home::chunk) return slots_[i];
    const auto known = again_.find({ref, at_level});
    if (known != again_.end()) return known->second;
    const int32_t own = chunk(bytes_of(at(ref).type));
    compute(ref, own, at_level);
    return again_[{ref, at_level}] = own;
  }

  /// The operand in all positions that `user` is computed for.
  int32_t spread(Ref operand, Ref user, int32_t from) {
    using From = Steps::Spread::From;
    const int32_t extent = at(user).extent;
    const bool of_row = at(operand).place == Place::row && steps_.width > 1;
    if (!of_row && !is_part(operand, user)) return from;
    const auto key = std::make_tuple(operand, extent);
    if (const auto known = spreads_.find(key); known != spreads_.end()) return known->second;
    const int32_t own = row(steps_.slot(from).size, extent);
    const RowExtent& whole = loops_.extents[static_cast<size_t>(extent)];
    const From kind = of_row                                  ? From::lanes
                      : at(operand).extent == whole.segments  ? From::segments
                      : at(operand).extent == whole.positions ? From::positions
                                                              : throw NoTape{};
    steps_.levels[static_cast<size_t>(level_from(operand, user))].spreads.push_back(
        {kind, from, own, extent, at(user).line});
    return spreads_[key] = own;
  }

  int32_t add_reduction(Ref ref) {
    const LoopValue& value = at(ref);
    const Ref operand = value.operands[0];
    const JoinSteps* steps = primitives().join(value.join, value.type);
    if (!steps) throw NoTape{};
    const int32_t extent = at(operand).extent;
    const int32_t own = is_element(ref) ? row(bytes_of(value.type), value.extent) : cell(ref);
    const bool wide = value.join == Join::sum && is_real(value.type);
    Steps::Reduction made{
        steps,     slots_[static_cast<size_t>(operand)], own, -1, start_of(value.join, value.type), wide, value.join,
        value.type};
    made.line = value.line;
    if (is_reduced_after(ref)) {
      level(ref).segments.push_back(
          {made, extent, !is_element(ref), has_segment_lanes(schedule_.extent(extent), lanes_)});
      return own;
    }
    if (steps_.width == 1) made.total = cell_of(wide ? 8 : bytes_of(value.type));
    made.operand = slot_at(operand, levels_[static_cast<size_t>(ref)]);
    loop(level(ref), extent).reductions.push_back(made);
    return own;
  }

  // --- outputs

  void store(size_t index) {
    const Ref ref = loops_.outputs[index].value;
    const int32_t from = slots_[static_cast<size_t>(ref)];
    const LoopValue& value = at(ref);
    const MapStep convert = is_record(ref) ? nullptr : primitives().store(value.dtype);
    const auto stored = static_cast<int32_t>(c10::elementSize(value.dtype));
    if (!is_element(ref)) {
      steps_.writes.push_back({from, static_cast<int32_t>(index), -1, convert});
      return;
    }
    const int at_level = levels_[static_cast<size_t>(ref)] + (value.kind == Kind::reduce ? 1 : 0);
    Steps::Loop& here = loop(at_level, value.extent);
    const Steps::TapeSlot output{steps_.width == 1 ? Home::output : Home::row, stored, static_cast<int32_t>(index),
                                 value.extent, 0};
    const auto made = made_in_.find(from);
    const bool made_here = made != made_in_.end() && made->second == std::pair(at_level, value.extent);
    const bool taken = !convert && value.kind == Kind::map && made_here && take_over(from, output);
    const int32_t to = taken ? from : slot(output);
    if (steps_.width > 1) steps_.writes.push_back({to, static_cast<int32_t>(index), value.extent, nullptr});
    if (!taken) here.ops.push_back(move_op(ref, convert, to, from));
    if (const auto changed = changed_rows(index)) {
      const auto op = std::find_if(here.ops.begin(), here.ops.end(), [&](const Steps::Op& op) { return op.out == to; });
      op->guards.push_back({slots_[static_cast<size_t>(at(ref).operands[0])], changed->wanted});
      if (changed->copied >= 0) loop(0, value.extent).ops.push_back(move_op(ref, convert, to, changed->copied));
    }
  }

  Steps::Op move_op(Ref ref, MapStep convert, int32_t to, int32_t from) const {
    const int32_t size = steps_.slot(to).size;
    Steps::Op op = plain_op(ref, convert ? convert : copy_step(size), to, from);
    if (!convert) op.opcode = Opcode::copy, op.type = size == 4 ? Type::f32 : size == 8 ? Type::f64 : Type::i16;
    return op;
  }

  /// Of an output that selects an input in all rows but those where a condition holds (`wanted`): these alone are
  /// written in their turn. The others hold the input already, or slot `copied` is written to all rows as it goes by in
  /// the first level.
  struct ChangedRows {
    bool wanted;
    int32_t copied;
  };
  std::optional<ChangedRows> changed_rows(size_t output) const {
    const Ref ref = loops_.outputs[output].value;
    const LoopValue& value = at(ref);
    if (steps_.width > 1 || !value.is(Opcode::pick) || at(value.operands[0]).place != Place::row) return std::nullopt;
    if (in_place_) {
      if (in_place_->output != output) return std::nullopt;
      for (const size_t i : {2, 1})
        if (at(value.operands[i]).kind == Kind::input && is_element(value.operands[i]) &&
            at(value.operands[i]).slot == static_cast<int32_t>(in_place_->slot))
          return ChangedRows{i == 2, -1};
      return std::nullopt;
    }
    const LoopValue& other = at(value.operands[2]);
    if (levels_[static_cast<size_t>(ref)] == 0 || other.kind != Kind::input || !is_element(value.operands[2]) ||
        other.dtype != value.dtype || other.extent != value.extent)
      return std::nullopt;
    const auto& loops = steps_.levels[0].loops;
    const bool goes_by =
        std::any_of(loops.begin(), loops.end(), [&](const Steps::Loop& loop) { return loop.extent == value.extent; });
    if (!goes_by) return std::nullopt;
    return ChangedRows{true, slots_[static_cast<size_t>(value.operands[2])]};
  }

  /// The op that makes the value writes it to the output at once.
  bool take_over(int32_t from, const Steps::TapeSlot& output) {
    Steps::TapeSlot& made = steps_.slot(from);
    if (made.home != Home::chunk && made.home != Home::row) return false;
    made = output;
    return true;
  }

  const Lanes lanes_;
  const std::optional<InPlace> in_place_;
  Steps steps_;
  std::vector<int32_t> slots_;
  std::map<std::pair<Ref, int>, int32_t> again_;  // what is computed once more in a later level
  std::map<std::tuple<Ref, int32_t>, int32_t> spreads_;
  std::map<int32_t, std::pair<int, int32_t>> made_in_;  // slots of elements: the level and the extent of the loop
};

std::optional<Steps> steps_of(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place) {
  try {
    Steps steps = Builder(loops, lanes, in_place).run();
    drop_unread(steps);
    find_choices(steps);
    merge_steps(steps);
    keep_in_outputs(steps, in_place);
    find_edges(steps);
    allot_registers(steps);
    choose_fetching(steps);
    find_read_again(steps);
    find_searches(steps);
    find_rare_levels(steps);
    sort_slots(steps);
    number_steps(steps);
    if (in_place && !can_be_in_place(steps, *in_place)) return std::nullopt;
    return steps;
  } catch (const NoTape&) {
    return std::nullopt;
  }
}

}  // namespace

std::unique_ptr<const Tape> Tape::make(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place) {
  std::optional<Steps> steps;
  if (lanes == Lanes::rows) {  // rows that are only searched need not be turned into lanes, however short they are
    steps = steps_of(loops, Lanes::positions, in_place);
    if (steps && !only_searches(*steps)) steps.reset();
  }
  if (!steps) steps = steps_of(loops, lanes, in_place);
  return steps ? std::unique_ptr<const Tape>(new Tape(std::move(*steps))) : nullptr;
}

}  // namespace triage::fused
