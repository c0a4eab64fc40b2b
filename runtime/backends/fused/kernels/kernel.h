#pragma once
#include <triage/compiler_mode.h>
#include <triage/kernels.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backends/fused/emit.h"
#include "runtime/backends/fused/gpu/accelerator.h"

namespace triage::fused {

/// Loops for a GPU (loops/gpu_text.h).
struct GpuProgram {
  std::string source, parameters;
  c10::Device device;
};

/// A generated function, on its way from source to machine code. Never unloaded: some thread may be running it.
class Kernel {
 public:
  /// Null until it is compiled, or when it cannot be. Any thread.
  RowsFunction function() const noexcept { return function_.load(std::memory_order_acquire); }
  /// The same of one for a GPU.
  const GpuCode* gpu_code() const noexcept { return gpu_code_.load(std::memory_order_acquire); }
  /// Waits until it is decided whether there is one. In a forked child too.
  void wait() const;

 private:
  friend class Compiler;
  std::atomic<RowsFunction> function_{nullptr};
  std::atomic<const GpuCode*> gpu_code_{nullptr};
  bool finished_ = false;  // the compiler's mutex guards it
};

/// The kernel of `source`: the one that this process has, one of those added to it, the one on disk, or one that a thread in
/// the background compiles with the system's compiler (TRIAGE_CXX, else `c++`). Equal sources share a kernel.
///
/// On disk: TRIAGE_KERNEL_CACHE, else XDG_CACHE_HOME/triage/kernels, else ~/.cache/triage/kernels. What a bundle brought there comes
/// first, and needs no compiler. The name is the hash of source, compiler, flags and processor; the file holds them beside the machine code, with a hash of all, and is used only
/// when they are the same to the byte, it belongs to this user, and nobody else may write to it. It is made in a folder of its
/// own and put there whole, by rename, so several processes may share the folder, those of several containers too. What was
/// not used for longest goes when there are more than 512 files or 128 MiB. Where nothing can be written, and where the disk
/// is full, kernels are compiled in the temporary folder and live in memory alone.
/// `graph`: the name of the graph that asks, for messages. With CompilerMode::off only kernels that this process has already.
std::shared_ptr<const Kernel> kernel_of(const std::string& source, const std::string& graph = {},
                                        CompilerMode compiler = CompilerMode::background);
/// The kernel of a program for a GPU, which a thread in the background compiles by the accelerator of that device: with every
/// CompilerMode, since that takes no other process and no file.
std::shared_ptr<const Kernel> gpu_kernel_of(const GpuProgram& program, const std::string& graph);
/// False where there can be none: there is no need to make the source.
bool may_have_kernel(CompilerMode compiler);

/// A kernel of a file that was named ahead of time.
struct AddedKernel {
  std::string source;
  std::function<RowsFunction()> load;               // on the first use; throws where it cannot be
  std::function<std::string()> shared_object = {};  // of this kernel alone; null where the file has none
};
/// `file` is named in the one message for a kernel that no such file has.
void add_kernels(const std::vector<AddedKernel>& kernels, const std::string& file);

/// A kernel that this process has, or had asked for: what is being compiled is waited for.
struct KernelInUse {
  std::string source;
  std::function<std::string()> shared_object;  // as of AddedKernel
};
std::vector<KernelInUse> kernels_in_use();

/// Has the thread that compiles put this into the cache folder.
void keep_calls_later(const KnownCall& call);
/// Waits until that thread is through with them. In a forked child there are none.
void wait_for_kept_calls();

/// From here until `stop_noting`, the sources of kernels that are asked for and not there go into `sources`, and are not
/// compiled. Only `noted` may look at it meanwhile.
void note_kernels(std::set<std::string>& sources);
void stop_noting(std::set<std::string>& sources);
std::set<std::string> noted(const std::set<std::string>& sources);

}  // namespace triage::fused
