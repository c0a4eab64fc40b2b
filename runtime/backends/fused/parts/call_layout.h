#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <optional>
#include <utility>

#include "runtime/backends/fused/loop_ir.h"
#include "runtime/backends/fused/parts/joined_outputs.h"
#include "runtime/backends/fused/parts/output_pool.h"

namespace triage::fused {

/// Where the inputs of one call of loops lie, and what follows from their sizes.
class CallLayout {
 public:
  /// Inputs must be on `device`; numbers may be the host's. Dense copies come from `shared`, where there is one.
  CallLayout(const Loops& loops, c10::Device device, OutputPool* shared)
      : loops_(loops), device_(device), shared_(shared) {}

  /// False where they are not what the loops were written for, or `too_large`.
  bool lay_out(at::ArrayRef<at::Tensor> inputs);
  bool numbers_fit() const;
  bool within_terms(const std::optional<std::chrono::steady_clock::time_point>& deadline) const;
  int64_t count(int32_t extent) const;  // of positions
  Sizes sizes_of(const LoopOutput& output) const;

  int64_t batch = -1;
  c10::SmallVector<const void*, 8> in;                      // one for each of Loops::inputs
  c10::SmallVector<int64_t, 8> stride;                      // bytes from one row to the next
  c10::SmallVector<bool, 8> on_host;                        // of another device: a number that goes by value
  c10::SmallVector<int64_t, 4> extents;                     // how many positions
  c10::SmallVector<Sizes, 4> sizes;                         // of each extent; none until an input has told
  c10::SmallVector<std::pair<size_t, at::Tensor>, 4> kept;  // dense copies, and by which slot they are read
  bool too_large = false;                                   // a copy that what is not trusted may not take

 private:
  bool lay_out(const LoopInput& input, const at::Tensor& tensor);
  bool tell(size_t extent, at::IntArrayRef told);
  bool tell_parts(const RowExtent& extent, at::IntArrayRef whole);
  bool resolve_sizes();
  bool resolve_parts(size_t extent);
  bool reshape(const Reshape& reshape);
  bool find_numbers();
  std::optional<int64_t> size_of(const HostNumber& number) const;

  const Loops& loops_;
  const c10::Device device_;
  OutputPool* const shared_;
  c10::SmallVector<int64_t, 8> computed_;  // the memory of inputs that the host computes
};

}  // namespace triage::fused
