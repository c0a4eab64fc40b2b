#pragma once
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/backends/fused/loop_call.h"

namespace triage::fused {

/// When what is computed. A row is gone through in passes; in a pass, loops over the extents run one after the other,
/// those first whose positions are segments of others. A loop that looks at segments runs over them, and over the
/// positions of each in steps. What needs a reduction over the row comes in a later pass, what needs one over the
/// segment in a later step.
class Schedule {
 public:
  struct Time {
    int pass = 0, step = 0;
    bool operator<(const Time& other) const { return std::tie(pass, step) < std::tie(other.pass, other.step); }
    bool operator==(const Time& other) const { return pass == other.pass && step == other.step; }
  };
  /// Memory that an element value is kept in, since it is read again.
  struct ElementBuffer {
    bool output = false;   // it is one, and read back; else it is kept in scratch memory
    bool segment = false;  // only the segment at hand is kept
  };

  /// `keeps`: what is worth it is kept from one pass to the next, else all is computed again.
  explicit Schedule(const Loops& loops, bool keeps = true);
  /// What a selection takes in rows that stay as they are is written as it goes by in pass 0, where it is an input that
  /// is read there anyhow; only the others, which are rare, are written again.
  void choose_early();

  const LoopValue& at(Ref ref) const { return loops_.values[static_cast<size_t>(ref)]; }
  const RowExtent& extent(int32_t index) const { return loops_.extents[static_cast<size_t>(index)]; }
  bool is_element(Ref ref) const { return at(ref).place == Place::element; }
  /// Whether it is written in the expressions of others, and has no name (expression.h).
  bool is_inlined(Ref ref) const { return inlined_[static_cast<size_t>(ref)]; }
  const std::vector<bool>& inlined() const { return inlined_; }
  bool is_segment_reduction(Ref ref) const { return at(ref).kind == LoopValue::Kind::reduce && is_element(ref); }

  int last_pass() const { return last_pass_; }
  /// Of a row's value, or of an element in the loop over its own extent.
  int pass_of(Ref ref) const { return time(ref, at(ref).extent).pass; }
  /// Whether the loop over its own extent computes element `ref` first at that time.
  bool is_made(Ref ref, Time now) const { return time(ref, at(ref).extent) == now; }
  /// When reduction `ref` runs.
  Time time_of_reduction(Ref ref) const { return time(at(ref).operands[0], at(at(ref).operands[0]).extent); }
  /// The extents, in the order in which their loops run.
  const std::vector<int32_t>& order() const { return order_; }
  bool has_segments(int pass, int32_t loop) const;
  int last_step(int pass, int32_t loop) const;

  /// The element values that a loop has to produce at a time: for its reductions, outputs and kept values.
  std::vector<Ref> roots(Time now, int32_t loop) const;
  const std::vector<Ref>& reductions(Time now, int32_t loop) const;
  /// Those, and all behind them that are computed or read then, in order; not what is inlined.
  std::set<Ref> needed_in(Time now, int32_t loop) const;
  std::set<Ref> needed_in(int pass, int32_t loop) const;  // in all steps
  void need(Ref root, Time now, int32_t loop, std::set<Ref>& needed) const;
  /// Whether a value that was kept is read at that time.
  bool is_kept_before(Ref ref, Time now, int32_t loop) const;
  /// Whether loop `loop` leaves the result of this reduction over segments in a variable.
  bool is_local(Ref ref, int pass, int32_t loop) const;
  /// The elements that the loop over `loop` keeps in scratch memory at a time.
  std::vector<Ref> kept_at(Time now, int32_t loop) const;

  /// Whether a loop writes output `i` at a time.
  bool stores(size_t i, Time now, int32_t loop) const;
  /// Outputs that are a selection, and the input they mostly are.
  const std::map<size_t, Ref>& early() const { return early_; }
  /// Whether the rows of output `i` that stay as they are, are there before its pass.
  bool is_changed_later(size_t i) const { return early_.count(i) != 0; }

 private:
  void find_times();
  Time earliest(Ref ref, int32_t loop) const;
  Time time(Ref ref, int32_t loop) const;
  void find_one_loops();
  void choose_kept();
  bool selects_rows(Ref ref) const;
  /// Whether a loop over all positions of a row can compute this element, whichever segment they are in.
  bool is_one_loop(Ref ref) const { return one_loop_[static_cast<size_t>(ref)]; }

  const Loops& loops_;
  const std::vector<bool> inlined_;
  std::vector<Time> times_;  // of each value: for code of the row, and for each loop
  std::vector<bool> one_loop_;
  std::map<std::tuple<int32_t, int, int>, std::vector<Ref>> reductions_;  // of a loop, in a pass, at a step
  int last_pass_ = 0;
  std::vector<int32_t> order_;
  std::map<Ref, ElementBuffer> kept_;
  std::map<size_t, Ref> early_;
};

}  // namespace triage::fused
