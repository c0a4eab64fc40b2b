#include "runtime/backends/fused/loops/loop_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace triage::fused {

using Kind = LoopValue::Kind;

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

namespace {

/// For each Join: its type in support/lanes.h, and how one more value {1} joins {0}.
struct JoinRow {
  const char *type, *code;
};
constexpr JoinRow joins[] = {{"Sum", "{0} + {1}"},
                             {"Product", "{0} * {1}"},
                             {"Largest", "{1} > {0} ? {1} : {0}"},
                             {"Smallest", "{1} < {0} ? {1} : {0}"},
                             {"Any", "{1} ? 1 : {0}"}};
const JoinRow& row_of(Join join) { return joins[static_cast<size_t>(join)]; }

}  // namespace

std::string LoopText::join(Ref ref, const std::string& so_far, const std::string& one) const {
  return fmt::format(fmt::runtime(row_of(at(ref).join).code), so_far, one);
}

std::string LoopText::join_type(Ref ref) const { return row_of(at(ref).join).type; }

std::vector<std::string> LoopText::memory_of(Ref ref) const {
  std::vector<std::string> list;
  if (const auto kept = plan_.kept().find(ref); kept != plan_.kept().end() && !kept->second.is_output())
    list.push_back(kept->second.name);
  for (size_t i = 0; i < loops_.outputs.size(); ++i)
    if (loops_.outputs[i].value == ref) list.push_back(fmt::format("o{}", i));
  return list;
}

std::string LoopText::row_type(Ref ref) const { return is_record(at(ref)) ? "void" : stored_type(at(ref)); }

/// What a reduction gives is kept as it was computed, anything else as a tensor would hold it.
std::string LoopText::kept_type(Ref ref) const {
  return plan_.is_segment_reduction(ref) ? type_code(at(ref)) : stored_type(at(ref));
}

std::vector<Ref> LoopText::row_values_of(int pass) const {
  std::vector<Ref> list;
  for (size_t i = 0; i < loops_.values.size(); ++i)
    if (const Ref ref = static_cast<Ref>(i); at(ref).place == Place::row && at(ref).kind != Kind::reduce &&
                                             !plan_.is_inlined(ref) && plan_.pass_of(ref) == pass)
      list.push_back(ref);
  return list;
}

std::string LoopText::row_input(Ref ref, const std::string& memory) const {
  return is_record(at(ref)) ? fmt::format("{}::from({})", type_code(at(ref)), memory) : loaded(at(ref).dtype, memory);
}

std::string LoopText::stored_row(size_t output, const std::string& memory, const std::string& row) const {
  const Ref ref = loops_.outputs[output].value;
  if (is_record(at(ref))) return fmt::format("{0}.store((char*){1} + {2} * sizeof({0}));", name(ref), memory, row);
  return fmt::format("(({}*){})[{}] = {};", stored_type(at(ref)), memory, row, to_store(at(ref).dtype, name(ref)));
}

void LoopText::lane_array(const std::string& type, const std::string& name, const std::string& start) {
  line(2, fmt::format("{} {}[tile_lanes];", type, name));
  if (!start.empty()) line(2, fmt::format("for (auto& lane : {}) lane = {};", name, start));
}

// --- scratch memory --------------------------------------------------------------------------------------------------

bool LoopText::is_in_lanes(int32_t extent) const { return has_segment_lanes(plan_.extent(extent), lanes_); }

bool LoopText::runs_in_lanes(int pass, int32_t extent) const {
  if (!is_in_lanes(extent)) return false;
  if (plan_.has_segments(pass, extent)) return true;
  for (const auto& [ref, where] : plan_.kept())
    if (!where.is_output() && at(ref).extent == extent && plan_.needed_in(pass, extent).count(ref)) return true;
  return false;
}

std::vector<ScratchSize> LoopText::scratch_sizes() const {
  std::vector<ScratchSize> sizes;
  for (const auto& [ref, where] : plan_.kept()) {
    if (where.is_output()) continue;
    const int32_t own = at(ref).extent;
    const Extent& whole = plan_.extent(own);
    if (where.segment)
      sizes.push_back({whole.positions, -1, lanes_ == Lanes::rows || is_in_lanes(own) ? tile_lanes : 1});
    else if (lanes_ != Lanes::rows && is_in_lanes(own))
      sizes.push_back({own, whole.inner >= 0 ? whole.inner : whole.segments, 1});
    else
      sizes.push_back({own, -1, lanes_ == Lanes::rows ? tile_lanes : 1});
  }
  for (size_t i = 0; i < loops_.extents.size(); ++i) {
    const auto extent = static_cast<int32_t>(i);
    if (lanes_ == Lanes::rows)
      sizes.push_back({extent, -1, tile_lanes});
    else if (is_in_lanes(extent))
      sizes.push_back({loops_.extents[i].positions, -1, tile_lanes});
  }
  return sizes;
}

namespace {

struct TileMemory {
  std::string name, type;
};

/// The tiles that loops with a row or a segment a lane go through: of inputs and of outputs.
std::vector<TileMemory> tiles_of(const LoopText& text) {
  std::vector<TileMemory> tiles;
  const bool rows = text.lanes_ == Lanes::rows;
  const auto add = [&](Ref ref, const char* of_row, const char* of_segments, size_t index) {
    if (rows ? !text.is_column(ref) : text.is_in_lanes(text.at(ref).extent) && !text.plan_.is_segment_reduction(ref))
      tiles.push_back({fmt::format("{}{}", rows ? of_row : of_segments, index), stored_type(text.at(ref))});
  };
  for (size_t i = 0; i < text.loops_.values.size(); ++i)
    if (const Ref ref = static_cast<Ref>(i); text.at(ref).kind == Kind::input && text.is_element(ref))
      add(ref, "i", "tile_of_i", static_cast<size_t>(text.at(ref).slot));
  for (size_t i = 0; i < text.loops_.outputs.size(); ++i)
    if (const Ref ref = text.loops_.outputs[i].value; text.is_element(ref)) add(ref, "o", "tile_of_o", i);
  return tiles;
}

}  // namespace

int64_t LoopText::scratch_rows() const { return plan_.scratch_rows() + static_cast<int64_t>(tiles_of(*this).size()); }

// --- what stands in front of the rows --------------------------------------------------------------------------------

void LoopText::begin() {
  source_ = support_source();
  source_ += "\nusing namespace triage;\nusing namespace triage::fused;\n\n";
  source_ +=
      "struct Call { const void* const* in; const int64_t* in_stride; void* const* out; const int64_t* extents; "
      "char* scratch; };\n\n";
  source_ +=
      "extern \"C\" __attribute__((visibility(\"default\"))) void triage_rows(const Call* call, int64_t begin, "
      "int64_t end) {\n";
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    line(1, fmt::format("const int64_t d{0} = call->extents[{0}];", i));
  if (plan_.last_pass() > 0 && lanes_ == Lanes::positions) {
    line(1, "bool ahead = true;");  // of rows that leave room for others in the cache
    for (size_t i = 0; i < loops_.extents.size(); ++i) line(1, fmt::format("ahead &= d{} <= 4096;", i));
  }
  if (scratch_rows() > 0) scratch();
  numbers([](const std::string& type, int32_t slot) { return fmt::format("*(const {}*)call->in[{}]", type, slot); });
}

void LoopText::scratch() {
  line(1, "int64_t longest = 0;");
  for (const ScratchSize& size : scratch_sizes()) {
    const std::string count = size.unit < 0 ? fmt::format("d{} * {}", size.extent, size.lanes)
                                            : fmt::format("d{0} / d{1} * whole_tiles(d{1})", size.extent, size.unit);
    line(1, fmt::format("if (const int64_t size = whole_tiles({}); size > longest) longest = size;", count));
  }
  for (const auto& [ref, where] : plan_.kept())
    if (!where.is_output())
      line(1, fmt::format("auto* const __restrict {0} = ({1}*)(call->scratch + {2} * 8 * longest);", where.name,
                          kept_type(ref), where.name.substr(1)));
  int64_t next = plan_.scratch_rows();
  for (const TileMemory& tile : tiles_of(*this))
    line(1, fmt::format("auto* const __restrict {} = ({}*)(call->scratch + {} * 8 * longest);", tile.name, tile.type,
                        next++));
}

}  // namespace triage::fused
