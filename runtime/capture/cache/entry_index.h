#pragma once
#include "runtime/capture/cache/entry_cache.h"

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace triage::capture {

/// Finds one of many entries without a look at the others, by what guards ask most: kinds of the inputs, and sizes that
/// the script read. `add`: one thread at a time. `find`: any number meanwhile, without a lock.
class EntryIndex {
 public:
  EntryIndex();
  ~EntryIndex();
  EntryIndex(const EntryIndex&) = delete;
  EntryIndex& operator=(const EntryIndex&) = delete;

  void add(const CacheEntry& entry);
  /// The newest entry whose guards hold; null where there is none.
  const CacheEntry* find(at::ArrayRef<at::Tensor> inputs,
                         at::ArrayRef<at::Tensor> script_variables = {}) const noexcept;

 private:
  struct EntryIndexSlot {
    const CacheEntry* entry;
    uint64_t hash;
    const EntryIndexSlot* older;
  };
  /// Entries whose guards fix sizes of the same dimensions, which their hashes are made of.
  struct EntryIndexGroup {
    using Dim = std::pair<size_t, int64_t>;  // input, dimension
    std::vector<Dim> dims;
    std::array<std::atomic<const EntryIndexSlot*>, 256> heads{};
    std::deque<EntryIndexSlot> slots;
    const EntryIndexGroup* next = nullptr;
    const CacheEntry* find(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> script_variables) const noexcept;
  };
  EntryIndexGroup& group_of(std::vector<EntryIndexGroup::Dim> dims);

  std::vector<std::unique_ptr<EntryIndexGroup>> groups_;
  std::atomic<const EntryIndexGroup*> first_{nullptr};
};

}  // namespace triage::capture
