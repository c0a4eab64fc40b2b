#pragma once
// The errors in a flags tensor, one after the other. Samples without errors cost one look.
#include <runtime/flags/checks.h>
#include <runtime/flags/records/rows.h>
#include <triage/config.h>

#include <algorithm>

namespace triage::flags {

/// How many slots of a sample the configuration has, where its flags are as wide as these: behind them stands what it never
/// wrote, in flags from elsewhere. Of flags of another width all count.
inline int64_t slots_of(const at::Tensor& f, const ErrorConfig& config) {
  return f.size(1) == check::words_for(config.num_slots, f.scalar_type()) ? config.num_slots : MAX_SLOTS;
}

/// Calls visit(sample, slot index, slot) for each error in the first `slots` of the samples [begin, end). Stretches without
/// errors are read at the speed of memory; rows and slots are looked at only in the others.
template <class Visit>
void each_error(const at::Tensor& contiguous, int64_t begin, int64_t end, int64_t slots, Visit visit) {
  const cpu::Rows rows(contiguous);
  const int64_t stretch = cpu::rows_in_stretch(rows);
  for (int64_t first = begin; first < end; first += stretch) {
    const int64_t last = std::min(first + stretch, end);
    if (!cpu::any_live(rows, first, last)) continue;
    for (int64_t sample = first; sample < last; ++sample) {
      each_error_slot(rows[sample], rows.width, [&](int64_t index, uint16_t slot) {
        if (index < slots) visit(sample, index, slot);
      });
    }
  }
}

/// Which entries of a flags tensor are overflow records (layout.h), as far as a configuration can tell.
class Overflow {
 public:
  Overflow(const at::Tensor& f, const ErrorConfig& config) {
    if (config.track_overflow && slots_of(f, config) == config.num_slots) slot_ = config.num_slots - 1;
  }
  bool is(int64_t index, uint16_t slot) const { return index == slot_ && is_overflow_record(slot); }

 private:
  int64_t slot_ = -1;
};

}  // namespace triage::flags
