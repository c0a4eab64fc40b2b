#pragma once
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backends/fused/emit.h"
#include "runtime/backends/fused/loops/expression.h"
#include "runtime/backends/fused/loops/schedule.h"
#include "runtime/backends/fused/support/lanes.h"

namespace triage::fused {

/// A loop over positions: of a row, or of a segment of it.
struct Run {
  Schedule::Time now;
  int32_t extent;
  std::string count;  // of positions, as C++
  bool segment;
};

/// The text of a generated source as it grows, and how values stand in it. What writes loops derives from it (emit.cpp,
/// row_lanes.cpp, gpu_text.cpp) or writes on it (segment_lanes.cpp).
class LoopText {
 public:
  LoopText(const Loops& loops, Lanes lanes, bool keeps = true) : loops_(loops), lanes_(lanes), plan_(loops, keeps) {}
  virtual ~LoopText() = default;

  const LoopValue& at(Ref ref) const { return plan_.at(ref); }
  bool is_element(Ref ref) const { return plan_.is_element(ref); }
  void line(int depth, const std::string& text) {
    source_ += std::string(static_cast<size_t>(2 * depth), ' ') + text + "\n";
  }
  void add(const std::string& text) { source_ += text; }
  /// How it is read. What stands in an array has one element for each lane (bools as wide as floats: loops with both are
  /// vectorised).
  virtual std::string name(Ref ref) const {
    if (plan_.is_inlined(ref)) return "(" + expression(ref) + ")";
    if (!arrays_.count(ref)) return bare_name(ref);
    return at(ref).type == Type::boolean ? "(" + of_lane(ref) + " != 0)" : of_lane(ref);
  }
  std::string bare_name(Ref ref) const { return "v" + std::to_string(ref); }
  std::string of_lane(Ref ref) const { return bare_name(ref) + "[lane]"; }
  /// The array that it is written to, `start` in all lanes.
  void lane_array(Ref ref, const std::string& start = "") {
    lane_array(at(ref).type == Type::boolean ? "int32_t" : type_code(at(ref)), bare_name(ref), start);
  }
  /// A value as C++; of a reduction, what it joins.
  std::string expression(Ref ref) const {
    return fused::expression(loops_, plan_.inlined(), ref, [this](Ref operand) { return name(operand); });
  }

  /// Everything up to the loop over rows.
  void begin();
  /// Whether loop `extent` runs with one segment a lane in that pass.
  bool runs_in_lanes(int pass, int32_t extent) const;
  /// Whether scratch memory holds values of these positions lane by lane.
  bool is_in_lanes(int32_t extent) const;
  bool belongs_to_segment(Ref ref, const Run& run) const {
    return run.segment && at(ref).extent == plan_.extent(run.extent).segments;
  }
  bool is_read(Ref ref, const Run& run) const {
    return at(ref).kind == LoopValue::Kind::input || plan_.is_kept_before(ref, run.now, run.extent);
  }
  /// What belongs to a row and is computed in that pass, reductions aside.
  std::vector<Ref> row_values_of(int pass) const;
  /// What is read of a row's value that lies at `memory` (the address of a record, else the value itself).
  std::string row_input(Ref ref, const std::string& memory) const;
  /// Declares a value.
  void constant(int depth, Ref ref, const std::string& code) {
    line(depth, "const " + type_code(at(ref)) + " " + name(ref) + " = " + code + ";");
  }
  /// Declares the numbers of a call. `memory`: where an input of this type lies, in this slot.
  template <class Memory>
  void numbers(const Memory& memory);
  /// Stores what belongs to a row. `memory`: the output's, as C++.
  std::string stored_row(size_t output, const std::string& memory, const std::string& row) const;
  bool is_column(Ref ref) const {
    return at(ref).kind == LoopValue::Kind::input &&
           loops_.inputs[static_cast<size_t>(at(ref).slot)].form.kind == TensorForm::Kind::column;
  }
  std::string kept_type(Ref ref) const;
  std::string row_type(Ref ref) const;  // of what is in memory
  /// The type that a reduction is added up in, over blocks of positions.
  std::string total_type(Ref ref) const {
    return at(ref).join == Join::sum && is_real(at(ref).type) ? "double" : type_code(at(ref));
  }
  /// A loop over the lanes of a tile, with what `body` writes in it.
  template <class Body>
  void lane_loop(int depth, const Body& body, const std::string& until = "tile_lanes") {
    if (until == "tile_lanes") add("#pragma omp simd\n");
    line(depth, "for (int32_t lane = 0; lane < " + until + "; ++lane) {");
    body();
    line(depth, "}");
  }
  /// Declares an array with one element for each lane, all `start`.
  void lane_array(const std::string& type, const std::string& name, const std::string& start);
  /// How one more value joins what there is, by reduction `ref`.
  std::string join(Ref ref, const std::string& so_far, const std::string& one) const;
  std::string join_type(Ref ref) const;  // in support/joins.h
  /// Of one more value, before it joins.
  std::string one_type(Ref ref) const { return at(ref).join == Join::any ? "bool" : type_code(at(ref)); }
  std::string start(Ref ref) const { return literal_code(at(ref).type, start_of(at(ref).join, at(ref).type)); }
  /// The memory that a reduction over segments goes to: where it is kept, and outputs.
  std::vector<std::string> memory_of(Ref segment_reduction) const;
  std::vector<ScratchSize> scratch_sizes() const;
  int64_t scratch_rows() const;

  const Loops& loops_;
  const Lanes lanes_;
  Schedule plan_;
  std::set<Ref> arrays_;

 protected:
  std::string source_;

 private:
  void scratch();
};

/// --- how values stand in memory ---
std::string stored_type(const LoopValue& value);
std::string loaded(at::ScalarType dtype, const std::string& from);
std::string to_store(at::ScalarType dtype, const std::string& value);
inline bool is_record(const LoopValue& value) { return value.type == Type::record; }

template <class Memory>
void LoopText::numbers(const Memory& memory) {
  for (size_t i = 0; i < loops_.values.size(); ++i) {
    const Ref ref = static_cast<Ref>(i);
    if (at(ref).place != Place::number || plan_.is_inlined(ref)) continue;
    const bool is_input = at(ref).kind == LoopValue::Kind::input;
    constant(1, ref, is_input ? loaded(at(ref).dtype, memory(stored_type(at(ref)), at(ref).slot)) : expression(ref));
  }
}

}  // namespace triage::fused
