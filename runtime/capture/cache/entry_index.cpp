#include "runtime/capture/cache/entry_index.h"

#include <algorithm>

namespace triage::capture {
namespace {

/// FNV-1a, a word at a time, with the high bits brought down for the choice of a list.
class Hash {
 public:
  void add(uint64_t word) noexcept { state_ = (state_ ^ word) * 0x100000001b3; }
  void add(uint64_t keys, caffe2::TypeMeta dtype, int64_t rank) noexcept {
    add(keys);
    add(static_cast<uint64_t>(c10::typeMetaToScalarType(dtype)));
    add(static_cast<uint64_t>(rank));
  }
  uint64_t value() const noexcept { return state_ ^ (state_ >> 29); }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace

EntryIndex::EntryIndex() = default;
EntryIndex::~EntryIndex() = default;

EntryIndex::EntryIndexGroup& EntryIndex::group_of(std::vector<EntryIndexGroup::Dim> dims) {
  for (const auto& group : groups_)
    if (group->dims == dims) return *group;
  EntryIndexGroup& group = *groups_.emplace_back(std::make_unique<EntryIndexGroup>());
  group.dims = std::move(dims);
  group.next = first_.load(std::memory_order_relaxed);
  first_.store(&group, std::memory_order_release);
  return group;
}

void EntryIndex::add(const CacheEntry& entry) {
  std::vector<Guards::FixedSize> sizes = entry.guards.sizes;
  const auto dim = [](const Guards::FixedSize& size) { return EntryIndexGroup::Dim(size.input, size.dim); };
  std::stable_sort(sizes.begin(), sizes.end(), [&](const auto& a, const auto& b) { return dim(a) < dim(b); });
  sizes.erase(std::unique(sizes.begin(), sizes.end(), [&](const auto& a, const auto& b) { return dim(a) == dim(b); }),
              sizes.end());
  std::vector<EntryIndexGroup::Dim> dims;
  Hash hash;
  for (const Guards::InputGuard& input : entry.guards.inputs) hash.add(input.keys, input.dtype, input.rank);
  for (const Guards::FixedSize& size : sizes) {
    dims.push_back(dim(size));
    hash.add(static_cast<uint64_t>(size.size));
  }
  EntryIndexGroup& group = group_of(std::move(dims));
  auto& head = group.heads[hash.value() % group.heads.size()];
  group.slots.push_back({&entry, hash.value(), head.load(std::memory_order_relaxed)});
  head.store(&group.slots.back(), std::memory_order_release);
}

const CacheEntry* EntryIndex::EntryIndexGroup::find(at::ArrayRef<at::Tensor> inputs,
                                                    at::ArrayRef<at::Tensor> script_variables) const noexcept {
  Hash hash;
  for (const at::Tensor& input : inputs) {
    const c10::TensorImpl* impl = input.unsafeGetTensorImpl();
    if (impl->key_set().has(c10::DispatchKey::NestedTensor)) return nullptr;  // has no sizes to ask for, and no graphs
    hash.add(impl->key_set().raw_repr(), impl->dtype(), impl->dim());
  }
  for (const auto& [input, dim] : dims) {
    if (input >= inputs.size() || dim >= inputs[input].dim()) return nullptr;
    hash.add(static_cast<uint64_t>(inputs[input].unsafeGetTensorImpl()->size(dim)));
  }
  const uint64_t wanted = hash.value();
  for (const EntryIndexSlot* slot = heads[wanted % heads.size()].load(std::memory_order_acquire); slot;
       slot = slot->older)
    if (slot->hash == wanted && slot->entry->fits(inputs, script_variables)) return slot->entry;
  return nullptr;
}

const CacheEntry* EntryIndex::find(at::ArrayRef<at::Tensor> inputs,
                                   at::ArrayRef<at::Tensor> script_variables) const noexcept {
  const CacheEntry* newest = nullptr;
  for (const EntryIndexGroup* group = first_.load(std::memory_order_acquire); group; group = group->next) {
    const CacheEntry* found = group->find(inputs, script_variables);
    if (found && (!newest || found->number > newest->number)) newest = found;
  }
  return newest;
}

}  // namespace triage::capture
