#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace triage::cli {

/// How many samples the calls of a version had, and how many of them were flagged. A log has lines only for some calls,
/// but each line has the totals of its version by then: what lies between two lines is their difference. Totals begin
/// anew with each process, and each load of a policy has its own: a line belongs to the row of totals that it can go
/// on.
class SampleCount {
 public:
  struct Totals {
    uint64_t samples = 0, flagged = 0;
  };
  /// Of a line for a call of `batch` samples, `flagged` of them with errors, which are in `now`. `counts`: whether the
  /// line is asked for. `whole`: all lines are, so that what was before the first line counts where no line is missing.
  void add_call(const Totals& now, uint64_t batch, uint64_t flagged, bool counts, bool whole) {
    add(now, batch, flagged, counts, whole);
  }
  /// Of a version that is replaced, which may have no other line.
  void add_end(const Totals& now, bool counts, bool whole) {
    add(now, 0, rows_.empty() ? now.flagged : 0, counts, whole);
  }
  uint64_t samples() const noexcept { return samples_; }
  uint64_t flagged() const noexcept { return flagged_; }

 private:
  void add(const Totals& now, uint64_t batch, uint64_t flagged, bool counts, bool whole);

  static constexpr size_t most_rows = 64;
  std::vector<Totals> rows_;  // the last ones of each
  uint64_t samples_ = 0, flagged_ = 0;
};

}  // namespace triage::cli
