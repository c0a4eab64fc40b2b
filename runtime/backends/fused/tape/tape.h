#pragma once
#include <c10/util/ArrayRef.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/backends/fused/loop_call.h"

namespace triage::fused {

struct Steps;

/// The outputs and inputs that are alike, those first in which rows that a selection leaves as they are need not be
/// written. Where an input is read once the output is written, there is no such tape.
std::vector<InPlace> in_place_choices(const Loops& loops);

/// A line of the listing of a tape.
struct ListedLine {
  std::string text;
  int32_t step = -1;   // its number; -1: a heading
  std::string source;  // the line of the script that it belongs to; empty: not known
};
std::string text_of(const std::vector<ListedLine>& listing);

/// Loops as steps: each is a primitive that was compiled with the library (primitives.h), on a chunk of values, which
/// stay in the first cache. A row (of short rows, a tile of them) goes through levels: what belongs to the row, loops
/// over its positions, reductions over segments. A later level needs what an earlier one has reduced. The order of
/// additions is the one of support/joins.h, on every processor.
class Tape {
 public:
  /// Null where some value has no primitive; or where the output cannot be written in place.
  static std::unique_ptr<const Tape> make(const Loops& loops, Lanes lanes, std::optional<InPlace> in_place = {});
  ~Tape();
  /// What `run` takes of LoopCall::scratch for rows of these extents.
  int64_t scratch_bytes(c10::ArrayRef<int64_t> extents) const;
  void run(const LoopCall& call, int64_t begin, int64_t end) const;
  /// How many there are over positions.
  size_t steps() const;
  /// The steps as text. `lines`: Loops::lines.
  std::vector<ListedLine> listing(const std::vector<std::string>& lines) const;

 private:
  explicit Tape(Steps&& steps);
  const std::unique_ptr<const Steps> steps_;
};

}  // namespace triage::fused
