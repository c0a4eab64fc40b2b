#pragma once
#include <ATen/core/Tensor.h>
#include <triage/backend.h>
#include <triage/cache_statistics.h>
#include <triage/graph.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/capture/cache/failed_sizes.h"
#include "runtime/capture/recording/held_params.h"
#include "runtime/capture/recording/kind_reads.h"
#include "runtime/capture/sizes/size_condition.h"

namespace triage {
struct ErrorConfig;
}

namespace triage::capture {

class EntryIndex;

/// What a captured graph depends on besides its inputs' values. Checked on every call, without Lua, lock or allocation.
struct Guards {
  struct InputGuard {
    uint64_t keys;  // dispatch keys: device type, layout, conj and neg bits, inference tensor
    caffe2::TypeMeta dtype;
    c10::DeviceIndex device_index;
    int64_t rank;
    bool requires_grad;
    bool wrapped;  // a wrapped number (params): decides type promotion
    static InputGuard of(const at::Tensor& tensor);
    bool fits(const at::Tensor& tensor) const noexcept;
  };
  struct FixedSize {
    size_t input;
    int64_t dim;
    int64_t size;
  };
  struct SameSize {
    size_t input;
    int64_t dim;
    size_t other;
    int64_t other_dim;
  };
  /// What the user allows a size to be (mark_dynamic).
  struct SizeRange {
    size_t input;
    int64_t dim, min, max;
  };
  /// A tensor from outside that others may write to: its values are read again on every run, all else is fixed.
  struct GuardedVariable {
    at::Tensor tensor;  // undefined where it is one of the script's variables
    size_t number;      // its number among those
    InputGuard kind;
    std::vector<int64_t> sizes;
    bool holds(at::ArrayRef<at::Tensor> script_variables) const noexcept;
  };
  std::vector<InputGuard> inputs;
  std::vector<size_t> same_as;            // by input (without params): the first that is the same tensor
  std::vector<FixedSize> sizes;           // sizes that the script read
  std::vector<SameSize> same_sizes;       // sizes that must be equal, whatever they are
  std::vector<SizeCondition> conditions;  // by which the script went its way
  std::vector<HeldParam> params;          // booleans by which the script went its way
  std::vector<SizeRange> ranges;
  std::vector<GuardedVariable> variables;
  std::vector<Source> size_lines, same_size_lines, condition_lines;  // of the script, that made these guards
  std::vector<KindLines> kind_lines;                                 // by input; may be none
  uint64_t included_keys, excluded_keys;                             // thread state: autocast, inference mode
  bool grad_mode;
  caffe2::TypeMeta default_dtype;
  uint64_t autocast;          // compat::autocast_state
  const ErrorConfig* config;  // one object for each that there ever was, whenever it holds (get_config)
  uint64_t location_resets;
  bool dynamic_output_shapes;  // CompilerConfig

  /// The last `num_params` of the inputs are params.
  static Guards of(at::ArrayRef<at::Tensor> inputs, size_t num_params = 0);
  /// Those of the graph; `script_variables` are what Script::variables gives, here and below.
  void add_variables(const graph::Graph& graph, at::ArrayRef<at::Tensor> script_variables);
  /// One that the script may ask for its size or dtype without any operator.
  void add_host_tensor(const at::Tensor& tensor);
  bool hold(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> script_variables = {}) const noexcept;
  size_t heap_bytes() const;
  /// The first guard that fails, for a person ("tensor 'x' size mismatch at index 1. expected 3, actual 4").
  std::string failure(at::ArrayRef<at::Tensor> inputs, const std::vector<std::string>& names,
                      at::ArrayRef<at::Tensor> script_variables) const;
  /// One line a guard.
  std::string text(const std::vector<std::string>& names) const;
};

/// How a call looked: enough to make up inputs of the same kind.
struct InputShape {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  c10::Device device;
  bool requires_grad;
  friend bool operator==(const InputShape&, const InputShape&) = default;
};

std::vector<InputShape> shape_of(at::ArrayRef<at::Tensor> inputs);

/// Sizes that differ in the first dimension at most.
bool same_but_rows(at::IntArrayRef a, at::IntArrayRef b);

/// One captured graph of a function.
struct CacheEntry {
  Guards guards;
  std::shared_ptr<const graph::Graph> graph;
  std::unique_ptr<Executable> executable;
  std::vector<bool> flags_outputs;
  /// The script's variables that the graph takes behind the inputs of the call, by their numbers (Script::variables).
  std::vector<size_t> lifted;
  std::vector<InputShape> shape;
  bool script_handles_errors = false;  // operators were recorded inside pcall: where the graph fails, the script runs
  bool fell_back =
      false;           // it runs with `eager`, for its backend cannot compile it, which may be an error in other calls
  bool draws = false;  // random numbers
  size_t number = 0;   // 1 for the first that its Compiled made
  const CacheEntry* next = nullptr;  // the one before it
  size_t chain = 1;                  // how many there are from here on
  /// Of the chain that ends here, where it is long: finds this entry and all before it, and may find later ones.
  const EntryIndex* index = nullptr;
  /// Of a graph that holds branches for a condition of the whole batch, of which a script takes one: where it fails,
  /// the script runs, and where that does not fail, the graph is not for such inputs. Null where there are no such
  /// branches.
  std::unique_ptr<FailedSizes> failed;

  /// What the graph takes: the inputs of the call, then those variables of the script that it reads.
  using Tensors = c10::SmallVector<at::Tensor, 8>;
  Tensors taken(at::ArrayRef<at::Tensor> all, at::ArrayRef<at::Tensor> script_variables) const;
  bool fits(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> script_variables) const noexcept {
    return guards.hold(inputs, script_variables) && !(failed && failed->exclude(inputs));
  }
};

/// The captured graphs of one function. They are only ever added, one thread at a time, and live as long as this
/// object; any number of threads find them meanwhile, without a lock.
class EntryCache {
 public:
  EntryCache();
  ~EntryCache();
  const CacheEntry* find(at::ArrayRef<at::Tensor> all, at::ArrayRef<at::Tensor> script_variables) const noexcept;
  /// Of those in use; null where there is none.
  const CacheEntry* newest() const noexcept { return newest_.load(std::memory_order_acquire); }
  /// In the order in which they were captured.
  std::vector<const CacheEntry*> in_use() const;
  /// With those that were retired, for the thread that adds.
  const std::vector<std::unique_ptr<CacheEntry>>& all() const { return entries_; }
  void add(std::unique_ptr<CacheEntry> entry);
  void retire_all() noexcept { newest_.store(nullptr, std::memory_order_release); }
  /// See Compiled::renumber_variables.
  bool renumber_variables(at::ArrayRef<size_t> now, size_t count);
  CacheStatistics statistics() const;

 private:
  std::atomic<const CacheEntry*> newest_{nullptr};
  std::vector<std::unique_ptr<CacheEntry>> entries_;
  std::vector<std::unique_ptr<EntryIndex>> indexes_;
  std::atomic<size_t> num_entries_{0}, entry_bytes_{0};  // as statistics read them
};

}  // namespace triage::capture
