#pragma once
#include <c10/util/SmallVector.h>
#include <triage/backend.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/backends/fused/fusion_groups.h"

namespace triage::fused {

/// A part without loops that reads params and sizes alone, such as the row that all samples of a batch get for a param:
/// what a call made, the next one has if they are the same. Nobody may write to the results, nor do they leave the
/// graph. Keeps the results of four calls, of 4 MiB each at most. Lock-free: a thread that finds nothing, because
/// another one looks at it, computes.
class KeptCall final : public Executable {
 public:
  /// Whether all that `part` computes follows from params and sizes, and is more than a number. (A constant may be a
  /// variable, which the host writes to.)
  static bool takes(const FusionGroup& part);
  explicit KeptCall(const FusionGroup& part);
  ~KeptCall() override;
  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override;
  size_t bytes() const override { return sizeof(*this) + interpreter_->bytes(); }

 private:
  using Key = c10::SmallVector<int64_t, 16>;
  struct CachedResults {
    Key key;
    std::vector<at::Tensor> results;
  };
  bool read_key(at::ArrayRef<at::Tensor> inputs, Key& key) const;
  CachedResults* take(const Key& key) const;
  void put_back(CachedResults* kept) const;

  std::unique_ptr<Executable> interpreter_;
  std::vector<size_t> params_;                     // inputs whose values are read
  std::vector<std::pair<size_t, int64_t>> sizes_;  // inputs, and dims, whose sizes are
  mutable std::atomic<size_t> oldest_{0};
  mutable std::array<std::atomic<CachedResults*>, 4> slots_{};  // each owns what it points to
};

}  // namespace triage::fused
