#pragma once
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

/// Nodes of autograd's graph: shared_ptr owns them in LibTorch 1.13, intrusive_ptr in current ones.
namespace triage::compat {

using torch::autograd::Node;
using NodePtr = decltype(torch::autograd::Edge::function);

/// 1.13's deleteNode takes long chains of nodes apart without recursion; found by its argument where there is one.
template <typename N>
auto destroy(N* node, int) -> decltype(deleteNode(node)) {
  deleteNode(node);
}
template <typename N>
void destroy(N* node, long) {
  delete node;
}

/// Takes a node made by `new`.
template <typename N, typename Pointer = NodePtr>
Pointer own_node(N* node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return Pointer(node, [](auto* last) { destroy<Node>(last, 0); });
  } else {
    return Pointer::unsafe_steal_from_new(node);
  }
}

/// An owned node, once more.
template <typename N, typename Pointer = NodePtr>
Pointer self(N* node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return node->shared_from_this();
  } else {
    return Pointer::reclaim_copy(node);
  }
}

}  // namespace triage::compat
