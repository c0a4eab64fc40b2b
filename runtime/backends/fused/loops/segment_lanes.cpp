#include "runtime/backends/fused/loops/segment_lanes.h"

#include <fmt/format.h>

namespace triage::fused {

using Kind = LoopValue::Kind;

SegmentLanes::SegmentLanes(LoopText& text, int pass, int32_t extent)
    : text_(text),
      plan_(text.plan_),
      pass_(pass),
      extent_(extent),
      whole_(text.plan_.extent(extent)),
      inner_(whole_.inner >= 0),
      lanes_extent_(inner_ ? whole_.inner : whole_.segments) {}

void SegmentLanes::write() {
  const std::set<Ref> arrays_before = text_.arrays_;
  const int last = plan_.last_step(pass_, extent_);
  for (int number = 0; number <= last; ++number)
    for (const Ref ref : plan_.reductions({pass_, number}, extent_))
      if (!text_.is_element(ref))
        text_.lane_array(text_.total_type(ref), text_.bare_name(ref) + "totals", text_.start(ref));
  open_loops();
  for (const Tile& tile : tiles()) fetch(tile);
  for (int number = 0; number <= last; ++number) step(number);
  for (const Tile& tile : tiles())
    if (tile.written) store(tile);
  text_.line(2, inner_ ? "}}" : "}");
  text_.arrays_ = arrays_before;
  row_totals();
}

/// The inputs of this extent that are read in this pass, and the outputs that are written or read again.
std::vector<SegmentLanes::Tile> SegmentLanes::tiles() const {
  std::vector<Tile> list;
  const auto& outputs = text_.loops_.outputs;
  const std::set<Ref> needed = plan_.needed_in(pass_, extent_);
  for (const Ref ref : needed)
    if (at(ref).kind == Kind::input && at(ref).extent == extent_)
      list.push_back({fmt::format("x{}", at(ref).slot), fmt::format("i{}", at(ref).slot), true, false});
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Ref ref = outputs[i].value;
    if (!text_.is_element(ref) || at(ref).extent != extent_ || plan_.is_segment_reduction(ref)) continue;
    bool written = false;
    for (int number = 0; number <= plan_.last_step(pass_, extent_); ++number)
      written |= plan_.stores(i, {pass_, number}, extent_);
    const auto kept = plan_.kept().find(ref);
    const bool read =
        !written && needed.count(ref) && kept != plan_.kept().end() && kept->second.name == fmt::format("o{}", i);
    if (written || read) list.push_back({fmt::format("y{}", i), fmt::format("o{}", i), read, written});
  }
  return list;
}

void SegmentLanes::open_loops() {
  const auto loop = [&](const std::string& count) {
    text_.line(2, fmt::format("for (int64_t first = 0; first < {}; first += tile_lanes) {{", count));
    text_.line(2, fmt::format("const int32_t used = {0} - first < tile_lanes ? {0} - first : tile_lanes;", count));
  };
  const std::string lanes = fmt::format("d{}", lanes_extent_), positions = fmt::format("d{}", whole_.positions);
  if (inner_) {
    text_.line(2, fmt::format("for (int64_t outer = 0; outer < d{} / {}; ++outer) {{", whole_.segments, lanes));
    loop(lanes);
    text_.line(2, fmt::format("const int64_t segment = outer * {} + first;", lanes));
    text_.line(2, fmt::format("const int64_t at = outer * {} * {} + first;", positions, lanes));
    text_.line(2, fmt::format("const int64_t held = (outer * whole_tiles({}) + first) * {};", lanes, positions));
    text_.line(2, fmt::format("const int64_t pitch = used == tile_lanes ? {} : tile_lanes;", lanes));
  } else {
    loop(lanes);
    text_.line(2, "const int64_t segment = first;");
    text_.line(2, fmt::format("const int64_t at = first * {}, held = at;", positions));
    text_.line(2, "const int64_t pitch = tile_lanes;");
  }
}

/// Lanes that are neighbours in memory are read where they lie, as long as there are enough of them.
void SegmentLanes::fetch(const Tile& tile) {
  const std::string own = "tile_of_" + tile.memory;
  text_.line(2, fmt::format("auto* {} = {}{};", tile.name, inner_ ? "used == tile_lanes ? " : "",
                            inner_ ? fmt::format("{} + at : {}", tile.memory, own) : own));
  if (!tile.read) return;
  if (inner_)
    text_.line(2, fmt::format("if (used < tile_lanes) copy_lanes({}, tile_lanes, {} + at, d{}, d{}, used);", own,
                              tile.memory, lanes_extent_, whole_.positions));
  else
    text_.line(2, fmt::format("rows_to_lanes({0}, {1} + at, d{2} * (int64_t)sizeof(*{1}), d{2}, used);", own,
                              tile.memory, whole_.positions));
}

void SegmentLanes::store(const Tile& tile) {
  if (inner_)
    text_.line(2, fmt::format("if (used < tile_lanes) copy_lanes({} + at, d{}, tile_of_{}, tile_lanes, d{}, used);",
                              tile.memory, lanes_extent_, tile.memory, whole_.positions));
  else
    text_.line(2, fmt::format("lanes_to_rows({0} + at, tile_of_{0}, d{1}, used);", tile.memory, whole_.positions));
}

void SegmentLanes::step(int number) {
  const Run run{{pass_, number}, extent_, fmt::format("d{}", whole_.positions), true};
  segment_values(run);
  element_loop(run);
}

/// What belongs to the segments at hand, as far as the next loop over their positions needs it.
void SegmentLanes::segment_values(const Run& run) {
  for (const Ref ref : plan_.needed_in(run.now, run.extent)) {
    if (!text_.belongs_to_segment(ref, run) || plan_.is_local(ref, pass_, extent_) || text_.arrays_.count(ref))
      continue;
    text_.lane_array(ref);
    const std::string code =
        text_.is_read(ref, run) ? "lane < used ? " + read(ref, run) + " : 0" : text_.expression(ref);
    text_.lane_loop(2, [&] { text_.line(3, fmt::format("{} = {};", text_.of_lane(ref), code)); });
    text_.arrays_.insert(ref);
  }
}

void SegmentLanes::element_loop(const Run& run) {
  if (plan_.roots(run.now, run.extent).empty()) return;
  const std::vector<Ref> reductions = plan_.reductions(run.now, run.extent);
  if (reductions.empty()) {
    text_.line(2, fmt::format("for (int64_t i = 0; i < {}; ++i) {{", run.count));
    positions(run, reductions);
    text_.line(2, "}");
  } else {
    joined_positions(run, reductions);
  }
}

/// Sums of blocks of positions are added up as doubles: in one float a lane would lose a segment of a million positions.
void SegmentLanes::joined_positions(const Run& run, const std::vector<Ref>& reductions) {
  for (const Ref ref : reductions)
    if (text_.is_element(ref))
      text_.lane_array(text_.total_type(ref), text_.bare_name(ref) + "totals", text_.start(ref));
  text_.line(2, fmt::format("for (int64_t block = 0; block < {}; block += segment_block_positions) {{", run.count));
  text_.line(2, fmt::format("const int64_t end_of_block = block + segment_block_positions < {0} ? block + "
                            "segment_block_positions : {0};",
                            run.count));
  for (const Ref ref : reductions)
    text_.lane_array(type_code(at(ref)), text_.bare_name(ref) + "lanes", text_.start(ref));
  text_.line(2, "for (int64_t i = block; i < end_of_block; ++i) {");
  positions(run, reductions);
  text_.line(2, "}");
  text_.lane_loop(2, [&] {
    for (const Ref ref : reductions) {
      const std::string so_far = text_.bare_name(ref) + "totals[lane]";
      const std::string both = text_.join(ref, so_far, text_.bare_name(ref) + "lanes[lane]");
      text_.line(3, text_.is_element(ref) ? fmt::format("{} = {};", so_far, both)
                                          : fmt::format("{} = lane < used ? ({}) : {};", so_far, both, so_far));
    }
  });
  text_.line(2, "}");
  finish_segments(reductions);
}

void SegmentLanes::finish_segments(const std::vector<Ref>& reductions) {
  for (const Ref ref : reductions) {
    if (!text_.is_element(ref)) continue;
    const std::string name = text_.bare_name(ref), type = type_code(at(ref));
    text_.lane_array(ref);
    text_.arrays_.insert(ref);
    text_.lane_loop(2, [&] { text_.line(3, fmt::format("{0}[lane] = ({1}){0}totals[lane];", name, type)); });
    for (const std::string& memory : text_.memory_of(ref))
      text_.lane_loop(
          2, [&] { text_.line(3, fmt::format("{}[segment + lane] = {}[lane];", memory, name)); }, "used");
  }
}

/// What is done at position `i` of all lanes.
void SegmentLanes::positions(const Run& run, const std::vector<Ref>& reductions) {
  const auto put = [&](const std::string& where, Ref ref) {
    text_.line(4, fmt::format("{} = {};", where, to_store(at(ref).dtype, text_.name(ref))));
  };
  text_.lane_loop(3, [&] {
    for (const Ref ref : plan_.needed_in(run.now, run.extent))
      if (!text_.belongs_to_segment(ref, run))
        text_.constant(4, ref, text_.is_read(ref, run) ? read(ref, run) : text_.expression(ref));
    for (const Ref ref : reductions) {
      const std::string name = text_.bare_name(ref), so_far = name + "lanes[lane]";
      text_.line(4, fmt::format("const {} {}one = {};", text_.one_type(ref), name, text_.expression(ref)));
      text_.line(4, fmt::format("{} = {};", so_far, text_.join(ref, so_far, name + "one")));
    }
    for (const auto& [ref, memory] : plan_.kept_at(run.now, run.extent)) put(place_kept(ref), ref);
    for (size_t i = 0; i < text_.loops_.outputs.size(); ++i)
      if (plan_.stores(i, run.now, run.extent))
        put(fmt::format("y{}[i * pitch + lane]", i), text_.loops_.outputs[i].value);
  });
}

std::string SegmentLanes::place_kept(Ref ref) const {
  const Schedule::Kept& kept = plan_.kept().at(ref);
  return fmt::format("{}[{}i * tile_lanes + lane]", kept.name, kept.segment ? "" : "held + ");
}

/// An element that comes from memory: of the row, one a segment, or the same in all segments.
std::string SegmentLanes::read(Ref ref, const Run& run) const {
  const bool kept = plan_.is_kept_before(ref, run.now, run.extent);
  const bool from_output = kept && plan_.kept().at(ref).is_output();
  const std::string memory = kept ? plan_.kept().at(ref).name : fmt::format("i{}", at(ref).slot);
  std::string value;
  if (at(ref).extent == extent_)
    value = kept && !from_output ? place_kept(ref)
                                 : fmt::format("{}{}[i * pitch + lane]", kept ? "y" : "x", memory.substr(1));
  else
    value = memory + (text_.belongs_to_segment(ref, run) ? "[segment + lane]" : "[i]");
  return kept && plan_.is_segment_reduction(ref) ? value : loaded(at(ref).dtype, value);
}

void SegmentLanes::row_totals() {
  for (int number = 0; number <= plan_.last_step(pass_, extent_); ++number)
    for (const Ref ref : plan_.reductions({pass_, number}, extent_))
      if (!text_.is_element(ref))
        text_.line(2, fmt::format("const {1} {0} = ({1})joined<{2}, tile_lanes>({0}totals);", text_.bare_name(ref),
                                  type_code(at(ref)), text_.join_type(ref)));
}

std::string SegmentLanes::kept_index(const LoopText& text, int32_t extent) {
  const Extent& whole = text.plan_.extent(extent);
  const std::string p = fmt::format("d{}", whole.positions);
  if (whole.inner < 0)
    return fmt::format("i / {0} / tile_lanes * tile_lanes * {0} + i % {0} * tile_lanes + i / {0} % tile_lanes", p);
  const std::string n = fmt::format("d{}", whole.inner);
  return fmt::format(
      "(i / {1} / {0} * whole_tiles({1}) + i % {1} / tile_lanes * tile_lanes) * {0} + i / {1} % {0} * tile_lanes + i % "
      "{1} % tile_lanes",
      p, n);
}

}  // namespace triage::fused
