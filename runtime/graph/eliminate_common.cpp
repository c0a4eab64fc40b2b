#include <ATen/ATen.h>
#include <triage/graph.h>
#include <algorithm>

#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "runtime/graph/aliases.h"
#include "runtime/graph/clean.h"
#include "runtime/graph/describe.h"
#include "runtime/graph/tensor_text.h"
#include "runtime/graph/uses.h"

namespace triage::graph {
namespace {

void append_bytes(std::string& key, const void* data, size_t size) { key.append(static_cast<const char*>(data), size); }

/// Appends what tells this constant from every other, bit for bit.
void append_key(std::string& key, const c10::IValue& value) {
  if (value.isNone()) {
    key += 'n';
  } else if (value.isBool()) {
    key += value.toBool() ? 't' : 'f';
  } else if (value.isInt()) {
    int64_t number = value.toInt();
    append_bytes(key += 'i', &number, sizeof(number));
  } else if (value.isDouble()) {
    double number = value.toDouble();
    append_bytes(key += 'd', &number, sizeof(number));
  } else if (value.isComplexDouble()) {
    auto number = value.toComplexDouble();
    append_bytes(key += 'c', &number, sizeof(number));
  } else if (value.isString()) {
    key += 's' + std::to_string(value.toStringRef().size()) + ':' + value.toStringRef();
  } else if (value.isDevice()) {
    key += '@' + value.toDevice().str() + ';';
  } else if (value.isList()) {
    auto items = value.toListRef();
    key += '[' + std::to_string(items.size()) + ':';
    for (const c10::IValue& item : items) append_key(key, item);
  } else {
    const void* identity = &value;  // equal to nothing else
    append_bytes(key += '?', &identity, sizeof(identity));
  }
}

void append_key(std::string& key, const Operand& operand) {
  if (const Value* value = operand.value()) {
    append_bytes(key += 'v', &value, sizeof(value));
  } else if (const auto* items = operand.list()) {
    key += '[' + std::to_string(items->size()) + ':';
    for (const auto& item : *items) append_key(key, item);
  } else {
    append_key(key, *operand.constant());
  }
}

std::string key_of(const Node& node) {
  std::string key = op_name(node.op) + '(';
  for (const auto& operand : node.operands) append_key(key, operand);
  return key;
}

/// Small constants are compared by their text, which is exact; large ones, and those that may change, by identity.
std::string key_of(const Constant& constant) {
  const at::Tensor& tensor = constant.tensor;
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (constant.variable || !is_printable(tensor) || tensor.requires_grad()) {
    std::string key = "impl ";
    append_bytes(key, &impl, sizeof(impl));
    return key;
  }
  return layout_text(tensor) + (impl->is_wrapped_number() ? " number " : " ") + values_text(tensor);
}

void merge_constants(Graph& graph, const Values& seen_outside) {
  Replacements replacements;
  std::unordered_map<std::string, Value*> seen;
  for (const auto& constant : graph.constants()) {
    if (!constant.variable && seen_outside.count(constant.value)) continue;
    auto [first, fresh] = seen.emplace(key_of(constant) + (constant.value->is_flags ? "flags" : ""), constant.value);
    if (!fresh) replacements[constant.value] = first->second;
  }
  replace_uses(graph, replacements);
}

bool makes_one_of(const Values& values, const Node& node) {
  return std::any_of(node.results.begin(), node.results.end(),
                     [&](const Value* result) { return values.count(result) != 0; });
}

/// What a caller sees as two memories, or as two tensors, must stay two. Two views of one memory are that as one, too.
bool would_show(const Values& outputs, const Node& a, const Node& b, const Values& seen) {
  const auto is_seen = [&](const Value* value) { return seen.count(value) != 0; };
  switch (sharing(a.op)) {
    case Sharing::always:
      return makes_one_of(outputs, a) && makes_one_of(outputs, b);
    case Sharing::maybe:
      return makes_one_of(seen, a) && makes_one_of(seen, b);
    default:
      for (size_t i = 0; i < a.results.size(); ++i)
        if (is_seen(a.results[i]) && is_seen(b.results[i])) return true;
      return false;
  }
}

/// Gradients add up behind each cast to fewer bits; behind one cast for both they would add up in those fewer bits.
bool narrows(const Node& node) {
  if (op_name(node.op).rfind("aten::to.", 0) != 0 || !node.results[0]->meta) return false;
  const at::ScalarType dtype = node.results[0]->meta->dtype;
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}

}  // namespace

void eliminate_common(Graph& graph) { eliminate_common(graph, {}); }

void eliminate_common(Graph& graph, const Values& differentiable) {
  Values seen_outside = seen_through_outputs(graph);
  merge_constants(graph, seen_outside);
  Replacements replacements;
  const Values outputs(graph.outputs().begin(), graph.outputs().end());
  std::unordered_map<std::string, const Node*> seen;
  for (auto& node : graph.nodes()) {
    for_each_use(*node, [&](Value*& value) {
      if (auto found = replacements.find(value); found != replacements.end()) value = found->second;
    });
    if (narrows(*node)) continue;
    if (is_random(node->op) || is_effect(node->op) || writes(node->op) || is_uninitialized(node->op)) continue;
    if (makes_one_of(differentiable, *node)) continue;
    auto [first, fresh] = seen.emplace(key_of(*node), node.get());
    if (fresh || first->second->results.size() != node->results.size()) continue;
    if (would_show(outputs, *node, *first->second, seen_outside)) continue;
    for (size_t i = 0; i < node->results.size(); ++i) {
      replacements[node->results[i]] = first->second->results[i];
      if (seen_outside.count(node->results[i])) seen_outside.insert(first->second->results[i]);
    }
  }
  replace_uses(graph, replacements);
  graph.drop_unused_constants();
  std::erase_if(graph.nodes(), [&](const std::unique_ptr<Node>& node) {
    return !node->results.empty() && replacements.count(node->results.front());
  });
}

}  // namespace triage::graph
