// From loops to the steps of a tape.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "runtime/backends/fused/loops/schedule.h"
#include "runtime/backends/fused/support/tiles.h"
#include "runtime/backends/fused/tape/record_steps.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {

using Kind = LoopValue::Kind;
using Home = Tape::Slot::Home;

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

/// A loop has no primitive for some value.
struct NoTape {};

}  // namespace

class TapeBuilder {
 public:
  TapeBuilder(const Loops& loops, Lanes lanes) : loops_(loops), schedule_(loops), lanes_(lanes) {
    tape_.extents_ = loops.extents;
    tape_.width_ = lanes == Lanes::rows ? tile_lanes : 1;
  }

  std::unique_ptr<const Tape> run() {
    find_levels();
    slots_.assign(loops_.values.size(), -1);
    for (size_t i = 0; i < loops_.values.size(); ++i) add(static_cast<Ref>(i));
    for (size_t i = 0; i < loops_.outputs.size(); ++i) store(i);
    for (Tape::Level& level : tape_.levels_)
      for (Tape::Loop& loop : level.loops) {
        allot_registers(loop);
        tape_.most_reductions_ = std::max(tape_.most_reductions_, static_cast<int64_t>(loop.reductions.size()));
      }
    for (size_t i = 0; i < tape_.slots_.size(); ++i)
      if (tape_.slots_[i].home == Home::input || tape_.slots_[i].home == Home::output)
        tape_.moving_.push_back(static_cast<int32_t>(i));
    return std::make_unique<const Tape>(std::move(tape_));
  }

 private:
  const LoopValue& at(Ref ref) const { return loops_.values[static_cast<size_t>(ref)]; }
  bool is_element(Ref ref) const { return at(ref).place == Place::element; }
  bool is_record(Ref ref) const { return at(ref).type == Type::record; }
  const TensorForm& form_of(Ref input) const { return loops_.inputs[static_cast<size_t>(at(input).slot)].form; }
  bool is_column(Ref ref) const { return at(ref).kind == Kind::input && form_of(ref).kind == TensorForm::Kind::column; }

  // --- levels

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
    int last = 0;
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      for (const Ref operand : loops_.values[i].operands)
        levels_[i] = std::max(levels_[i], level_from(operand, static_cast<Ref>(i)));
      last = std::max(last, levels_[i]);
    }
    for (const LoopOutput& output : loops_.outputs)
      if (at(output.value).kind == Kind::reduce) last = std::max(last, levels_[static_cast<size_t>(output.value)] + 1);
    tape_.levels_.resize(static_cast<size_t>(last) + 1);
    last_levels_.assign(loops_.values.size(), 0);
    for (size_t i = 0; i < loops_.values.size(); ++i)
      for (const Ref operand : loops_.values[i].operands) {
        int& used = last_levels_[static_cast<size_t>(operand)];
        used = std::max(used, levels_[i]);
      }
  }

  Tape::Level& level(Ref ref) { return tape_.levels_[static_cast<size_t>(levels_[static_cast<size_t>(ref)])]; }
  Tape::Loop& loop(Tape::Level& level, int32_t extent) {
    for (Tape::Loop& one : level.loops)
      if (one.extent == extent) return one;
    level.loops.push_back({extent, {}, {}});
    return level.loops.back();
  }

  // --- slots

  int32_t slot(Tape::Slot made) {
    tape_.slots_.push_back(made);
    return static_cast<int32_t>(tape_.slots_.size() - 1);
  }
  int32_t cell(int32_t size, int64_t lanes) {
    const int64_t offset = tape_.cell_bytes_;
    tape_.cell_bytes_ += Tape::whole_lines(size * lanes);
    return slot({Home::cell, size, 0, -1, offset});
  }
  int32_t cell(Ref ref) {
    const int32_t size = is_record(ref) ? at(ref).slots * 2 : bytes_of(at(ref).type);
    return cell(size, at(ref).place == Place::number ? 1 : tape_.width_);
  }
  int32_t row(int32_t size, int32_t extent) { return slot({Home::row, size, 0, extent, 0}); }
  int32_t chunk(int32_t size) { return slot({Home::chunk, size, 0, -1, 0}); }

  /// Whether its values are read after the loop that makes them.
  bool is_kept(Ref ref) const {
    const size_t i = static_cast<size_t>(ref);
    if (last_levels_[i] > levels_[i]) return true;
    for (size_t user = 0; user < loops_.values.size(); ++user)
      for (const Ref operand : loops_.values[user].operands)
        if (operand == ref && is_reduced_after(static_cast<Ref>(user))) return true;
    return false;
  }

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
                                         at(at(ref).operands[0]).extent, at(at(ref).operands[0]).type});
        break;
    }
  }

  int32_t add_input(Ref ref) {
    const LoopValue& value = at(ref);
    const MapStep load = is_record(ref) ? nullptr : primitives().load(value.dtype);
    if (!is_element(ref)) {
      const int32_t own = cell(ref);
      (value.place == Place::number ? tape_.numbers_ : tape_.reads_).push_back({own, value.slot, -1, load});
      return own;
    }
    const auto stored = static_cast<int32_t>(c10::elementSize(value.dtype));
    int32_t from = 0;
    if (tape_.width_ == 1 || is_column(ref)) {
      from = slot({is_column(ref) ? Home::column : Home::input, stored, value.slot, value.extent, 0});
    } else {
      from = row(stored, value.extent);
      tape_.reads_.push_back({from, value.slot, value.extent, nullptr});
    }
    if (is_column(ref) && tape_.width_ > 1) {
      const int32_t tile = row(stored, value.extent);
      tape_.spread_once_.push_back({Tape::Spread::From::positions_of_tile, from, tile, value.extent});
      from = tile;
    }
    if (!load) return from;
    const int32_t own = is_kept(ref) ? row(bytes_of(value.type), value.extent) : chunk(bytes_of(value.type));
    loop(tape_.levels_[0], value.extent).ops.push_back({load, own, {from, -1, -1}, {}});
    return own;
  }

  int32_t add_cell(Ref ref) {
    const LoopValue& value = at(ref);
    const int32_t own = cell(ref);
    if (value.opcode == Opcode::literal) {
      std::vector<char> bytes(static_cast<size_t>(bytes_of(value.type)));
      std::memcpy(bytes.data(), value.numbers.data(), bytes.size());
      tape_.literals_.emplace_back(tape_.slots_[static_cast<size_t>(own)].offset, std::move(bytes));
      return own;
    }
    if (value.opcode == Opcode::count) {
      tape_.counts_.emplace_back(own, static_cast<int32_t>(value.numbers[0]));
      return own;
    }
    if (value.opcode == Opcode::record_empty) {
      const Tape::Slot& made = tape_.slots_[static_cast<size_t>(own)];
      tape_.literals_.emplace_back(made.offset, std::vector<char>(static_cast<size_t>(made.size * tape_.width_)));
      return own;
    }
    std::vector<Tape::Op>& ops = value.place == Place::number ? tape_.once_
                                 : is_behind_classified(ref)  ? level(ref).after
                                                              : level(ref).cells;
    if (MapStep step = record_step(value.opcode)) {
      ops.push_back({step, own, operands(ref), record_numbers(ref)});
      return own;
    }
    ops.push_back(op_of(ref, own, operands(ref), ops));
    return own;
  }

  /// Whether a value of its level that is told of a row's elements comes before it.
  bool is_behind_classified(Ref ref) const {
    return std::any_of(at(ref).operands.begin(), at(ref).operands.end(), [&](Ref operand) {
      if (levels_[static_cast<size_t>(operand)] != levels_[static_cast<size_t>(ref)]) return false;
      return at(operand).kind == Kind::classify ||
             (at(operand).kind == Kind::map && !is_element(operand) && is_behind_classified(operand));
    });
  }

  std::array<int32_t, 3> operands(Ref ref) const {
    std::array<int32_t, 3> in{-1, -1, -1};
    for (size_t i = 0; i < at(ref).operands.size(); ++i) in[i] = slots_[static_cast<size_t>(at(ref).operands[i])];
    return in;
  }

  /// How many slots a record has, the type of a code, and the numbers of the opcode.
  std::vector<int64_t> record_numbers(Ref ref) const {
    int64_t slots = at(ref).slots;
    Type code = Type::i64;
    for (const Ref operand : at(ref).operands) {
      slots = std::max<int64_t>(slots, at(operand).slots);
      if (!is_record(operand) && at(operand).type != Type::boolean) code = at(operand).type;
    }
    std::vector<int64_t> numbers{slots, static_cast<int64_t>(code)};
    if (at(ref).operands.size() == 3) {
      numbers.push_back(at(at(ref).operands[1]).place == Place::number);
      numbers.push_back(at(at(ref).operands[2]).place == Place::number);
    } else {
      numbers.insert(numbers.end(), {0, 0});
    }
    numbers.insert(numbers.end(), at(ref).numbers.begin(), at(ref).numbers.end());
    return numbers;
  }

  Type operand_type(Ref ref) const {
    for (const Ref operand : at(ref).operands)
      if (at(operand).type != Type::boolean) return at(operand).type;
    return at(at(ref).operands[0]).type;
  }

  /// Whether one value of the operand serves all that are computed at once.
  bool is_single(Ref operand, Ref user) const {
    return at(operand).place == Place::number ||
           (at(operand).place == Place::row && tape_.width_ == 1 && is_element(user));
  }

  /// The op with operands that are single where primitives take them so; else they are written side by side first.
  Tape::Op op_of(Ref ref, int32_t out, std::array<int32_t, 3> in, std::vector<Tape::Op>& ops) {
    unsigned single = 0;
    for (size_t i = 0; i < at(ref).operands.size(); ++i)
      if (is_single(at(ref).operands[i], ref)) single |= 1u << i;
    const unsigned all = (1u << at(ref).operands.size()) - 1;
    const bool one_value = at(ref).place == Place::number || (at(ref).place == Place::row && tape_.width_ == 1);
    if (one_value) single = 0;
    const Type type = operand_type(ref);
    MapStep step = single == all ? nullptr : primitives().map(at(ref).opcode, type, at(ref).type, single);
    if (!step && single != 0) {
      for (size_t i = 0; i < at(ref).operands.size(); ++i) {
        if (!(single >> i & 1)) continue;
        const int32_t size = tape_.slots_[static_cast<size_t>(in[i])].size;
        const int32_t filled = is_element(ref) ? chunk(size) : cell(size, tape_.width_);
        ops.push_back({fill_step(size), filled, {in[i], -1, -1}, {}});
        in[i] = filled;
      }
      step = primitives().map(at(ref).opcode, type, at(ref).type, 0);
    }
    if (!step) throw NoTape{};
    return {step, out, in, at(ref).numbers};
  }

  int32_t add_element(Ref ref) {
    const LoopValue& value = at(ref);
    if (value.opcode == Opcode::position) {
      const int32_t own = row(8, value.extent);
      tape_.positions_.push_back({own, value.extent, value.numbers[0] >= 0});
      return own;
    }
    std::array<int32_t, 3> in = operands(ref);
    for (size_t i = 0; i < value.operands.size(); ++i) in[i] = spread(value.operands[i], ref, in[i]);
    Tape::Loop& here = loop(level(ref), value.extent);
    const int32_t own = is_kept(ref) ? row(bytes_of(value.type), value.extent) : chunk(bytes_of(value.type));
    here.ops.push_back(op_of(ref, own, in, here.ops));
    return own;
  }

  /// The operand in all positions that `user` is computed for.
  int32_t spread(Ref operand, Ref user, int32_t from) {
    using From = Tape::Spread::From;
    const int32_t extent = at(user).extent;
    const bool of_row = at(operand).place == Place::row && tape_.width_ > 1;
    if (!of_row && !is_part(operand, user)) return from;
    const auto key = std::make_tuple(operand, extent);
    if (const auto known = spreads_.find(key); known != spreads_.end()) return known->second;
    const int32_t own = row(tape_.slots_[static_cast<size_t>(from)].size, extent);
    const Extent& whole = loops_.extents[static_cast<size_t>(extent)];
    const From kind = of_row                                  ? From::lanes
                      : at(operand).extent == whole.segments  ? From::segments
                      : at(operand).extent == whole.positions ? From::positions
                                                              : throw NoTape{};
    tape_.levels_[static_cast<size_t>(level_from(operand, user))].spreads.push_back({kind, from, own, extent});
    return spreads_[key] = own;
  }

  // --- reductions

  bool has_segments(Ref reduction) const {
    const int32_t extent = at(at(reduction).operands[0]).extent;
    return schedule_.has_segments(schedule_.time_of_reduction(reduction).pass, extent);
  }
  /// Whether it needs all positions of its operand, in an order of their own.
  bool is_reduced_after(Ref user) const {
    if (at(user).kind == Kind::classify) return true;
    if (at(user).kind != Kind::reduce) return false;
    const int32_t extent = at(at(user).operands[0]).extent;
    if (is_element(user)) return true;
    if (!has_segments(user)) return false;
    return tape_.width_ == 1 || loops_.extents[static_cast<size_t>(extent)].inner >= 0;
  }

  int32_t add_reduction(Ref ref) {
    const LoopValue& value = at(ref);
    const Ref operand = value.operands[0];
    const JoinSteps* steps = primitives().join(value.join, value.type);
    if (!steps) throw NoTape{};
    const int32_t extent = at(operand).extent;
    const int32_t own = is_element(ref) ? row(bytes_of(value.type), value.extent) : cell(ref);
    const Tape::Reduction made{steps, slots_[static_cast<size_t>(operand)], own, start_of(value.join, value.type),
                               value.join == Join::sum && is_real(value.type)};
    if (is_reduced_after(ref))
      level(ref).segments.push_back(
          {made, extent, !is_element(ref), has_segment_lanes(schedule_.extent(extent), lanes_)});
    else
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
      tape_.writes_.push_back({from, static_cast<int32_t>(index), -1, convert});
      return;
    }
    const int at_level = levels_[static_cast<size_t>(ref)] + (value.kind == Kind::reduce ? 1 : 0);
    Tape::Loop& here = loop(tape_.levels_[static_cast<size_t>(at_level)], value.extent);
    const Tape::Slot output{Home::output, stored, static_cast<int32_t>(index), value.extent, 0};
    const Tape::Slot tile{Home::row, stored, 0, value.extent, 0};
    const bool taken = !convert && value.kind == Kind::map && take_over(here, from, tape_.width_ == 1 ? output : tile);
    const int32_t to = taken ? from : slot(tape_.width_ == 1 ? output : tile);
    if (tape_.width_ > 1) tape_.writes_.push_back({to, static_cast<int32_t>(index), value.extent, nullptr});
    if (!taken) here.ops.push_back({convert ? convert : copy_step(stored), to, {from, -1, -1}, {}});
  }

  /// The op that makes the value writes it to the output at once.
  bool take_over(const Tape::Loop& loop, int32_t from, const Tape::Slot& output) {
    Tape::Slot& made = tape_.slots_[static_cast<size_t>(from)];
    const bool here = std::any_of(loop.ops.begin(), loop.ops.end(), [&](const Tape::Op& op) { return op.out == from; });
    if (!here || (made.home != Home::chunk && made.home != Home::row)) return false;
    made = output;
    return true;
  }

  // --- registers of a loop: one is free again behind the last op that reads it

  void allot_registers(Tape::Loop& loop) {
    std::map<int32_t, size_t> last_use;
    for (size_t i = 0; i < loop.ops.size(); ++i) {
      last_use.emplace(loop.ops[i].out, i);
      for (const int32_t in : loop.ops[i].in) last_use[in] = i;
    }
    for (const Tape::Reduction& reduction : loop.reductions) last_use[reduction.operand] = loop.ops.size();
    std::vector<int32_t> free;
    int32_t next = 0;
    for (size_t i = 0; i < loop.ops.size(); ++i) {
      Tape::Slot& out = tape_.slots_[static_cast<size_t>(loop.ops[i].out)];
      if (out.home == Home::chunk) {
        out.number = free.empty() ? next++ : free.back();
        if (!free.empty()) free.pop_back();
      }
      std::set<int32_t> done(loop.ops[i].in.begin(), loop.ops[i].in.end());
      done.insert(loop.ops[i].out);
      for (const int32_t one : done)
        if (one >= 0 && last_use[one] == i && tape_.slots_[static_cast<size_t>(one)].home == Home::chunk)
          free.push_back(tape_.slots_[static_cast<size_t>(one)].number);
    }
    tape_.registers_ = std::max(tape_.registers_, next);
  }

  const Loops& loops_;
  const Schedule schedule_;
  const Lanes lanes_;
  Tape tape_;
  std::vector<int> levels_, last_levels_;
  std::vector<int32_t> slots_;
  std::map<std::tuple<Ref, int32_t>, int32_t> spreads_;
};

std::unique_ptr<const Tape> Tape::make(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place) {
  try {
    auto tape = TapeBuilder(loops, lanes).run();
    return !in_place || tape->can_overwrite(in_place->slot, in_place->output) ? std::move(tape) : nullptr;
  } catch (const NoTape&) {
    return nullptr;
  }
}

}  // namespace triage::fused
