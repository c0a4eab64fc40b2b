#include "runtime/backends/fused/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace triage::fused {
namespace {

using Kind = LoopValue::Kind;

std::string stored_type(at::ScalarType dtype, const std::string& computed) {
  if (dtype == at::kHalf) return "half";
  if (dtype == at::kBFloat16) return "bfloat16";
  return dtype == at::kBool ? "uint8_t" : computed;
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

class Emitter {
 public:
  explicit Emitter(const Loops& loops) : loops_(loops), pass_(loops.values.size(), 0) {
    assign_passes();
    choose_kept();
  }

  std::vector<InPlace> in_place_choices() const {
    std::vector<InPlace> choices;
    for (const bool selections : {true, false})
      for (size_t output = 0; output < loops_.outputs.size(); ++output)
        for (size_t slot = 0; slot < loops_.inputs.size(); ++slot)
          if (const InPlace choice{output, slot}; can_be(choice) && is_selection(choice) == selections)
            choices.push_back(choice);
    return choices;
  }

  Emitted run(std::optional<InPlace> in_place) {
    in_place_ = in_place;
    if (!in_place_) choose_early();
    source_ = support_source();
    source_ += "\nusing namespace triage;\nusing namespace triage::fused;\n\n";
    source_ += call_struct();
    source_ +=
        "extern \"C\" __attribute__((visibility(\"default\"))) void triage_rows(const Call* call, int64_t begin, "
        "int64_t end) {\n";
    prologue();
    line(1, "for (int64_t row = begin; row < end; ++row) {");
    row_pointers();
    for (int pass = 0; pass <= last_pass_; ++pass) {
      row_values(pass);
      for (size_t extent = 0; extent < loops_.extents.size(); ++extent)
        element_loop(pass, static_cast<int32_t>(extent));
      for (size_t output = 0; output < loops_.outputs.size(); ++output)
        if (is_changed_later(output) && pass_of(loops_.outputs[output].value) == pass) changed_row(output, pass);
    }
    store_rows();
    line(1, "}");
    source_ += "}\n";
    return {std::move(source_), scratch_rows_};
  }

 private:
  const LoopValue& at(Ref ref) const { return loops_.values[static_cast<size_t>(ref)]; }
  bool is_element(Ref ref) const { return at(ref).place == Place::element; }
  void line(int depth, const std::string& text) {
    source_ += std::string(static_cast<size_t>(2 * depth), ' ') + text + "\n";
  }
  static std::string name(Ref ref) { return fmt::format("v{}", ref); }

  // --- what is computed when

  /// An element can be computed in its pass or any later one; a reduction runs in the pass of its operand, and what it gives
  /// belongs to the next.
  void assign_passes() {
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      int pass = 0;
      for (const Ref operand : loops_.values[i].operands) {
        const bool after_loop = at(operand).kind == Kind::reduce;
        pass = std::max(pass, pass_[static_cast<size_t>(operand)] + (after_loop ? 1 : 0));
      }
      pass_[i] = pass;
      last_pass_ = std::max(last_pass_, pass);
    }
  }
  int pass_of(Ref ref) const { return pass_[static_cast<size_t>(ref)]; }

  /// The element values that the loop of a pass has to produce: for its reductions, outputs and kept values.
  std::vector<Ref> roots(int pass, int32_t extent) const {
    std::vector<Ref> list;
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      if (value.kind == Kind::reduce && pass_[i] == pass && at(value.operands[0]).extent == extent)
        list.push_back(value.operands[0]);
    }
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (stores(i, pass, extent)) list.push_back(loops_.outputs[i].value);
    for (const auto& [output, input] : early_)
      if (pass == 0 && at(input).extent == extent) list.push_back(input);
    for (const auto& [ref, where] : kept_)
      if (where[0] == 'k' && at(ref).extent == extent && pass_of(ref) == pass) list.push_back(ref);
    return list;
  }

  /// Whether the loop of a pass over this extent writes output `i`.
  bool stores(size_t i, int pass, int32_t extent) const {
    const Ref ref = loops_.outputs[i].value;
    return !is_changed_later(i) && is_element(ref) && at(ref).extent == extent && pass_of(ref) == pass;
  }

  // --- what is fetched into the cache before it is needed: processors do so within a page of memory, and rows are many pages

  /// While one row is computed, the next one comes in: in the last pass that takes long, else in the last one. Memory that an
  /// output goes to is fetched in the pass before, where that has its row in the cache; by loops of one pass, for the next row.
  std::vector<std::string> fetched_ahead(int pass, int32_t extent) const {
    std::vector<std::string> list;
    if (last_pass_ == 0) return list;
    if (pass == pass_to_read_ahead(extent))
      for (const LoopValue& value : loops_.values)
        if (value.kind == Kind::input && value.place == Place::element && value.extent == extent &&
            loops_.inputs[static_cast<size_t>(value.slot)].form.kind == TensorForm::Kind::element)
          list.push_back(
              fmt::format("fetch_to_read(i{0} + first, row + 1 < end ? call->in_stride[{0}] : 0);", value.slot));
    for (size_t i = 0; i < loops_.outputs.size(); ++i) {
      const Ref ref = loops_.outputs[i].value;
      if (!is_element(ref) || at(ref).extent != extent || (in_place_ && in_place_->output == i)) continue;
      const int written = early_.count(i) ? 0 : pass_of(ref);
      int before = written - 1;
      while (before > 0 && roots(before, extent).empty()) --before;
      if (written == 0 && pass == 0)
        list.push_back(
            fmt::format("fetch_to_write(o{0} + first, row + 1 < end ? d{1} * (int64_t)sizeof(*o{0}) : 0);", i, extent));
      else if (before > 0 && pass == before)
        list.push_back(fmt::format("fetch_to_write(o{} + first, 0);", i));
    }
    return list;
  }

  int pass_to_read_ahead(int32_t extent) const {
    int last = 0;
    bool expensive = false;
    for (int pass = 0; pass <= last_pass_; ++pass) {
      const std::set<Ref> needed = needed_in(pass, extent);
      const bool slow = std::any_of(needed.begin(), needed.end(),
                                    [&](Ref ref) { return at(ref).expensive && !is_kept_before(ref, pass); });
      if (needed.empty() || (expensive && !slow)) continue;
      last = pass;
      expensive |= slow;
    }
    return last;
  }

  // --- an output in the place of an input

  Ref input_of(size_t slot) const {
    for (size_t i = 0; i < loops_.values.size(); ++i)
      if (at(static_cast<Ref>(i)).kind == Kind::input && at(static_cast<Ref>(i)).slot == static_cast<int32_t>(slot))
        return static_cast<Ref>(i);
    return -1;
  }

  bool can_be(const InPlace& choice) const {
    const TensorForm &out = loops_.outputs[choice.output].form, &in = loops_.inputs[choice.slot].form;
    if (out.kind != TensorForm::Kind::element || in.kind != out.kind || in.dtype != out.dtype ||
        in.extent != out.extent || in.rank != out.rank)
      return false;
    for (size_t slot = 0; slot < loops_.inputs.size(); ++slot)
      if (slot != choice.slot && loops_.inputs[slot].argument == loops_.inputs[choice.slot].argument) return false;
    const Ref input = input_of(choice.slot);
    const int written = pass_of(loops_.outputs[choice.output].value);
    for (int pass = written + 1; pass <= last_pass_; ++pass)
      for (size_t extent = 0; extent < loops_.extents.size(); ++extent)
        if (needed_in(pass, static_cast<int32_t>(extent)).count(input)) return false;
    for (size_t i = 0; i < loops_.values.size(); ++i) {  // these look at their row again
      const LoopValue& value = loops_.values[i];
      std::set<Ref> needed;
      if (value.kind == Kind::classify && pass_[i] > written) need(value.operands[0], pass_[i], needed);
      if (needed.count(input)) return false;
    }
    return true;
  }

  bool selects_rows(const LoopValue& value) const {
    return value.code.find(row_selection) != std::string::npos && at(value.operands[0]).place == Place::row;
  }

  /// The output is the input itself, but in rows where a condition holds.
  bool is_selection(const InPlace& choice) const {
    const LoopValue& value = at(loops_.outputs[choice.output].value);
    if (!selects_rows(value)) return false;
    const Ref input = input_of(choice.slot);
    return value.operands[1] == input || value.operands[2] == input;
  }

  /// What a selection takes in rows that stay as they are is written as it goes by in pass 0, where it is an input that is
  /// read there anyhow; only the others, which are rare, are written again.
  void choose_early() {
    for (size_t i = 0; i < loops_.outputs.size(); ++i) {
      const Ref ref = loops_.outputs[i].value;
      const LoopValue& value = at(ref);
      if (!is_element(ref) || pass_of(ref) == 0 || !selects_rows(value)) continue;
      const Ref input = value.operands[2];
      if (at(input).kind == Kind::input && is_element(input) && at(input).dtype == value.dtype &&
          needed_in(0, value.extent).count(input))
        early_[i] = input;
    }
  }

  /// Whether the rows of output `i` that stay as they are, are there before its pass.
  bool is_changed_later(size_t i) const {
    return early_.count(i) || (in_place_ && in_place_->output == i && is_selection(*in_place_));
  }

  void changed_row(size_t output, int pass) {
    const Ref ref = loops_.outputs[output].value;
    const bool else_input = early_.count(output) || at(ref).operands[2] == input_of(in_place_->slot);
    line(2, fmt::format("if (__builtin_expect({}{}, 0)) {{", else_input ? "" : "!", name(at(ref).operands[0])));
    source_ += "#pragma omp simd\n";
    line(3, fmt::format("for (int64_t i = 0; i < d{}; ++i) {{", at(ref).extent));
    std::set<Ref> needed;
    need(ref, pass, needed);
    body(needed, pass);
    line(4, fmt::format("o{}[i] = {};", output, to_store(at(ref).dtype, name(ref))));
    line(3, "}");
    line(2, "}");
  }

  /// All element values behind `root` that `pass` computes, in order; kept ones of earlier passes are read instead.
  void need(Ref root, int pass, std::set<Ref>& needed) const {
    if (!is_element(root) || !needed.insert(root).second) return;
    if (is_kept_before(root, pass)) return;
    for (const Ref operand : at(root).operands) need(operand, pass, needed);
  }
  bool is_kept_before(Ref ref, int pass) const { return kept_.count(ref) && pass_of(ref) < pass; }
  std::set<Ref> needed_in(int pass, int32_t extent) const {
    std::set<Ref> needed;
    for (const Ref root : roots(pass, extent)) need(root, pass, needed);
    return needed;
  }

  void choose_kept() {
    std::map<Ref, int> uses;
    for (int pass = 0; pass <= last_pass_; ++pass)
      for (size_t extent = 0; extent < loops_.extents.size(); ++extent)
        for (const Ref ref : needed_in(pass, static_cast<int32_t>(extent))) ++uses[ref];
    for (const auto& [ref, count] : uses) {
      if (!at(ref).expensive || count < 2) continue;
      const auto output = std::find_if(loops_.outputs.begin(), loops_.outputs.end(),
                                       [ref = ref](const LoopOutput& o) { return o.value == ref; });
      if (output != loops_.outputs.end())
        kept_[ref] = fmt::format("o{}", output - loops_.outputs.begin());
      else
        kept_[ref] = fmt::format("k{}", scratch_rows_++);
    }
  }

  // --- text

  static std::string call_struct() {
    return "struct Call { const void* const* in; const int64_t* in_stride; void* const* out; const int64_t* extents; "
           "char* scratch; };\n\n";
  }

  void prologue() {
    for (size_t i = 0; i < loops_.extents.size(); ++i)
      line(1, fmt::format("const int64_t d{0} = call->extents[{0}];", i));
    if (scratch_rows_ > 0) {
      line(1, "int64_t longest = 0;");
      for (size_t i = 0; i < loops_.extents.size(); ++i)
        line(1, fmt::format("longest = d{0} > longest ? d{0} : longest;", i));
    }
    if (last_pass_ > 0) {
      line(1, "bool ahead = true;");  // of rows that leave room for others in the cache
      for (size_t i = 0; i < loops_.extents.size(); ++i) line(1, fmt::format("ahead &= d{} <= 4096;", i));
    }
    for (const auto& [ref, where] : kept_)
      if (where[0] == 'k')
        line(1, fmt::format("auto* const __restrict {0} = ({1}*)(call->scratch + {2} * 8 * longest);", where,
                            stored_type(at(ref).dtype, at(ref).type), where.substr(1)));
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      if (value.place != Place::number) continue;
      line(1, fmt::format("const {} {} = {};", value.type, name(static_cast<Ref>(i)),
                          value.kind == Kind::input
                              ? loaded(value.dtype, fmt::format("*(const {}*)call->in[{}]",
                                                                stored_type(value.dtype, value.type), value.slot))
                              : expression(static_cast<Ref>(i))));
    }
  }

  void row_pointers() {
    for (const LoopValue& value : loops_.values) {
      if (value.kind != Kind::input || value.place == Place::number) continue;
      const std::string at_row = fmt::format("(const char*)call->in[{0}] + row * call->in_stride[{0}]", value.slot);
      const bool record = value.type.rfind("Record", 0) == 0;
      const bool shared = in_place_ && static_cast<int32_t>(in_place_->slot) == value.slot;
      line(2, fmt::format("const auto* const {}i{} = (const {}*)({});", shared ? "" : "__restrict ", value.slot,
                          record ? "void" : stored_type(value.dtype, value.type), at_row));
    }
    for (size_t i = 0; i < loops_.outputs.size(); ++i) {
      const LoopValue& value = at(loops_.outputs[i].value);
      if (value.place == Place::element)
        line(2, fmt::format("auto* const {3}o{0} = ({1}*)call->out[{0}] + row * d{2};", i,
                            stored_type(value.dtype, value.type), value.extent,
                            in_place_ && in_place_->output == i ? "" : "__restrict "));
    }
  }

  std::string expression(Ref ref) const {
    const LoopValue& value = at(ref);
    std::string text;
    for (size_t i = 0; i < value.code.size(); ++i) {
      if (value.code[i] != '{') {
        text += value.code[i];
        continue;
      }
      const size_t close = value.code.find('}', i);
      text += name(value.operands[std::stoul(value.code.substr(i + 1, close - i - 1))]);
      i = close;
    }
    return text;
  }

  void row_values(int pass) {
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      const Ref ref = static_cast<Ref>(i);
      if (value.place != Place::row || pass_[i] != pass || value.kind == Kind::reduce) continue;
      if (value.kind == Kind::classify)
        classify(ref);
      else
        line(2, fmt::format("const {} {} = {};", value.type, name(ref),
                            value.kind == Kind::input ? row_input(value) : expression(ref)));
    }
  }

  static std::string row_input(const LoopValue& value) {
    if (value.type.rfind("Record", 0) == 0) return fmt::format("{}::from(i{})", value.type, value.slot);
    return loaded(value.dtype, fmt::format("*i{}", value.slot));
  }

  /// The largest magnitude tells all but whether there is an Inf beside a NaN: such a row, which is rare, is looked at once
  /// more.
  void classify(Ref ref) {
    const Ref element = at(ref).operands[0], largest = at(ref).operands[1];
    line(2, fmt::format("uint32_t {}inf = tells_inf({});", name(ref), name(largest)));
    line(2, fmt::format("if (__builtin_expect(tells_nan({}), 0)) {{", name(largest)));
    source_ += fmt::format("#pragma omp simd reduction(|:{}inf)\n", name(ref));
    line(3, fmt::format("for (int64_t i = 0; i < d{}; ++i) {{", at(element).extent));
    std::set<Ref> needed;
    need(element, pass_of(ref), needed);
    body(needed, pass_of(ref));
    line(4, fmt::format("{0}inf |= is_inf({1});", name(ref), name(element)));
    line(3, "}");
    line(2, "}");
    line(2, fmt::format("const NonFinite {0} = {{tells_nan({1}), {0}inf != 0}};", name(ref), name(largest)));
  }

  /// `guard`: in front of what is read, where not every position is there.
  void body(const std::set<Ref>& needed, int pass, const std::string& guard = "") {
    for (const Ref ref : needed) {
      const LoopValue& value = at(ref);
      std::string code = expression(ref);
      if (is_kept_before(ref, pass) || value.kind == Kind::input) {
        const std::string from = is_kept_before(ref, pass) ? kept_.at(ref) : fmt::format("i{}", value.slot);
        code = loaded(value.dtype, from + "[i]");
        if (!guard.empty()) code = guard + " ? " + code + " : 0";
      }
      line(4, fmt::format("const {} {} = {};", value.type, name(ref), code));
    }
  }

  void element_loop(int pass, int32_t extent) {
    if (roots(pass, extent).empty()) return;
    std::vector<Ref> reductions;
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      if (value.kind == Kind::reduce && pass_[i] == pass && at(value.operands[0]).extent == extent)
        reductions.push_back(static_cast<Ref>(i));
    }
    const std::vector<std::string> fetched = fetched_ahead(pass, extent);
    if (reductions.empty() && fetched.empty()) {
      source_ += "#pragma omp simd\n";
      line(2, fmt::format("for (int64_t i = 0; i < d{}; ++i) {{", extent));
      positions(pass, extent, reductions, "", "");
      line(2, "}");
    } else if (reductions.empty()) {
      line(2, "{");
      line(2, "int64_t first = 0;");
      lanes(fmt::format("d{}", extent), pass, extent, reductions, fetched);
      line(2, "}");
    } else {
      joined_positions(pass, extent, reductions, fetched);
    }
  }

  /// Blocks of positions go into lanes (support/lanes.h). Sums of blocks are added up as doubles: in one float a lane would
  /// lose a row of a million elements.
  void joined_positions(int pass, int32_t extent, const std::vector<Ref>& reductions,
                        const std::vector<std::string>& fetched) {
    for (const Ref ref : reductions)
      line(2, fmt::format("{} {}total = {};", total_type(ref), name(ref), at(ref).start));
    line(2, fmt::format("for (int64_t block = 0; block < d{}; block += 2048) {{", extent));
    line(2, fmt::format("const int64_t end_of_block = block + 2048 < d{0} ? block + 2048 : d{0};", extent));
    for (const Ref ref : reductions) {
      line(2, fmt::format("{} {}lanes[lane_count];", at(ref).type, name(ref)));
      line(2, fmt::format("for (auto& lane : {}lanes) lane = {};", name(ref), at(ref).start));
    }
    line(2, "int64_t first = block;");
    lanes("end_of_block", pass, extent, reductions, fetched);
    for (const Ref ref : reductions) {
      const auto& [join, text] = joins().at(at(ref).join);
      const std::string block = fmt::format("joined<{}>({}lanes, end_of_block - block)", join, name(ref));
      line(2, fmt::format("const {0} {1}block = {2};", at(ref).type, name(ref), block));
      line(2, fmt::format("{0}total = {1};", name(ref),
                          fmt::format(fmt::runtime(text), name(ref) + "total", name(ref) + "block")));
    }
    line(2, "}");
    for (const Ref ref : reductions) line(2, fmt::format("const {1} {0} = ({1}){0}total;", name(ref), at(ref).type));
  }

  /// The positions from `first` to `end`, as many at a time as there are lanes. Of the rest 16 at a time, of which the last may
  /// not all be there: they are computed from zeros and left out, since to load a vector that was stored in pieces takes long.
  void lanes(const std::string& end, int pass, int32_t extent, const std::vector<Ref>& reductions,
             const std::vector<std::string>& fetched) {
    line(2, fmt::format("for (; first + lane_count <= {}; first += lane_count) {{", end));
    for (const std::string& code : fetched) line(3, "if (ahead) " + code);
    simd_loop("int64_t lane = 0; lane < lane_count", [&] { positions(pass, extent, reductions, "lane", ""); });
    line(2, "}");
    line(2, fmt::format("for (int64_t offset = 0; first < {}; first += 16, offset += 16) {{", end));
    line(3, fmt::format("const int32_t count = {0} - first < 16 ? {0} - first : 16;", end));
    simd_loop("int32_t lane = 0; lane < 16",
              [&] { positions(pass, extent, reductions, "offset + lane", "lane < count"); });
    line(2, "}");
  }

  template <class Body>
  void simd_loop(const char* lanes, const Body& body) {
    source_ += "#pragma omp simd\n";
    line(3, fmt::format("for ({}; ++lane) {{", lanes));
    line(4, "const int64_t i = first + lane;");
    body();
    line(3, "}");
  }

  /// What is done at position `i`, which is lane `lane` of its block, and there where `guard` holds.
  void positions(int pass, int32_t extent, const std::vector<Ref>& reductions, const std::string& lane,
                 const std::string& guard) {
    body(needed_in(pass, extent), pass, guard);
    const auto guarded = guard.empty() ? "" : "if (" + guard + ") ";
    for (const Ref ref : reductions) {
      const std::string so_far = fmt::format("{}lanes[{}]", name(ref), lane), one = name(ref) + "one";
      const std::string both = fmt::format(fmt::runtime(joins().at(at(ref).join).second), so_far, one);
      line(4, fmt::format("const {} {} = {};", at(ref).join == "|" ? "bool" : at(ref).type, one, expression(ref)));
      line(4, so_far + " = " + (guard.empty() ? both : fmt::format("{} ? ({}) : {}", guard, both, so_far)) + ";");
    }
    const auto store = [&](const std::string& where, Ref ref) {
      line(4, fmt::format("{}{}[i] = {};", guarded, where, to_store(at(ref).dtype, name(ref))));
    };
    for (const auto& [ref, where] : kept_)
      if (where[0] == 'k' && at(ref).extent == extent && pass_of(ref) == pass) store(where, ref);
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (stores(i, pass, extent)) store(fmt::format("o{}", i), loops_.outputs[i].value);
    for (const auto& [output, input] : early_)
      if (pass == 0 && at(input).extent == extent) store(fmt::format("o{}", output), input);
  }

  /// For each way to join: its type in support/lanes.h, and how one more value {1} joins {0}.
  static const std::map<std::string, std::pair<std::string, std::string>>& joins() {
    static const std::map<std::string, std::pair<std::string, std::string>> all = {
        {"+", {"Sum", "{0} + {1}"}},
        {"max", {"Largest", "{1} > {0} ? {1} : {0}"}},
        {"min", {"Smallest", "{1} < {0} ? {1} : {0}"}},
        {"|", {"Any", "{1} ? 1 : {0}"}},
    };
    return all;
  }
  std::string total_type(Ref ref) const {
    return at(ref).join == "+" && at(ref).type != "int64_t" ? "double" : at(ref).type;
  }

  void store_rows() {
    for (size_t i = 0; i < loops_.outputs.size(); ++i) {
      const Ref ref = loops_.outputs[i].value;
      const LoopValue& value = at(ref);
      if (value.place == Place::element) continue;
      if (value.type.rfind("Record", 0) == 0)
        line(2, fmt::format("{}.store((char*)call->out[{}] + row * sizeof({}));", name(ref), i, name(ref)));
      else
        line(2, fmt::format("(({}*)call->out[{}])[row] = {};", stored_type(value.dtype, value.type), i,
                            to_store(value.dtype, name(ref))));
    }
  }

  const Loops& loops_;
  std::vector<int> pass_;
  int last_pass_ = 0;
  std::map<Ref, std::string> kept_;  // values read again in a later pass: "k3" in scratch memory, "o1" in an output
  int64_t scratch_rows_ = 0;
  std::optional<InPlace> in_place_;
  std::map<size_t, Ref> early_;  // outputs that are a selection, and the input they mostly are
  std::string source_;
};

}  // namespace

std::vector<InPlace> in_place_choices(const Loops& loops) { return Emitter(loops).in_place_choices(); }

Emitted emit(const Loops& loops, std::optional<InPlace> in_place) { return Emitter(loops).run(in_place); }

}  // namespace triage::fused
