#include "runtime/backends/fused/loops/gpu_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/backends/fused/loops/expression.h"
#include "runtime/backends/fused/loops/schedule.h"

namespace triage::fused {
namespace {

using Kind = LoopValue::Kind;

constexpr size_t most_reductions = 8;  // of one pass: what they come to is in shared memory

// --- how values stand in memory

std::string stored_type(const LoopValue& value) {
  if (value.dtype == at::kHalf) return "half";
  if (value.dtype == at::kBFloat16) return "bfloat16";
  return value.dtype == at::kBool ? "uint8_t" : type_code(value);
}

std::string loaded(at::ScalarType dtype, const std::string& from) {
  return dtype == at::kBool                             ? from + " != 0"
         : dtype == at::kHalf || dtype == at::kBFloat16 ? "widen(" + from + ")"
                                                        : from;
}

std::string to_store(at::ScalarType dtype, const std::string& value) {
  if (dtype == at::kHalf) return "to_half(" + value + ")";
  if (dtype == at::kBFloat16) return "to_bfloat16(" + value + ")";
  return value;
}

bool is_record(const LoopValue& value) { return value.type == Type::record; }

/// For each Join: its type in support/joins.h, and how one more value {1} joins {0}.
struct JoinRow {
  const char *type, *code;
};
constexpr JoinRow joins_in_code[] = {{"Sum", "{0} + {1}"},
                                     {"Product", "{0} * {1}"},
                                     {"Largest", "{1} > {0} ? {1} : {0}"},
                                     {"Smallest", "{1} < {0} ? {1} : {0}"},
                                     {"Any", "{1} ? 1 : {0}"}};

/// A loop over the positions of a row.
struct Run {
  Schedule::Time now;
  int32_t extent;
};

class GpuText {
 public:
  GpuText(const Loops& loops, Lanes lanes) : loops_(loops), lanes_(lanes), plan_(loops, /*keeps=*/false) {
    if (lanes == Lanes::positions) plan_.choose_early();
  }

  bool fits() const { return most_at_once() <= most_reductions; }

  GpuSource run() {
    std::string parameters = begin();
    numbers();
    rows();
    for (int pass = 0; pass <= plan_.last_pass(); ++pass) {
      row_values(pass);
      for (const int32_t extent : plan_.order()) element_loop(pass, extent);
      for (size_t output = 0; output < loops_.outputs.size(); ++output)
        if (plan_.is_changed_later(output) && plan_.pass_of(loops_.outputs[output].value) == pass)
          changed_row(output, pass);
    }
    store_rows();
    source_ += "}\n";
    return {std::move(source_), std::move(parameters), joins()};
  }

 private:
  // --- the text

  const LoopValue& at(Ref ref) const { return plan_.at(ref); }
  bool is_element(Ref ref) const { return plan_.is_element(ref); }
  void line(int depth, const std::string& text) {
    source_ += std::string(static_cast<size_t>(2 * depth), ' ') + text + "\n";
  }
  /// How a value is read.
  std::string name(Ref ref) const {
    return plan_.is_inlined(ref) ? "(" + expression(ref) + ")" : "v" + std::to_string(ref);
  }
  /// A value as C++; of a reduction, what it joins.
  std::string expression(Ref ref) const {
    return fused::expression(loops_, plan_.inlined(), ref, [this](Ref operand) { return name(operand); });
  }
  void constant(int depth, Ref ref, const std::string& code) {
    line(depth, "const " + type_code(at(ref)) + " " + name(ref) + " = " + code + ";");
  }
  std::string row_type(Ref ref) const { return is_record(at(ref)) ? "void" : stored_type(at(ref)); }
  /// What is read of a row's value that lies at `memory` (the address of a record, else the value itself).
  std::string row_input(Ref ref, const std::string& memory) const {
    return is_record(at(ref)) ? fmt::format("{}::from({})", type_code(at(ref)), memory) : loaded(at(ref).dtype, memory);
  }
  /// Stores what belongs to a row.
  std::string stored_row(size_t output) const {
    const Ref ref = loops_.outputs[output].value;
    if (is_record(at(ref))) return fmt::format("{0}.store((char*)out{1} + row * sizeof({0}));", name(ref), output);
    return fmt::format("(({}*)out{})[row] = {};", stored_type(at(ref)), output, to_store(at(ref).dtype, name(ref)));
  }
  /// The type that a reduction is added up in, over blocks of positions.
  std::string total_type(Ref ref) const {
    return at(ref).join == Join::sum && is_real(at(ref).type) ? "double" : type_code(at(ref));
  }
  /// Of one more value, before it joins.
  std::string one_type(Ref ref) const { return at(ref).join == Join::any ? "bool" : type_code(at(ref)); }
  std::string start(Ref ref) const { return literal_code(at(ref).type, start_of(at(ref).join, at(ref).type)); }
  std::string join_type(Ref ref) const { return joins_in_code[static_cast<size_t>(at(ref).join)].type; }
  /// How one more value joins what there is, by reduction `ref`.
  std::string join(Ref ref, const std::string& so_far, const std::string& one) const {
    return fmt::format(fmt::runtime(joins_in_code[static_cast<size_t>(at(ref).join)].code), so_far, one);
  }

  // --- its parts

  bool of_threads() const { return lanes_ == Lanes::positions; }  // else a thread has a row
  bool joins() const { return most_at_once() > 0; }

  size_t most_at_once() const {
    size_t most = 0;
    for (int pass = 0; pass <= plan_.last_pass(); ++pass)
      for (const int32_t extent : plan_.order()) {
        const std::vector<Ref> reductions = plan_.reductions({pass, 0}, extent);
        most = std::max(most, reductions.size() + classified(reductions).size());
      }
    return most;
  }

  std::string begin() {
    std::string list, kinds;
    const auto parameter = [&](char kind, const std::string& text) {
      list += (list.empty() ? "" : ", ") + text;
      kinds += kind;
    };
    for (size_t i = 0; i < loops_.inputs.size(); ++i) {
      parameter('p', fmt::format("const void* __restrict__ p{}", i));
      parameter('n', fmt::format("const int64_t stride{}", i));
      parameter('n', fmt::format("const int64_t jump{}", i));
    }
    for (size_t i = 0; i < loops_.outputs.size(); ++i) parameter('o', fmt::format("void* __restrict__ out{}", i));
    for (size_t i = 0; i < loops_.extents.size(); ++i) parameter('n', fmt::format("const int64_t d{}", i));
    parameter('n', "const int64_t rows");
    parameter('n', "const int64_t block_of_rows");
    source_ +=
        "\nusing namespace triage;\nusing namespace triage::fused;\n\nTRIAGE_KERNEL triage_kernel(" + list + ") {\n";
    return kinds;
  }

  /// Declares the numbers of a call.
  void numbers() {
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const Ref ref = static_cast<Ref>(i);
      if (at(ref).place != Place::number || plan_.is_inlined(ref)) continue;
      const std::string memory = fmt::format("number<{0}>(p{1}, stride{1})", stored_type(at(ref)), at(ref).slot);
      constant(1, ref, at(ref).kind == Kind::input ? loaded(at(ref).dtype, memory) : expression(ref));
    }
  }

  /// Threads beyond the last row compute that once more, since those of a warp wait for each other.
  void rows() {
    if (of_threads()) {
      line(1, fmt::format("const RowThreads threads = RowThreads::of_this({});", joins()));
      if (joins()) line(1, fmt::format("TRIAGE_SHARED Parts<{}> parts;", most_at_once()));
      line(1, "const int64_t own_row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threads.row_in_block;");
      line(1, "const int64_t row = own_row < rows ? own_row : rows - 1;");
    } else {
      line(1, "const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;");
      line(1, "if (row >= rows) return;");
    }
    line(1, "const int64_t jumps = row / block_of_rows;");
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      if (value.kind == Kind::input && value.place != Place::number)
        line(1, fmt::format("const auto* const __restrict__ i{0} = (const {1}*)((const char*)p{0} + row * stride{0} + "
                            "jumps * jump{0});",
                            value.slot, row_type(static_cast<Ref>(i))));
    }
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (const LoopValue& value = at(loops_.outputs[i].value); value.place == Place::element)
        line(1, fmt::format("auto* const __restrict__ o{0} = ({1}*)out{0} + row * d{2};", i, stored_type(value),
                            value.extent));
  }

  /// What belongs to a row and is computed in that pass, reductions aside.
  void row_values(int pass) {
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const Ref ref = static_cast<Ref>(i);
      if (at(ref).place != Place::row || at(ref).kind == Kind::reduce || plan_.is_inlined(ref) ||
          plan_.pass_of(ref) != pass)
        continue;
      const std::string memory = fmt::format(fmt::runtime(is_record(at(ref)) ? "i{}" : "load(i{})"), at(ref).slot);
      if (at(ref).kind == Kind::classify)
        classify(ref);
      else
        constant(1, ref, at(ref).kind == Kind::input ? row_input(ref, memory) : expression(ref));
    }
  }

  void classify(Ref ref) {
    line(1, fmt::format("const NonFinite {0} = {{tells_nan({1}), {0}inf}};", name(ref), name(at(ref).operands[1])));
  }

  /// Values that tell NaN and Inf in a row apart, whose largest magnitude this loop finds. The CPU looks for an Inf
  /// only where there is a NaN as well; here that look would take as long as the whole row, and the comparison takes
  /// nothing.
  std::vector<Ref> classified(const std::vector<Ref>& reductions) const {
    std::vector<Ref> list;
    for (size_t i = 0; i < loops_.values.size(); ++i)
      if (const LoopValue& value = loops_.values[i]; value.kind == Kind::classify)
        if (std::find(reductions.begin(), reductions.end(), value.operands[1]) != reductions.end())
          list.push_back(static_cast<Ref>(i));
    return list;
  }

  void changed_row(size_t output, int pass) {
    const Ref ref = loops_.outputs[output].value;
    line(1, fmt::format("if ({}) {{", name(at(ref).operands[0])));
    line(2, fmt::format("each_position<4>(threads, d{}, [&](int64_t i) {{", at(ref).extent));
    element_at(ref, pass);
    line(3, fmt::format("o{}[i] = {};", output, to_store(at(ref).dtype, name(ref))));
    line(2, "});");
    line(1, "}");
  }

  /// An element at position i, by itself.
  void element_at(Ref element, int pass) {
    const Run run{{pass, 0}, at(element).extent};
    std::set<Ref> needed;
    plan_.need(element, run.now, run.extent, needed);
    body(needed);
  }

  void body(const std::set<Ref>& needed) {
    for (const Ref ref : needed) {
      std::string code = expression_of(ref);
      if (const std::string rows = rows_that_read(ref, needed); !rows.empty()) code = rows + " ? " + code + " : 0";
      constant(3, ref, code);
    }
  }
  std::string expression_of(Ref ref) const {
    if (at(ref).kind != Kind::input) return expression(ref);
    return loaded(at(ref).dtype, fmt::format("load(i{} + i)", at(ref).slot));
  }

  /// Of an input that is there to be picked in some rows alone, a condition for these: others need not wait for memory.
  /// Empty where all need it.
  std::string rows_that_read(Ref input, const std::set<Ref>& needed) const {
    std::string condition;
    if (at(input).kind != Kind::input) return condition;
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const Ref user = static_cast<Ref>(i);
      const Refs& operands = at(user).operands;
      if (std::find(operands.begin(), operands.end(), input) == operands.end()) continue;
      if (at(user).kind == Kind::map && !plan_.is_inlined(user) && !needed.count(user)) continue;  // of another pass
      const bool picks = at(user).is(Opcode::pick) && !plan_.is_inlined(user) && at(operands[0]).place == Place::row &&
                         operands[1] == input && operands[2] != input;
      if (!picks || (!condition.empty() && condition != name(operands[0]))) return "";
      condition = name(operands[0]);
    }
    const auto stores = [&](const auto& output) { return output.value == input; };
    const auto stores_early = [&](const auto& early) { return early.second == input; };
    const bool stored = std::any_of(loops_.outputs.begin(), loops_.outputs.end(), stores) ||
                        std::any_of(plan_.early().begin(), plan_.early().end(), stores_early);
    return stored ? "" : condition;
  }

  /// Of cheap values many loads may be under way; what takes long fills the time by itself, and its text is long
  /// enough.
  int at_once(const Run& run) const {
    const std::set<Ref> needed = plan_.needed_in(run.now, run.extent);
    return std::any_of(needed.begin(), needed.end(), [&](Ref ref) { return at(ref).expensive; }) ? 2 : 8;
  }

  void element_loop(int pass, int32_t extent) {
    const Run run{{pass, 0}, extent};
    if (plan_.roots(run.now, extent).empty()) return;
    const std::vector<Ref> reductions = plan_.reductions(run.now, extent);
    if (!of_threads())
      own_row(run, reductions);
    else if (reductions.empty())
      positions_alone(run);
    else
      joined_positions(run, reductions);
  }

  void positions_alone(const Run& run) {
    line(1, fmt::format("each_position<{}>(threads, d{}, [&](int64_t i) {{", at_once(run), run.extent));
    positions(run, {}, "");
    line(1, "});");
  }

  void own_row(const Run& run, const std::vector<Ref>& reductions) {
    for (const Ref ref : reductions) line(1, fmt::format("{} {} = {};", type_code(at(ref)), name(ref), start(ref)));
    for (const Ref ref : classified(reductions)) line(1, fmt::format("bool {}inf = false;", name(ref)));
    line(1, fmt::format("for (int64_t i = 0; i < d{}; ++i) {{", run.extent));
    positions(run, reductions, "");
    line(1, "}");
  }

  void joined_positions(const Run& run, const std::vector<Ref>& reductions) {
    const std::vector<Ref> others = classified(reductions);
    for (const Ref ref : reductions) line(1, fmt::format("{} {}total = {};", total_type(ref), name(ref), start(ref)));
    for (const Ref ref : others) line(1, fmt::format("bool {}inf = false;", name(ref)));
    line(1, fmt::format("each_round(threads, d{}, [&](int64_t first, int64_t blocks) {{", run.extent));
    line(1, "for (int round = 0; round < most_rounds; ++round) {");
    line(2, "const int64_t block = first + round * threads.warps + threads.warp;");
    line(2, "if (block >= first + blocks) break;");
    for (const Ref ref : reductions) {
      line(2, fmt::format("{} {}lanes[lanes_of_thread];", type_code(at(ref)), name(ref)));
      line(2, fmt::format("for (auto& lane : {}lanes) lane = {};", name(ref), start(ref)));
    }
    for (const Ref ref : others) line(2, fmt::format("bool {}inflanes[lanes_of_thread] = {{}};", name(ref)));
    line(2,
         fmt::format("each_position<{}>(threads, block, d{}, [&](int64_t i, int lane) {{", at_once(run), run.extent));
    positions(run, reductions, "lanes[lane]");
    line(2, "});");
    for (size_t i = 0; i < reductions.size(); ++i)
      line(2, fmt::format("parts.keep<{}>({}, threads, round, {}lanes);", join_type(reductions[i]), i,
                          name(reductions[i])));
    for (size_t i = 0; i < others.size(); ++i)
      line(2, fmt::format("parts.keep<Any>({}, threads, round, {}inflanes);", reductions.size() + i, name(others[i])));
    line(1, "}");
    line(1, "parts.gather(threads);");
    for (size_t i = 0; i < reductions.size(); ++i)
      line(1, fmt::format("parts.join<{0}, {1}>({2}, threads, blocks, {3}total);", join_type(reductions[i]),
                          type_code(at(reductions[i])), i, name(reductions[i])));
    for (size_t i = 0; i < others.size(); ++i)
      line(1,
           fmt::format("parts.join<Any, bool>({}, threads, blocks, {}inf);", reductions.size() + i, name(others[i])));
    line(1, "threads.wait();");
    line(1, "});");
    for (const Ref ref : reductions)
      line(1, fmt::format("const {1} {0} = ({1}){0}total;", name(ref), type_code(at(ref))));
  }

  /// What is done at position `i`. `lane`: behind the name of a reduction, what joins it.
  void positions(const Run& run, const std::vector<Ref>& reductions, const std::string& lane) {
    body(plan_.needed_in(run.now, run.extent));
    for (const Ref ref : reductions) {
      const std::string so_far = name(ref) + lane, one = name(ref) + "one";
      line(3, fmt::format("const {} {} = {};", one_type(ref), one, expression(ref)));
      line(3, fmt::format("{} = {};", so_far, join(ref, so_far, one)));
    }
    for (const Ref ref : classified(reductions))
      line(3, fmt::format("{0}inf{1} |= is_inf({2});", name(ref), lane, name(at(ref).operands[0])));
    const auto store = [&](size_t output, Ref ref) {
      line(3, fmt::format("o{}[i] = {};", output, to_store(at(ref).dtype, name(ref))));
    };
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (plan_.stores(i, run.now, run.extent)) store(i, loops_.outputs[i].value);
    for (const auto& [output, input] : plan_.early())
      if (run.now == Schedule::Time{} && at(input).extent == run.extent) store(output, input);
  }

  void store_rows() {
    if (of_threads()) line(1, "if (!threads.is_first()) return;");
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (!is_element(loops_.outputs[i].value)) line(1, stored_row(i));
  }

  const Loops& loops_;
  const Lanes lanes_;
  Schedule plan_;
  std::string source_;
};

bool has_segments(const Loops& loops) {
  return std::any_of(loops.extents.begin(), loops.extents.end(),
                     [](const RowExtent& extent) { return extent.segments >= 0; });
}

}  // namespace

bool can_run_on_gpu(const Loops& loops) { return !has_segments(loops) && GpuText(loops, Lanes::positions).fits(); }

GpuSource emit_for_gpu(const Loops& loops, Lanes lanes) { return GpuText(loops, lanes).run(); }

}  // namespace triage::fused
