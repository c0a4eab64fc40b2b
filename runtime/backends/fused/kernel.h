#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "runtime/backends/fused/emit.h"

namespace triage::fused {

/// A generated function, on its way from source to machine code. Never unloaded: some thread may be running it.
class Kernel {
 public:
  /// Null until it is compiled, or when it cannot be. Any thread.
  RowsFunction function() const noexcept { return function_.load(std::memory_order_acquire); }
  /// Waits until it is decided whether there is one. In a forked child too.
  void wait() const;

 private:
  friend class Compiler;
  std::atomic<RowsFunction> function_{nullptr};
  bool finished_ = false;  // the compiler's mutex guards it
};

/// The kernel of `source`: the one that this process has, the one on disk, or one that a thread in the background compiles
/// with the system's compiler (TRIAGE_CXX, else `c++`). Equal sources share a kernel.
///
/// On disk: TRIAGE_KERNEL_CACHE, else XDG_CACHE_HOME/triage/kernels, else ~/.cache/triage/kernels. The name is the hash of
/// source, compiler, flags and processor; a file is used only when it belongs to this user, nobody else may write to it, and
/// its content has the hash that is kept beside it. It is put there whole, by rename, so several processes may share the
/// folder. The oldest files go when there are more than 512. Where nothing can be written, kernels live in memory alone.
std::shared_ptr<const Kernel> kernel_of(const std::string& source);

}  // namespace triage::fused
