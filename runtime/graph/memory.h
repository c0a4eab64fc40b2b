#pragma once
#include <triage/graph.h>

/// How much memory a graph takes, counted without what the allocator adds.
namespace triage::graph {

inline size_t heap_bytes(const std::string& text) {
  return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}
template <class T>
size_t heap_bytes(const std::vector<T>& items) {
  return items.capacity() * sizeof(T);
}
/// Of what it points to; no tensor's data.
size_t heap_bytes(const c10::IValue& value);

/// With the data of constants that were made while it was captured, and not that of variables, which belong to others.
size_t bytes(const Graph& graph);

}  // namespace triage::graph
