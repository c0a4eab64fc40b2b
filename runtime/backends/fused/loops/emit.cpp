// Loops whose lanes go through the positions of a row, or of a segment of it.
#include "runtime/backends/fused/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/backends/fused/loops/loop_text.h"
#include "runtime/backends/fused/loops/row_lanes.h"
#include "runtime/backends/fused/loops/segment_lanes.h"

namespace triage::fused {
namespace {

using Kind = LoopValue::Kind;
using Time = Schedule::Time;

class Emitter : public LoopText {
 public:
  Emitter(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place) : LoopText(loops, lanes) {
    const auto by_position = [](const Extent& extent) { return extent.inner < 0; };
    if (in_place)
      plan_.write_in_place(*in_place);
    else if (lanes == Lanes::positions && std::all_of(loops.extents.begin(), loops.extents.end(), by_position))
      plan_.choose_early();
  }

  Emitted run() {
    begin();
    line(1, "for (int64_t row = begin; row < end; ++row) {");
    row_pointers();
    for (int pass = 0; pass <= plan_.last_pass(); ++pass) {
      row_values(pass);
      for (const int32_t extent : plan_.order())
        if (runs_in_lanes(pass, extent))
          SegmentLanes(*this, pass, extent).write();
        else if (plan_.has_segments(pass, extent))
          segments_loop(pass, extent);
        else
          element_loop({{pass, 0}, extent, fmt::format("d{}", extent), false});
      for (size_t output = 0; output < loops_.outputs.size(); ++output)
        if (plan_.is_changed_later(output) && plan_.pass_of(loops_.outputs[output].value) == pass)
          changed_row(output, pass);
    }
    store_rows();
    line(1, "}");
    source_ += "}\n";
    return {std::move(source_), scratch_rows(), scratch_sizes()};
  }

 private:
  // --- what is fetched into the cache before it is needed: processors do so within a page of memory, and rows are many pages

  /// While one row is computed, the next one comes in: in the last pass that takes long, else in the last one. Memory that an
  /// output goes to is fetched in the pass before, where that has its row in the cache; by loops of one pass, for the next row.
  std::vector<std::string> fetched_ahead(int pass, int32_t extent) const {
    std::vector<std::string> list;
    if (plan_.last_pass() == 0 || lanes_ != Lanes::positions) return list;
    const Busy& busy = busy_passes(extent);
    if (pass == busy.reads_ahead)
      for (const LoopValue& value : loops_.values)
        if (value.kind == Kind::input && value.place == Place::element && value.extent == extent &&
            loops_.inputs[static_cast<size_t>(value.slot)].form.kind == TensorForm::Kind::element)
          list.push_back(
              fmt::format("fetch_to_read(i{0} + first, row + 1 < end ? call->in_stride[{0}] : 0);", value.slot));
    for (size_t i = 0; i < loops_.outputs.size(); ++i) {
      const Ref ref = loops_.outputs[i].value;
      if (!is_element(ref) || at(ref).extent != extent || (plan_.in_place() && plan_.in_place()->output == i)) continue;
      const int written = plan_.early().count(i) ? 0 : plan_.pass_of(ref);
      int before = written - 1;
      while (before > 0 && !busy.passes[static_cast<size_t>(before)]) --before;
      if (written == 0 && pass == 0)
        list.push_back(
            fmt::format("fetch_to_write(o{0} + first, row + 1 < end ? d{1} * (int64_t)sizeof(*o{0}) : 0);", i, extent));
      else if (before > 0 && pass == before)
        list.push_back(fmt::format("fetch_to_write(o{} + first, 0);", i));
    }
    return list;
  }

  /// Which passes compute something in the loop over an extent, and the one in which the next row comes in.
  struct Busy {
    std::vector<bool> passes;
    int reads_ahead = 0;
  };
  const Busy& busy_passes(int32_t extent) const {
    const auto [place, fresh] = busy_.try_emplace(extent);
    Busy& busy = place->second;
    if (!fresh) return busy;
    bool expensive = false;
    for (int pass = 0; pass <= plan_.last_pass(); ++pass) {
      const std::set<Ref> needed = plan_.needed_in(pass, extent);
      const bool slow = std::any_of(needed.begin(), needed.end(), [&](Ref ref) {
        return at(ref).expensive && !plan_.is_kept_before(ref, {pass, 0}, extent);
      });
      busy.passes.push_back(!needed.empty());
      if (needed.empty() || (expensive && !slow)) continue;
      busy.reads_ahead = pass;
      expensive |= slow;
    }
    return busy;
  }

  void row_pointers() {
    for (size_t i = 0; i < loops_.values.size(); ++i) {
      const LoopValue& value = loops_.values[i];
      if (value.kind != Kind::input || value.place == Place::number) continue;
      const std::string at_row = fmt::format("(const char*)call->in[{0}] + row * call->in_stride[{0}]", value.slot);
      const bool shared = plan_.in_place() && static_cast<int32_t>(plan_.in_place()->slot) == value.slot;
      line(2, fmt::format("const auto* const {}i{} = (const {}*)({});", shared ? "" : "__restrict ", value.slot,
                          row_type(static_cast<Ref>(i)), at_row));
    }
    for (size_t i = 0; i < loops_.outputs.size(); ++i) {
      const LoopValue& value = at(loops_.outputs[i].value);
      if (value.place == Place::element)
        line(2, fmt::format("auto* const {3}o{0} = ({1}*)call->out[{0}] + row * d{2};", i, stored_type(value),
                            value.extent, plan_.in_place() && plan_.in_place()->output == i ? "" : "__restrict "));
    }
  }

  void row_values(int pass) {
    for (const Ref ref : row_values_of(pass)) {
      const std::string memory = fmt::format("{}i{}", is_record(at(ref)) ? "" : "*", at(ref).slot);
      if (at(ref).kind == Kind::classify)
        classify(ref);
      else
        constant(2, ref, at(ref).kind == Kind::input ? row_input(ref, memory) : expression(ref));
    }
  }

  /// The largest magnitude tells all but whether there is an Inf beside a NaN: such a row, which is rare, is looked at once
  /// more.
  void classify(Ref ref) {
    const Ref element = at(ref).operands[0], largest = at(ref).operands[1];
    line(2, fmt::format("uint32_t {}inf = tells_inf({});", name(ref), name(largest)));
    line(2, fmt::format("if (__builtin_expect(tells_nan({}), 0)) {{", name(largest)));
    source_ += fmt::format("#pragma omp simd reduction(|:{}inf)\n", name(ref));
    whole_row(element, plan_.pass_of(ref), fmt::format("{0}inf |= is_inf({1});", name(ref), name(element)));
    line(2, "}");
    line(2, fmt::format("const NonFinite {0} = {{tells_nan({1}), {0}inf != 0}};", name(ref), name(largest)));
  }

  void changed_row(size_t output, int pass) {
    const Ref ref = loops_.outputs[output].value;
    const bool else_input =
        plan_.early().count(output) || at(ref).operands[2] == plan_.input_of(plan_.in_place()->slot);
    line(2, fmt::format("if (__builtin_expect({}{}, 0)) {{", else_input ? "" : "!", name(at(ref).operands[0])));
    source_ += "#pragma omp simd\n";
    whole_row(ref, pass, fmt::format("o{}[i] = {};", output, to_store(at(ref).dtype, name(ref))));
    line(2, "}");
  }

  /// Computes an element at every position of the row, and does `what` with it.
  void whole_row(Ref element, int pass, const std::string& what) {
    const Run run{{pass, 0}, at(element).extent, fmt::format("d{}", at(element).extent), false};
    line(3, fmt::format("for (int64_t i = 0; i < {}; ++i) {{", run.count));
    std::set<Ref> needed;
    plan_.need(element, run.now, run.extent, needed);
    body(needed, run);
    line(4, what);
    line(3, "}");
  }

  /// Where in its memory a value lies that loop `run` reads or writes at position i.
  std::string index(Ref ref, const Run& run) const {
    const int32_t own = at(ref).extent;
    if (run.segment && own == run.extent)
      return plan_.kept().count(ref) && plan_.kept().at(ref).segment ? "i" : "at + i";
    return run.segment && own == plan_.extent(run.extent).segments ? "segment" : "i";
  }

  /// An element that comes from memory.
  std::string read(Ref ref, const Run& run) const {
    const bool kept = plan_.is_kept_before(ref, run.now, run.extent);
    const std::string from = kept ? plan_.kept().at(ref).name : fmt::format("i{}", at(ref).slot);
    const bool in_lanes = kept && !plan_.kept().at(ref).is_output() && is_in_lanes(at(ref).extent);
    const std::string value =
        fmt::format("{}[{}]", from, in_lanes ? SegmentLanes::kept_index(*this, at(ref).extent) : index(ref, run));
    return kept && plan_.is_segment_reduction(ref) ? value : loaded(at(ref).dtype, value);
  }

  /// `guard`: in front of what is read, where not every position is there.
  void body(const std::set<Ref>& needed, const Run& run, const std::string& guard = "") {
    for (const Ref ref : needed) {
      if (belongs_to_segment(ref, run)) continue;  // computed in front of the loop
      std::string code = is_read(ref, run) ? read(ref, run) : expression(ref);
      if (is_read(ref, run) && !guard.empty()) code = guard + " ? " + code + " : 0";
      constant(4, ref, code);
    }
  }

  /// The loop over the segments of a row, and in it those over the positions of one.
  void segments_loop(int pass, int32_t extent) {
    const Extent& whole = plan_.extent(extent);
    const int last = plan_.last_step(pass, extent);
    for (int step = 0; step <= last; ++step)
      for (const Ref ref : plan_.reductions({pass, step}, extent))
        if (!is_element(ref)) line(2, fmt::format("{} {}total = {};", total_type(ref), name(ref), start(ref)));
    line(2, fmt::format("for (int64_t segment = 0; segment < d{}; ++segment) {{", whole.segments));
    line(2, fmt::format("const int64_t at = segment * d{};", whole.positions));
    std::set<Ref> declared;
    for (int step = 0; step <= last; ++step) {
      const Run run{{pass, step}, extent, fmt::format("d{}", whole.positions), true};
      segment_values(run, declared);
      element_loop(run);
    }
    line(2, "}");
    for (int step = 0; step <= last; ++step) row_totals({pass, step}, extent);
  }

  /// What belongs to the segment at hand, as far as the next loop over its positions needs it.
  void segment_values(const Run& run, std::set<Ref>& declared) {
    for (const Ref ref : plan_.needed_in(run.now, run.extent))
      if (belongs_to_segment(ref, run) && !plan_.is_local(ref, run.now.pass, run.extent) && declared.insert(ref).second)
        constant(2, ref, is_read(ref, run) ? read(ref, run) : expression(ref));
  }

  void element_loop(const Run& run) {
    if (plan_.roots(run.now, run.extent).empty()) return;
    const std::vector<Ref> reductions = plan_.reductions(run.now, run.extent);
    const std::vector<std::string> fetched =
        run.segment ? std::vector<std::string>{} : fetched_ahead(run.now.pass, run.extent);
    if (reductions.empty() && fetched.empty()) {
      source_ += "#pragma omp simd\n";
      line(2, fmt::format("for (int64_t i = 0; i < {}; ++i) {{", run.count));
      positions(run, reductions, "", "");
      line(2, "}");
    } else if (reductions.empty()) {
      line(2, "{");
      line(2, "int64_t first = 0;");
      lanes(run.count, run, reductions, fetched);
      line(2, "}");
    } else {
      joined_positions(run, reductions, fetched);
    }
  }

  /// Blocks of positions go into lanes (support/lanes.h). Sums of blocks are added up as doubles: in one float a lane would
  /// lose a row of a million elements.
  void joined_positions(const Run& run, const std::vector<Ref>& reductions, const std::vector<std::string>& fetched) {
    for (const Ref ref : reductions)
      if (is_element(ref) || !run.segment)  // else of all segments, in front of their loop
        line(2, fmt::format("{} {}total = {};", total_type(ref), name(ref), start(ref)));
    line(2, fmt::format("for (int64_t block = 0; block < {}; block += block_positions) {{", run.count));
    line(2, fmt::format("const int64_t end_of_block = block + block_positions < {0} ? block + block_positions : {0};",
                        run.count));
    for (const Ref ref : reductions) {
      line(2, fmt::format("{} {}lanes[lane_count];", type_code(at(ref)), name(ref)));
      line(2, fmt::format("for (auto& lane : {}lanes) lane = {};", name(ref), start(ref)));
    }
    line(2, "int64_t first = block;");
    lanes("end_of_block", run, reductions, fetched);
    for (const Ref ref : reductions) {
      line(2, fmt::format("const {0} {1}block = joined<{2}>({1}lanes, end_of_block - block);", type_code(at(ref)),
                          name(ref), join_type(ref)));
      line(2, fmt::format("{0}total = {1};", name(ref), join(ref, name(ref) + "total", name(ref) + "block")));
    }
    line(2, "}");
    if (!run.segment) row_totals(run.now, run.extent);
    for (const Ref ref : reductions) {
      if (!is_element(ref)) continue;
      total(ref);
      for (const std::string& memory : memory_of(ref)) line(2, fmt::format("{}[segment] = {};", memory, name(ref)));
    }
  }

  void total(Ref ref) { line(2, fmt::format("const {1} {0} = ({1}){0}total;", name(ref), type_code(at(ref)))); }
  void row_totals(Time now, int32_t extent) {
    for (const Ref ref : plan_.reductions(now, extent))
      if (!is_element(ref)) total(ref);
  }

  /// The positions from `first` to `end`, as many at a time as there are lanes. Of the rest 16 at a time, of which the last may
  /// not all be there: they are computed from zeros and left out, since to load a vector that was stored in pieces takes long.
  void lanes(const std::string& end, const Run& run, const std::vector<Ref>& reductions,
             const std::vector<std::string>& fetched) {
    line(2, fmt::format("for (; first + lane_count <= {}; first += lane_count) {{", end));
    for (const std::string& code : fetched) line(3, "if (ahead) " + code);
    simd_loop("int64_t lane = 0; lane < lane_count", [&] { positions(run, reductions, "lane", ""); });
    line(2, "}");
    line(2, fmt::format("for (int64_t offset = 0; first < {}; first += 16, offset += 16) {{", end));
    line(3, fmt::format("const int32_t count = {0} - first < 16 ? {0} - first : 16;", end));
    simd_loop("int32_t lane = 0; lane < 16", [&] { positions(run, reductions, "offset + lane", "lane < count"); });
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
  void positions(const Run& run, const std::vector<Ref>& reductions, const std::string& lane,
                 const std::string& guard) {
    body(plan_.needed_in(run.now, run.extent), run, guard);
    const auto guarded = guard.empty() ? "" : "if (" + guard + ") ";
    for (const Ref ref : reductions) {
      const std::string so_far = fmt::format("{}lanes[{}]", name(ref), lane), one = name(ref) + "one";
      const std::string both = join(ref, so_far, one);
      line(4, fmt::format("const {} {} = {};", one_type(ref), one, expression(ref)));
      line(4, so_far + " = " + (guard.empty() ? both : fmt::format("{} ? ({}) : {}", guard, both, so_far)) + ";");
    }
    const auto store = [&](const std::string& where, Ref ref) {
      line(4, fmt::format("{}{}[{}] = {};", guarded, where, index(ref, run), to_store(at(ref).dtype, name(ref))));
    };
    for (const auto& [ref, memory] : plan_.kept_at(run.now, run.extent)) store(memory, ref);
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (plan_.stores(i, run.now, run.extent)) store(fmt::format("o{}", i), loops_.outputs[i].value);
    for (const auto& [output, input] : plan_.early())
      if (run.now == Time{} && at(input).extent == run.extent) store(fmt::format("o{}", output), input);
  }

  void store_rows() {
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (!is_element(loops_.outputs[i].value)) line(2, stored_row(i, fmt::format("call->out[{}]", i), "row"));
  }

  mutable std::map<int32_t, Busy> busy_;  // by extent
};

}  // namespace

std::vector<InPlace> in_place_choices(const Loops& loops) { return Schedule(loops).in_place_choices(); }

Emitted emit(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place) {
  if (lanes == Lanes::rows) return RowLanes(loops).run();
  return Emitter(loops, lanes, in_place).run();
}

/// To turn rows into lanes and back takes as long as to read them a few times: up to about so many positions it pays; where
/// each position takes long, as exp does, up to more.
LaneChoice::LaneChoice(const Loops& loops) {
  const bool expensive = std::any_of(loops.values.begin(), loops.values.end(), [](const LoopValue& value) {
    return value.expensive && value.place == Place::element;
  });
  longest_ = expensive ? 64 : 16;
  for (const Extent& extent : loops.extents)
    if (extent.segments >= 0 && extent.inner < 0) segments_.push_back(extent.positions);
}

Lanes LaneChoice::operator()(at::ArrayRef<int64_t> extents) const {
  const auto is_short = [&](int64_t count) { return count <= longest_; };
  if (extents.empty()) return Lanes::positions;
  if (std::all_of(extents.begin(), extents.end(), is_short)) return Lanes::rows;
  const bool short_segments = std::all_of(segments_.begin(), segments_.end(), [&](int32_t positions) {
    return is_short(extents[static_cast<size_t>(positions)]);
  });
  return !segments_.empty() && short_segments ? Lanes::segments : Lanes::positions;
}

int64_t size_of(const ScratchSize& size, at::ArrayRef<int64_t> extents) {
  const int64_t count = extents[static_cast<size_t>(size.extent)];
  if (size.unit < 0) return whole_tiles(count * size.lanes);
  const int64_t unit = extents[static_cast<size_t>(size.unit)];
  return count / unit * whole_tiles(unit);
}

}  // namespace triage::fused
