#include "bindings/cli/commands/incident/sample_count.h"

namespace triage::cli {

void SampleCount::add(const Totals& now, uint64_t batch, uint64_t flagged, bool counts, bool whole) {
  Totals* row = nullptr;
  for (Totals& one : rows_) {
    const bool fits = one.samples + batch <= now.samples && one.flagged + flagged <= now.flagged;
    if (fits && (!row || one.samples > row->samples)) row = &one;
  }
  Totals more{batch, flagged};
  if (row)
    more = {now.samples - row->samples, now.flagged - row->flagged};
  else if (whole && now.flagged == flagged)  // no line is missing before this one
    more = now;
  if (counts) samples_ += more.samples, flagged_ += more.flagged;
  if (row) {
    *row = now;
    return;
  }
  if (rows_.size() == most_rows) rows_.erase(rows_.begin());
  rows_.push_back(now);
}

}  // namespace triage::cli
