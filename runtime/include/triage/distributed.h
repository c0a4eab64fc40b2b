#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <triage/api.h>
#include <triage/error.h>
#include <triage/error_report.h>
#include <triage/params.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Several processes ("ranks") that train or serve together: one decision, one report, the same policies.
///
///     triage::Group ranks(process_group);              // of LibTorch's c10d
///     if (triage::agree(err::is_err(f), ranks)) continue;   // all ranks skip this step, or none
///     triage::ErrorReport all = triage::reduce(triage::report_of(f), ranks);
///
/// Every function here is a collective operation: each rank must call it, in the same order, whatever its own data is.
/// A rank that leaves one out makes the others wait until the process group's timeout.
namespace triage {

class Runtime;
class Policy;

/// A collective operation failed: a rank is gone or did not come in time, or the ranks did not do the same.
class TRIAGE_API DistributedError : public Error {
  using Error::Error;
};

/// The ranks that work together. A cheap handle; copies share the group. Only one thread at a time may run an
/// operation on it, as c10d pairs operations by their order: a second one gets an InputError.
class TRIAGE_API Group {
 public:
  /// Replaces a tensor, contiguous on the CPU, by its sum over all ranks, and returns when it is there. Throws if it
  /// does not come. The tensor is int64; that of `all_reduce` may be float32 or float64, too.
  using Sum = std::function<void(at::Tensor& tensor)>;

  /// A group of one rank: this process.
  Group();
  /// Ranks that are connected by something other than c10d. Throws InputError unless 0 <= rank < size.
  Group(int rank, int size, Sum sum);
  /// The ranks of a process group of c10d: a `c10d::ProcessGroup`, or a backend such as `c10d::ProcessGroupGloo`. The
  /// program includes the headers of c10d; triage needs none of them. Tensors go to the device that the backend takes
  /// ("nccl": the current CUDA device). Waits as long as the timeout of the process group says.
  template <class ProcessGroup>
  explicit Group(c10::intrusive_ptr<ProcessGroup> process_group)
      : Group(checked(process_group)->getRank(), process_group->getSize(), [process_group](at::Tensor& tensor) {
          const bool on_gpu = process_group->getBackendName() == "nccl";
          std::vector<at::Tensor> tensors{on_gpu ? tensor.to(at::kCUDA) : tensor};
          process_group->allreduce(tensors)->wait();
          if (on_gpu) tensor.copy_(tensors[0]);
        }) {}

  int rank() const noexcept;
  int size() const noexcept;
  /// The host's number of the step that begins. Ranks that call an operation at different steps get a
  /// DistributedError, for example if a policy ran twice on one of them. Initially 0.
  void set_step(int64_t step) noexcept;

 private:
  friend class Exchange;
  struct State;
  template <class ProcessGroup>
  static const c10::intrusive_ptr<ProcessGroup>& checked(const c10::intrusive_ptr<ProcessGroup>& group) {
    if (!group) throw InputError("Group: expected a process group, got a null pointer");
    return group;
  }
  std::shared_ptr<State> state_;
};

struct AgreeOptions {
  /// The decision is yes if more than this share of the samples of all ranks is bad. 0: any. From 0 up to, but without,
  /// 1; the same on all ranks.
  double share = 0;
};

/// Whether to skip: the same answer on every rank. `bad` is a bool mask of this rank's samples, of any shape; empty for
/// a rank without samples. One all-reduce. Throws DistributedError. A rank with a wrong argument tells the others: it
/// throws InputError, and they a DistributedError at once. The group can go on then.
TRIAGE_API bool agree(const at::Tensor& bad, const Group& group, const AgreeOptions& options = {});
/// The same for a rank as a whole, for example if its loss is not finite: counts as one sample.
TRIAGE_API bool agree(bool bad, const Group& group, const AgreeOptions& options = {});

struct ReduceOptions {
  size_t examples = 8;  ///< of all ranks together, at most; spread over the ranks; the same on all ranks
};

/// The report of all ranks, on every rank: counts are added by the names of locations, whose numbers may differ between
/// processes. Two all-reduces. Throws as `agree` does.
TRIAGE_API ErrorReport reduce(const ErrorReport& report, const Group& group, const ReduceOptions& options = {});

/// The sum of each tensor over all ranks, for example of gradients: new tensors of the same sizes, dtypes and devices,
/// which carry no gradient (PyTorch's torch.distributed.all_reduce writes in place). Numbers of any dtype but complex
/// ones: float16 and bfloat16 are added as float32, integers as int64. All go through the CPU. The ranks give tensors
/// of the same sizes and dtypes, in the same order: else all get a DistributedError that shows them, and the group can
/// go on. Up to four all-reduces: one to compare, one for each dtype that is added. Throws as `agree` does.
TRIAGE_API std::vector<at::Tensor> all_reduce(at::ArrayRef<at::Tensor> tensors, const Group& group);

struct SameOptions {
  /// What the host has set with Policy::set_param, which a policy does not tell.
  Params params = {};
  /// If the ranks differ: how often to reload the policy from its file and compare again, and the pause before each.
  /// A file that is written while ranks read it, or that reaches some machines later, is no error then. The same on all
  /// ranks.
  int reloads = 0;
  std::chrono::milliseconds pause{100};
};

/// Checks that all ranks run the same policy: the source with the files that it reads, inputs, outputs, defaults of
/// params, and `SameOptions::params`. Throws DistributedError, on every rank, that names the ranks and what differs;
/// for a wrong argument as `agree` does.
TRIAGE_API void check_same(const Policy& policy, const Group& group, const SameOptions& options = {});

/// Gives policies that are loaded later the table `dist`: `dist.agree`, `dist.reduce_report`, `dist.all_reduce`,
/// `dist.rank`, `dist.world_size` (docs/distributed.md). Calls are graph breaks: the script runs in each call, and each
/// operation exactly as often as the script says. The policy's own tests get the answers of this rank alone, and a call
/// while its file is loaded is an error. `Policy::run` throws PolicyError where these operations throw. Without this
/// function, a policy that uses `dist` gets an error.
TRIAGE_API void define_dist(Runtime& runtime, const Group& group);

}  // namespace triage
