#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "runtime/backends/fused/tape/merges.h"
#include "runtime/backends/fused/tape/record_steps.h"
#include "runtime/backends/fused/tape/steps.h"
#include "runtime/backends/fused/tape/tape.h"
#include "runtime/messages/assert.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;

constexpr std::array type_names{"bool", "u8", "i8", "i16", "i32", "u32", "i64", "f32", "f64", "record", "non_finite"};
const char* text_of(Type type) { return type_names[static_cast<size_t>(type)]; }

constexpr std::array join_names{"sum", "product", "largest", "smallest", "any"};

/// "sub + exp"
std::string text_of(const Merge& merge) {
  std::string text;
  for (size_t i = 0; i < merge.count; ++i) text += (i ? " + " : "") + std::string(row_of(merge.nodes[i].opcode).name);
  return text;
}

/// The opcodes that a merged step stands for, as the step itself no longer says; empty where it is none. `find`: a
/// member of Primitives that gives the step of a merge.
template <class Step, class Find>
std::string merged_text(Step step, Find find) {
  for (size_t i = 0; i < merges.size(); ++i)
    for (size_t type = 0; type < type_names.size(); ++type)
      if ((primitives().*find)(i, static_cast<Type>(type)) == step)
        return fmt::format("{}.{}", text_of(merges[i]), type_names[type]);
  return "";
}

/// A step that has no opcode of its own.
std::string plain_text(MapStep step) {
  for (const at::ScalarType dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat,
                                     at::kDouble, at::kBool, at::kBFloat16}) {
    if (primitives().load(dtype) == step) return fmt::format("load.{}", c10::toString(dtype));
    if (primitives().store(dtype) == step) return fmt::format("store.{}", c10::toString(dtype));
  }
  for (const int32_t size : {1, 2, 4, 8}) {
    if (copy_step(size) == step) return fmt::format("copy.{} bytes", size);
    if (primitives().fill(size) == step) return fmt::format("fill.{} bytes", size);
  }
  return "step";
}

std::string opcode_text(const Steps::Op& op) {
  if (op.opcode == Opcode::literal) {
    const std::string merged = merged_text(op.step, &Primitives::merged);
    return merged.empty() ? plain_text(op.step) : merged;
  }
  const OpcodeRow& row = row_of(op.opcode);
  if (row.signature.back() != '?') return fmt::format("{}.{}", row.name, text_of(op.type));
  return fmt::format("{}.{}.{}", row.name, text_of(op.type), text_of(op.result));
}

class Listing {
 public:
  Listing(const Steps& steps, const std::vector<std::string>& lines) : steps_(steps), lines_(lines) {}

  std::vector<ListedLine> run() {
    heading(fmt::format("tape of {} levels: {}, chunks of {} values, {} instructions", steps_.levels.size(),
                        steps_.width > 1 ? fmt::format("tiles of {} rows, one in each lane", steps_.width)
                                         : fmt::format("blocks of at most {} rows", Steps::rows_at_once),
                        Steps::chunk, primitives().name));
    once();
    if (!steps_.reads.empty()) heading("each block");
    for (const Steps::Transfer& one : steps_.reads) transfer("read", slot(one.slot), fmt::format("in{}", one.number));
    for (size_t i = 0; i < steps_.levels.size(); ++i) level(i);
    if (!steps_.writes.empty()) heading("each block, at its end");
    for (const Steps::Transfer& one : steps_.writes)
      transfer("write", fmt::format("out{}", one.number), slot(one.slot));
    TRIAGE_ASSERT(static_cast<size_t>(number_) == steps_.count);
    return std::move(listed_);
  }

 private:
  /// A slot by where it lies: "in0", "out1", "column2"; "r3": a register of the loop; "n4": one value for all rows;
  /// "c5": one for each row; "row6": all positions of a row; "all7": the same for all rows.
  std::string slot(int32_t index) const {
    const Steps::TapeSlot& one = steps_.slot(index);
    switch (one.home) {
      case Home::number:
        return fmt::format("n{}", index);
      case Home::cell:
        return fmt::format("c{}", index);
      case Home::chunk:
        return fmt::format("r{}", one.number);
      case Home::row:
        return fmt::format("row{}", index);
      case Home::shared:
        return fmt::format("all{}", index);
      case Home::input:
        return fmt::format("in{}", one.number);
      case Home::column:
        return fmt::format("column{}", one.number);
      case Home::output:
        return fmt::format("out{}", one.number);
    }
    return "";
  }

  /// A number that stands in the script by its value.
  std::string operand(int32_t index, Type type) const {
    const Steps::TapeSlot& one = steps_.slot(index);
    const auto found = std::find_if(steps_.literals.begin(), steps_.literals.end(), [&](const auto& literal) {
      return one.home == Home::number && literal.first == one.offset;
    });
    if (found == steps_.literals.end()) return slot(index);
    int64_t bits = 0;
    std::memcpy(&bits, found->second.data(), found->second.size());
    const bool real = is_real(type) && one.size == (type == Type::f64 ? 8 : 4);
    if (real) return fmt::format("{}", real_of_bits(type, bits));
    const int unused = 64 - 8 * one.size;
    return std::to_string(static_cast<int64_t>(static_cast<uint64_t>(bits) << unused) >> unused);
  }
  std::string operands(const Steps::Operands& in, Type type) const {
    std::string text;
    for (size_t i = 0; i < in.size() && in[i] >= 0; ++i) text += (i ? ", " : "") + operand(in[i], type);
    return text;
  }
  std::string sizes(int32_t extent) const {
    return fmt::format("[{}]", fmt::join(steps_.extents[static_cast<size_t>(extent)].sizes, ", "));
  }
  std::string condition(const Steps::TapeGuard& guard) const {
    return (guard.wanted ? "if " : "unless ") + slot(guard.condition);
  }

  void line(const std::string& opcode, const std::string& out, const std::string& in, int32_t from = -1,
            const std::string& notes = "") {
    ListedLine step{fmt::format("  {:4}  {:<32} {:<6} <- {}{}", number_, opcode, out, in, notes), number_, ""};
    if (from >= 0) {
      step.source = lines_[static_cast<size_t>(from)];
      step.text = fmt::format("{:<68} {}", step.text, step.source);
    }
    listed_.push_back(std::move(step));
    ++number_;
  }
  void heading(std::string text) { listed_.push_back({std::move(text), -1, ""}); }
  void transfer(const char* what, const std::string& to, const std::string& from) { line(what, to, from); }

  void op(const Steps::Op& op) {
    std::string notes;
    for (const Steps::TapeGuard& guard : op.guards) notes += ", " + condition(guard);
    line(opcode_text(op), slot(op.out), operands(op.in, op.type), op.line, notes);
  }
  void ops(const std::vector<Steps::Op>& list) {
    for (const Steps::Op& one : list) op(one);
  }

  void reduction(const Steps::Reduction& one, const std::string& notes = "") {
    const std::string join = join_names[static_cast<size_t>(one.join)];
    const std::string to = slot(one.out) + (one.stored >= 0 ? ", " + slot(one.stored) : "");
    if (one.merged)
      line(fmt::format("{} of {}", join, merged_text(one.merged, &Primitives::merged_join)), to,
           operands(one.in, one.type), one.line, notes);
    else
      line(fmt::format("{}.{}", join, text_of(one.type)), to, operand(one.operand, one.type), one.line, notes);
  }

  void edges(const Steps::EdgeReduction& one) {
    const std::string to = slot(one.totals[0]) + (one.stored >= 0 ? ", " + slot(one.stored) : "");
    line("edges.f32", to, slot(one.values), one.line, one.lanes < 0 ? "" : ", watched as they are made");
  }

  void spread(const Steps::Spread& one) {
    constexpr std::array from{"lanes", "positions", "segments", "positions of segments"};
    line(fmt::format("spread {}", from[static_cast<size_t>(one.from)]), slot(one.out), slot(one.in), one.line);
  }

  void once() {
    const size_t start = listed_.size();
    for (const auto& [to, extent] : steps_.counts) line("count", slot(to), "positions of " + sizes(extent));
    for (const Steps::Transfer& one : steps_.numbers) transfer("read", slot(one.slot), fmt::format("in{}", one.number));
    for (const int32_t zero : steps_.zeros) line("zero", slot(zero), "0");
    ops(steps_.once);
    for (const Steps::Spread& one : steps_.spread_once) spread(one);
    for (const Steps::Positions& one : steps_.positions)
      line(one.in_segment ? "position in segment" : "position", slot(one.out), sizes(one.extent));
    if (listed_.size() > start)
      listed_.insert(listed_.begin() + static_cast<std::ptrdiff_t>(start), ListedLine{"once in a call", -1, ""});
  }

  void level(size_t index) {
    const Steps::Level& level = steps_.levels[index];
    heading(fmt::format("level {}{}", index, level.only ? ", for rows " + condition(*level.only) : ""));
    ops(level.cells);
    for (const Steps::Classified& one : level.classified)
      line(fmt::format("classify.{}", text_of(one.type)), slot(one.out), slot(one.element) + ", " + slot(one.largest),
           one.line);
    ops(level.after);
    for (const Steps::Spread& one : level.spreads) spread(one);
    for (const Steps::Loop& loop : level.loops) {
      heading(fmt::format("  loop over {}{}{}", sizes(loop.extent), loop.searches ? ", searched for several rows" : "",
                          loop.only ? ", for rows " + condition(*loop.only) : ""));
      ops(loop.ops);
      const int32_t first_edges = number_;
      for (const Steps::EdgeReduction& one : loop.edges) edges(one);
      for (const Steps::Reduction& one : loop.reductions)
        reduction(one, one.edges < 0 ? "" : fmt::format(", told by {}", first_edges + one.edges));
    }
    for (const Steps::SegmentReduction& one : level.segments) {
      heading(fmt::format("  loop over segments of {}{}", sizes(one.extent), one.in_lanes ? ", one in each lane" : ""));
      reduction(one.of, one.whole ? ", of the row" : ", of each segment");
    }
  }

  const Steps& steps_;
  const std::vector<std::string>& lines_;
  std::vector<ListedLine> listed_;
  int32_t number_ = 0;
};

}  // namespace

void number_steps(Steps& steps) {
  size_t next = steps.counts.size() + steps.numbers.size() + steps.zeros.size() + steps.once.size() +
                steps.spread_once.size() + steps.positions.size();
  const auto take = [&](size_t count) { return std::exchange(next, next + count); };
  steps.first_read_step = take(steps.reads.size());
  for (Steps::Level& level : steps.levels) {
    level.first_step = take(level.cells.size() + level.classified.size() + level.after.size() + level.spreads.size());
    for (Steps::Loop& loop : level.loops)
      loop.first_step = take(loop.ops.size() + loop.edges.size() + loop.reductions.size());
    level.first_segment_step = take(level.segments.size());
  }
  steps.first_write_step = take(steps.writes.size());
  steps.count = next;
}

std::vector<ListedLine> Tape::listing(const std::vector<std::string>& lines) const {
  return Listing(*steps_, lines).run();
}

std::string text_of(const std::vector<ListedLine>& listing) {
  std::string text;
  for (const ListedLine& line : listing) text += line.text + "\n";
  return text;
}

}  // namespace triage::fused
