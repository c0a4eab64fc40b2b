#pragma once
// The errors in a flags tensor, one after the other. Samples without errors cost one look.
#include <runtime/flags/checks.h>
#include <runtime/flags/records/rows.h>
#include <triage/config.h>

#include <algorithm>

namespace triage::flags {

/// Calls visit(sample, slot index, slot) for each error of the samples [begin, end). Every slot of the words counts,
/// also those that the configuration does not use: operators on flags know no configuration, and all see the same
/// errors. Stretches without errors are read at the speed of memory; rows and slots are looked at only in the others.
template <class Visit>
void each_error(const at::Tensor& contiguous, int64_t begin, int64_t end, Visit visit) {
  const cpu::SlotRows rows(contiguous);
  const int64_t stretch = cpu::rows_in_stretch(rows);
  for (int64_t first = begin; first < end; first += stretch) {
    const int64_t last = std::min(first + stretch, end);
    if (!cpu::any_live(rows, first, last)) continue;
    for (int64_t sample = first; sample < last; ++sample) {
      each_error_slot(rows[sample], rows.width, [&](int64_t index, uint16_t slot) { visit(sample, index, slot); });
    }
  }
}

/// The last slot of a record that errors go to: of the configuration, where it makes such flags, else of the words.
/// Operators fill a record from slot 0 on, so it is full where that slot is taken.
inline int64_t last_slot(const at::Tensor& f, const ErrorConfig& config) {
  const bool as_configured = f.size(1) == check::words_for(config.num_slots, f.scalar_type());
  return (as_configured ? config.num_slots : f.size(1) * check::slots_per_word(f.scalar_type())) - 1;
}

/// Which entries of a flags tensor are overflow records (layout.h), as far as a configuration can tell.
class Overflow {
 public:
  Overflow(const at::Tensor& f, const ErrorConfig& config) {
    const bool as_wide = f.size(1) == check::words_for(config.num_slots, f.scalar_type());
    if (config.track_overflow && as_wide) slot_ = config.num_slots - 1;
  }
  bool is(int64_t index, uint16_t slot) const { return index == slot_ && is_overflow_record(slot); }

 private:
  int64_t slot_ = -1;
};

}  // namespace triage::flags
