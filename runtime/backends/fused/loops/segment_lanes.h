#pragma once
#include <string>
#include <vector>

#include "runtime/backends/fused/loops/loop_text.h"

namespace triage::fused {

/// The loop over the segments of a row, tile_lanes of them at a time: each lane goes through the positions of its own segment.
/// So short segments cost no more than their elements do, and where dims of the segments follow those of the positions, the
/// lanes are neighbours in memory. Each segment is added up in the same order, whichever lane it is in.
class SegmentLanes {
 public:
  SegmentLanes(LoopText& text, int pass, int32_t extent);
  void write();
  /// Where position i of a row stands in the scratch memory of an extent.
  static std::string kept_index(const LoopText& text, int32_t extent);

 private:
  struct Tile {
    std::string name;    // "x3": of an input; "y1": of an output
    std::string memory;  // "i3", "o1"
    bool read, written;
  };
  std::vector<Tile> tiles() const;
  void open_loops();
  void fetch(const Tile& tile);
  void store(const Tile& tile);
  void step(int number);
  void segment_values(const Run& run);
  void element_loop(const Run& run);
  void joined_positions(const Run& run, const std::vector<Ref>& reductions);
  void positions(const Run& run, const std::vector<Ref>& reductions);
  void finish_segments(const std::vector<Ref>& reductions);
  std::string read(Ref ref, const Run& run) const;
  std::string place_kept(Ref ref) const;
  void row_totals();
  const LoopValue& at(Ref ref) const { return text_.at(ref); }

  LoopText& text_;
  const Schedule& plan_;
  const int pass_;
  const int32_t extent_;
  const Extent& whole_;
  const bool inner_;
  const int32_t lanes_extent_;  // whose positions are the lanes
};

}  // namespace triage::fused
