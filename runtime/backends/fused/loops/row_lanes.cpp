#include "runtime/backends/fused/loops/row_lanes.h"

#include <fmt/format.h>

#include <algorithm>

namespace triage::fused {

using Kind = LoopValue::Kind;

Emitted RowLanes::run() {
  begin();
  for (size_t i = 0; i < loops_.values.size(); ++i)
    if (loops_.values[i].place == Place::row) arrays_.insert(static_cast<Ref>(i));
  line(1, "for (int64_t row = begin; row < end; row += tile_lanes) {");
  line(2, "const int32_t used = end - row < tile_lanes ? end - row : tile_lanes;");
  load_tiles();
  for (int pass = 0; pass <= plan_.last_pass(); ++pass) {
    row_values(pass);
    for (const int32_t extent : plan_.order())
      if (plan_.has_segments(pass, extent))
        segments_loop(pass, extent);
      else
        element_loop({{pass, 0}, extent, fmt::format("d{}", extent), false});
  }
  store_outputs();
  line(1, "}");
  source_ += "}\n";
  return {std::move(source_), scratch_rows(), scratch_sizes()};
}

void RowLanes::load_tiles() {
  for (size_t i = 0; i < loops_.values.size(); ++i) {
    const Ref ref = static_cast<Ref>(i);
    const LoopValue& value = at(ref);
    if (value.kind != Kind::input || value.place != Place::element) continue;
    const std::string type = row_type(ref);
    if (is_column(ref))
      line(2, fmt::format("const auto* const i{0} = (const {1}*)call->in[{0}];", value.slot, type));
    else
      line(2, fmt::format("rows_to_lanes(i{0}, (const {1}*)((const char*)call->in[{0}] + row * call->in_stride[{0}]), "
                          "call->in_stride[{0}], d{2}, used);",
                          value.slot, type, value.extent));
  }
}

// --- what belongs to a row -------------------------------------------------------------------------------------------

/// Numbers are computed for all lanes at once, records for one row after the other.
void RowLanes::row_values(int pass) {
  std::vector<Ref> values = row_values_of(pass);
  std::erase_if(values, [&](Ref ref) { return at(ref).is(Opcode::record_empty); });
  for (const Ref ref : values) lane_array(ref);
  for (size_t i = 0; i < values.size();) {
    const bool single = is_of_records(values[i]);
    lane_loop(
        2,
        [&] {
          for (; i < values.size() && is_of_records(values[i]) == single; ++i) row_value(values[i]);
        },
        single ? "used" : "tile_lanes");
  }
}

bool RowLanes::is_of_records(Ref ref) const {
  const auto is = [&](Ref one) { return is_record(at(one)) || at(one).kind == Kind::classify; };
  return is(ref) || std::any_of(at(ref).operands.begin(), at(ref).operands.end(), [&](Ref operand) {
           return is(operand) || (plan_.is_inlined(operand) && is_of_records(operand));
         });
}

void RowLanes::row_value(Ref ref) {
  if (at(ref).kind == Kind::classify) return classify(ref);
  line(3, fmt::format("{} = {};", of_lane(ref), at(ref).kind == Kind::input ? input_of_lane(ref) : expression(ref)));
}

std::string RowLanes::input_of_lane(Ref ref) const {
  const std::string address =
      fmt::format("((const char*)call->in[{0}] + (row + lane) * call->in_stride[{0}])", at(ref).slot);
  if (is_record(at(ref))) return row_input(ref, address);
  const std::string memory = fmt::format("*(const {}*){}", stored_type(at(ref)), address);
  return fmt::format("lane < used ? {} : 0", row_input(ref, memory));
}

/// The largest magnitude tells all but whether there is an Inf beside a NaN: such a row, which is rare, is looked at once
/// more.
void RowLanes::classify(Ref ref) {
  const Ref element = at(ref).operands[0];
  const std::string largest = name(at(ref).operands[1]);
  line(3, fmt::format("{} = {{tells_nan({}), tells_inf({})}};", of_lane(ref), largest, largest));
  line(3, fmt::format("if (__builtin_expect({}.nan, 0))", of_lane(ref)));
  const Run run{{plan_.pass_of(ref), 0}, at(element).extent, fmt::format("d{}", at(element).extent), false};
  line(3, fmt::format("for (int64_t i = 0; i < {}; ++i) {{", run.count));
  std::set<Ref> needed;
  plan_.need(element, run.now, run.extent, needed);
  body(needed, run);
  line(4, fmt::format("{}.inf |= is_inf({});", of_lane(ref), name(element)));
  line(3, "}");
}

// --- loops over positions --------------------------------------------------------------------------------------------

void RowLanes::segments_loop(int pass, int32_t extent) {
  const Extent& whole = plan_.extent(extent);
  const std::set<Ref> before = arrays_;
  const int last = plan_.last_step(pass, extent);
  for (int step = 0; step <= last; ++step) declare(plan_.reductions({pass, step}, extent), /*of_segments=*/false);
  const std::string positions = fmt::format("d{}", whole.positions);
  line(2, fmt::format("for (int64_t segment = 0; segment < d{}; ++segment) {{", whole.segments));
  if (whole.inner < 0)
    line(2, fmt::format("const int64_t at = segment * {}, apart = 1;", positions));
  else
    line(2, fmt::format("const int64_t apart = d{0}, at = segment / d{0} * {1} * d{0} + segment % d{0};", whole.inner,
                        positions));
  for (int step = 0; step <= last; ++step) {
    const Run run{{pass, step}, extent, positions, true};
    segment_values(run);
    element_loop(run);
  }
  line(2, "}");
  arrays_ = before;
}

/// What belongs to the segment at hand, as far as the next loop over its positions needs it.
void RowLanes::segment_values(const Run& run) {
  for (const Ref ref : plan_.needed_in(run.now, run.extent)) {
    if (!belongs_to_segment(ref, run) || plan_.is_local(ref, run.now.pass, run.extent) || arrays_.count(ref)) continue;
    lane_array(ref);
    const std::string code = is_read(ref, run) ? read(ref, run) : expression(ref);
    lane_loop(2, [&] { line(3, fmt::format("{} = {};", of_lane(ref), code)); });
    arrays_.insert(ref);
  }
}

void RowLanes::declare(const std::vector<Ref>& reductions, bool of_segments) {
  for (const Ref ref : reductions)
    if (is_element(ref) == of_segments) lane_array(ref, start(ref));
}

void RowLanes::element_loop(const Run& run) {
  if (plan_.roots(run.now, run.extent).empty()) return;
  const std::vector<Ref> reductions = plan_.reductions(run.now, run.extent);
  if (!run.segment) declare(reductions, /*of_segments=*/false);
  declare(reductions, /*of_segments=*/true);
  line(2, fmt::format("for (int64_t i = 0; i < {}; ++i) {{", run.count));
  positions(run, reductions);
  line(2, "}");
  for (const Ref ref : reductions)
    if (is_element(ref)) arrays_.insert(ref);
  store_segments(reductions);
}

void RowLanes::store_segments(const std::vector<Ref>& reductions) {
  for (const Ref ref : reductions) {
    if (!is_element(ref)) continue;
    for (const std::string& memory : memory_of(ref))
      lane_loop(2, [&] { line(3, fmt::format("{}[segment * tile_lanes + lane] = {};", memory, name(ref))); });
  }
}

/// What is done at position `i` of all rows.
void RowLanes::positions(const Run& run, const std::vector<Ref>& reductions) {
  const auto put = [&](const std::string& memory, Ref ref) {
    line(4, fmt::format("{}[{}] = {};", memory, index(ref, run), to_store(at(ref).dtype, name(ref))));
  };
  lane_loop(3, [&] {
    body(plan_.needed_in(run.now, run.extent), run);
    for (const Ref ref : reductions) {
      const std::string so_far = of_lane(ref), one = bare_name(ref) + "one";
      line(4, fmt::format("const {} {} = {};", one_type(ref), one, expression(ref)));
      line(4, fmt::format("{} = {};", so_far, join(ref, so_far, one)));
    }
    for (const auto& [ref, memory] : plan_.kept_at(run.now, run.extent)) put(memory, ref);
    for (size_t i = 0; i < loops_.outputs.size(); ++i)
      if (plan_.stores(i, run.now, run.extent)) put(fmt::format("o{}", i), loops_.outputs[i].value);
  });
}

void RowLanes::body(const std::set<Ref>& needed, const Run& run) {
  for (const Ref ref : needed)
    if (!belongs_to_segment(ref, run))  // those were computed in front of the loop
      constant(4, ref, is_read(ref, run) ? read(ref, run) : expression(ref));
}

/// Where a value stands that the loop reads or writes at position i.
std::string RowLanes::index(Ref ref, const Run& run) const {
  const int32_t own = at(ref).extent;
  std::string position = "i";
  if (run.segment && own == run.extent) {
    const auto kept = plan_.kept().find(ref);
    if (kept == plan_.kept().end() || !kept->second.segment) position = "(at + i * apart)";
  } else if (belongs_to_segment(ref, run)) {
    position = "segment";
  }
  return is_column(ref) ? position : position + " * tile_lanes + lane";
}

/// An element that comes from a tile, or is the same in all rows.
std::string RowLanes::read(Ref ref, const Run& run) const {
  const bool kept = plan_.is_kept_before(ref, run.now, run.extent);
  const std::string memory = kept ? plan_.kept().at(ref).name : fmt::format("i{}", at(ref).slot);
  const std::string value = fmt::format("{}[{}]", memory, index(ref, run));
  return kept && plan_.is_segment_reduction(ref) ? value : loaded(at(ref).dtype, value);
}

void RowLanes::store_outputs() {
  for (size_t i = 0; i < loops_.outputs.size(); ++i) {
    const Ref ref = loops_.outputs[i].value;
    if (is_element(ref))
      line(2, fmt::format("lanes_to_rows(({0}*)call->out[{1}] + row * d{2}, o{1}, d{2}, used);", row_type(ref), i,
                          at(ref).extent));
    else
      lane_loop(
          2, [&] { line(3, stored_row(i, fmt::format("call->out[{}]", i), "(row + lane)")); }, "used");
  }
}

}  // namespace triage::fused
