#pragma once
#include <ATen/core/Tensor.h>
#include <triage/api.h>
#include <triage/layout.h>

#include <cstdint>
#include <string>
#include <vector>

/// Where in a sample an error stands first, for the locations that a policy lists in its field `positions`. Flags have
/// no room for that: positions leave a call beside its outputs (RunInfo::positions).
namespace triage {

struct TRIAGE_API FirstPositions {
  std::string location;
  /// int64, (N, 3, D), on the device of the tensor that was searched: of each sample the indices of its first NaN, of
  /// its first Inf, and of its first index out of bounds, counted from 0 in the D dimensions behind dim 0. -1 where the
  /// sample has none. Of tensors that are searched at one location with as many dimensions, the first that has any; of
  /// others, those of the first tensor. (0, 3, 0): the call searched nothing there.
  at::Tensor at;

  /// Of an error with this code in this sample; empty where there is none. Waits for the device.
  std::vector<int64_t> of(int64_t sample, Code code) const;
};

/// That of the location of this name; empty where there is none.
TRIAGE_API std::vector<int64_t> find_position(const std::vector<FirstPositions>& positions, const std::string& location,
                                              int64_t sample, Code code);
/// "[3, 17]".
TRIAGE_API std::string position_text(const std::vector<int64_t>& position);

}  // namespace triage
