#include "runtime/capture/cache/entry_cache.h"

#include "runtime/capture/cache/entry_index.h"
#include "runtime/graph/memory.h"
#include "runtime/messages/assert.h"

#include <algorithm>

namespace triage::capture {
namespace {

constexpr size_t most_in_turn = 8;  // looked at one by one; where there are more, an index finds those behind them

size_t bytes_of(const CacheEntry& entry) {
  size_t bytes = sizeof(CacheEntry) + entry.guards.heap_bytes() + graph::heap_bytes(entry.shape) +
                 graph::bytes(*entry.graph) + entry.executable->bytes();
  for (const InputShape& shape : entry.shape) bytes += graph::heap_bytes(shape.sizes);
  return bytes;
}

[[maybe_unused]] bool any_fits(const CacheEntry* entry, at::ArrayRef<at::Tensor> all,
                               at::ArrayRef<at::Tensor> variables) {
  while (entry && !entry->fits(all, variables)) entry = entry->next;
  return entry;
}

}  // namespace

EntryCache::EntryCache() = default;
EntryCache::~EntryCache() = default;

CacheEntry::Tensors CacheEntry::taken(at::ArrayRef<at::Tensor> all, at::ArrayRef<at::Tensor> script_variables) const {
  Tensors tensors(all.begin(), all.end());
  for (const size_t number : lifted) tensors.push_back(script_variables[number]);
  return tensors;
}

const CacheEntry* EntryCache::find(at::ArrayRef<at::Tensor> all, at::ArrayRef<at::Tensor> variables) const noexcept {
  const CacheEntry* const newest = this->newest();
  size_t left = most_in_turn;
  for (const CacheEntry* entry = newest; entry; entry = entry->next) {
    if (entry->fits(all, variables)) return entry;
    if (--left > 0) continue;
    const CacheEntry* const found = newest->index ? newest->index->find(all, variables) : nullptr;
    TRIAGE_ASSERT(found ? found->fits(all, variables) : !any_fits(entry->next, all, variables));
    return found;
  }
  return nullptr;
}

void EntryCache::add(std::unique_ptr<CacheEntry> added) {
  CacheEntry* entry = entries_.emplace_back(std::move(added)).get();
  entry->number = entries_.size();
  entry->next = newest_.load(std::memory_order_relaxed);
  if (entry->next) {
    entry->chain = entry->next->chain + 1;
    entry->index = entry->next->index;
  }
  if (entry->chain > most_in_turn) {
    EntryIndex* index = nullptr;
    if (entry->index) {
      index = indexes_.back().get();
      index->add(*entry);
    } else {
      index = indexes_.emplace_back(std::make_unique<EntryIndex>()).get();
      const size_t first = entries_.size() - entry->chain;  // a chain ends where all before it were retired
      for (size_t i = first; i < entries_.size(); ++i) index->add(*entries_[i]);
    }
    entry->index = index;
  }
  entry_bytes_.fetch_add(bytes_of(*entry), std::memory_order_relaxed);
  num_entries_.fetch_add(1, std::memory_order_relaxed);
  newest_.store(entry, std::memory_order_release);
}

bool EntryCache::renumber_variables(at::ArrayRef<size_t> now, size_t count) {
  std::vector<size_t*> numbers;
  for (const auto& entry : entries_) {
    for (size_t& number : entry->lifted) numbers.push_back(&number);
    for (Guards::GuardedVariable& variable : entry->guards.variables)
      if (!variable.tensor.defined()) numbers.push_back(&variable.number);
  }
  const auto is_gone = [&](const size_t* number) { return now[*number] >= count; };
  if (std::any_of(numbers.begin(), numbers.end(), is_gone)) return false;
  for (size_t* const number : numbers) *number = now[*number];
  return true;
}

std::vector<const CacheEntry*> EntryCache::in_use() const {
  std::vector<const CacheEntry*> entries;
  for (const CacheEntry* entry = newest(); entry; entry = entry->next) entries.push_back(entry);
  std::reverse(entries.begin(), entries.end());
  return entries;
}

CacheStatistics EntryCache::statistics() const {
  CacheStatistics statistics;
  const CacheEntry* const newest = this->newest();
  statistics.graphs = newest ? newest->chain : 0;
  const size_t all = std::max(num_entries_.load(std::memory_order_relaxed), statistics.graphs);
  statistics.retired = all - statistics.graphs;
  statistics.bytes = entry_bytes_.load(std::memory_order_relaxed);
  for (const CacheEntry* entry = newest; entry; entry = entry->next) statistics.loops += entry->executable->loops();
  return statistics;
}

}  // namespace triage::capture
