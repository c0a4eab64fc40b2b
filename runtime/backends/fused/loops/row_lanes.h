#pragma once
#include <string>
#include <vector>

#include "runtime/backends/fused/loops/loop_text.h"

namespace triage::fused {

/// Loops over tile_lanes rows at a time, each lane with a row of its own: for rows of a few positions, and what is computed of
/// them. Elements lie in tiles (support/tiles.h), what belongs to a row in an array.
class RowLanes : public LoopText {
 public:
  explicit RowLanes(const Loops& loops) : LoopText(loops, Lanes::rows) {}
  Emitted run();

 private:
  void load_tiles();
  void row_values(int pass);
  /// An empty record is written where it is used: as an array it would be copied.
  std::string name(Ref ref) const override {
    return at(ref).is(Opcode::record_empty) ? expression(ref) : LoopText::name(ref);
  }
  bool is_of_records(Ref ref) const;
  void row_value(Ref ref);
  std::string input_of_lane(Ref ref) const;
  void classify(Ref ref);
  void segments_loop(int pass, int32_t extent);
  void segment_values(const Run& run);
  void element_loop(const Run& run);
  void positions(const Run& run, const std::vector<Ref>& reductions);
  void body(const std::set<Ref>& needed, const Run& run);
  std::string index(Ref ref, const Run& run) const;
  std::string read(Ref ref, const Run& run) const;
  void declare(const std::vector<Ref>& reductions, bool of_segments);
  void store_segments(const std::vector<Ref>& reductions);
  void store_outputs();
};

}  // namespace triage::fused
