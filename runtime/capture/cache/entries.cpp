#include "runtime/backends/deadline.h"
#include "runtime/capture/cache/entry_index.h"
#include "runtime/capture/compiled.h"
#include "runtime/graph/memory.h"
#include "runtime/messages/assert.h"
#include "runtime/random/sequence.h"

#include <algorithm>

// The entries of a cache: how one is found, how one is added, what they take, and runs of one without a call.
namespace triage::capture {
namespace {

constexpr size_t most_in_turn = 8;  // looked at one by one; where there are more, an index finds those behind them

size_t bytes_of(const Entry& entry) {
  size_t bytes = sizeof(Entry) + entry.guards.heap_bytes() + graph::heap_bytes(entry.shape) +
                 graph::bytes(*entry.graph) + entry.executable->bytes();
  for (const InputShape& shape : entry.shape) bytes += graph::heap_bytes(shape.sizes);
  return bytes;
}

[[maybe_unused]] bool any_fits(const Entry* entry, at::ArrayRef<at::Tensor> all, at::ArrayRef<at::Tensor> variables) {
  while (entry && !entry->fits(all, variables)) entry = entry->next;
  return entry;
}

}  // namespace

const Entry* Compiled::find(at::ArrayRef<at::Tensor> all) const noexcept {
  const Entry* newest = newest_.load(std::memory_order_acquire);
  const at::ArrayRef<at::Tensor> variables = script_->variables();
  size_t left = most_in_turn;
  for (const Entry* entry = newest; entry; entry = entry->next) {
    if (entry->fits(all, variables)) return entry;
    if (--left > 0) continue;
    const Entry* const found = newest->index ? newest->index->find(all, variables) : nullptr;
    TRIAGE_ASSERT(found ? found->fits(all, variables) : !any_fits(entry->next, all, variables));
    return found;
  }
  return nullptr;
}

void Compiled::add_entry(std::unique_ptr<Entry> added) {
  Entry* entry = entries_.emplace_back(std::move(added)).get();
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
  options_.graphs_made->fetch_add(1, std::memory_order_relaxed);
  newest_.store(entry, std::memory_order_release);
}

bool Compiled::renumber_variables(at::ArrayRef<size_t> now) {
  const size_t count = script_->variables().size();
  std::vector<size_t*> numbers;
  for (const auto& entry : entries_) {
    for (size_t& number : entry->lifted) numbers.push_back(&number);
    for (Guards::Variable& variable : entry->guards.variables)
      if (!variable.tensor.defined()) numbers.push_back(&variable.number);
  }
  const auto is_gone = [&](const size_t* number) { return now[*number] >= count; };
  if (std::any_of(numbers.begin(), numbers.end(), is_gone)) return false;
  for (size_t* const number : numbers) *number = now[*number];
  return true;
}

std::vector<const Entry*> Compiled::entries() const {
  std::vector<const Entry*> entries;
  for (const Entry* entry = newest_.load(std::memory_order_acquire); entry; entry = entry->next)
    entries.push_back(entry);
  std::reverse(entries.begin(), entries.end());
  return entries;
}

std::vector<std::vector<InputShape>> Compiled::shapes_in_use() const {
  std::vector<std::vector<InputShape>> shapes;
  for (const Entry* entry : entries()) shapes.push_back(entry->shape);
  std::lock_guard<std::mutex> lock(notes_mutex_);
  for (const Answered& one : answered_)
    if (std::find(shapes.begin(), shapes.end(), one.inputs) == shapes.end()) shapes.push_back(one.inputs);
  return shapes;
}

CacheStatistics Compiled::statistics() const {
  CacheStatistics statistics;
  const Entry* newest = newest_.load(std::memory_order_acquire);
  statistics.graphs = newest ? newest->chain : 0;
  const size_t all = std::max(num_entries_.load(std::memory_order_relaxed), statistics.graphs);
  statistics.retired = all - statistics.graphs;
  statistics.bytes = entry_bytes_.load(std::memory_order_relaxed);
  for (const Entry* entry = newest; entry; entry = entry->next) statistics.loops += entry->executable->loops();
  return statistics;
}

void add_segments(CacheStatistics& statistics, const std::vector<CompiledSegment>& segments) {
  statistics.segments += segments.size();
  for (const CompiledSegment& segment : segments) {
    statistics.bytes += graph::bytes(*segment.graph);
    if (segment.executable) statistics.loops += segment.executable->loops();
  }
}

bool Compiled::run_graph(at::ArrayRef<at::Tensor> all, std::vector<at::Tensor>& outputs) const {
  const Entry* entry = find(all);
  if (!entry || entry->script_handles_errors) return false;
  entry->executable->run(with_lifted(*entry, all), outputs, {triage::Deadline::current()});
  return true;
}

void Compiled::finish_compiling(at::ArrayRef<at::Tensor> all, at::ArrayRef<size_t> donated) const {
  const Entry* entry = find(all);
  if (!entry) return;
  if (!donated.empty()) ask_for_donation(*entry, all, donated);
  entry->executable->finish_compiling();
}

void Compiled::ask_for_donation(const Entry& entry, at::ArrayRef<at::Tensor> all, at::ArrayRef<size_t> donated) const {
  Tensors copies(all.begin(), all.end()), given;
  for (const size_t index : donated) {
    if (index >= all.size() || all[index].requires_grad()) continue;
    copies[index] = all[index].clone();
    given.push_back(copies[index]);
  }
  const random::Replay unseen(entry.draws);
  std::vector<at::Tensor> outputs;
  try {
    entry.executable->run(with_lifted(entry, copies), outputs, {triage::Deadline::current(), given});
  } catch (const std::exception&) {  // of values that were made up; a real call says what it thinks of its own
  }
}

}  // namespace triage::capture
