#include "runtime/capture/rules/flags_rule.h"

#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/capture/rules/rules.h"
#include "runtime/operators/semantics.h"

namespace triage::capture {

using operators::Semantics, operators::semantics_of;

namespace {

/// Arguments that say which words are moved.
const auto& kChoosers =
    *new std::unordered_set<std::string_view>{"flags", "index", "indices", "condition", "cond", "mask", "repeats"};
void add_values(const graph::Operand& operand, std::vector<const graph::Value*>& values) {
  if (const graph::Value* value = operand.value()) values.push_back(value);
  if (const auto* items = operand.list())
    for (const graph::Operand& item : *items) add_values(item, values);
}

bool moves(const c10::OperatorHandle& op) { return semantics_of(op).has(Semantics::moves); }

bool is_mask(const graph::Value& value) { return value.meta && value.meta->dtype == at::kBool; }

}  // namespace

bool gives_words(const c10::OperatorHandle& op, size_t argument) {
  if (kChoosers.count(op.schema().arguments()[argument].name())) return false;
  if (argument > 1) return true;
  return !semantics_of(op).has(argument == 0 ? Semantics::form_of_first : Semantics::form_of_second);
}

std::vector<const graph::Value*> words_given_to(const graph::Node& node) {
  std::vector<const graph::Value*> values;
  for (size_t i = 0; i < node.operands.size(); ++i)
    if (gives_words(node.op, i)) add_values(node.operands[i], values);
  return values;
}

bool may_take_flags(const c10::OperatorHandle& op) {
  return !is_aten(op) || semantics_of(op).has(Semantics::moves | Semantics::queries);
}

namespace {

using Values = std::unordered_set<const graph::Value*>;

/// Whether the words of a value are those of flags, or were told to be flags: it was looked at then where they come
/// from.
bool is_origin_of_flags(const graph::Value& value) {
  if (!value.is_flags) return false;
  return !value.producer || !moves(value.producer->op);
}

/// Visits the value and what its words were moved out of, until `visit` says that it is found: returns that. Where
/// nothing is found, all of them are `without`. A mask holds no words.
template <typename Visit>
const graph::Value* find_source(const graph::Value& value, Values& without, const Visit& visit) {
  std::vector<const graph::Value*> left = {&value};
  Values seen;
  while (!left.empty()) {
    const graph::Value* next = left.back();
    left.pop_back();
    if (without.count(next) || is_mask(*next)) continue;
    if (visit(*next)) return next;
    if (!seen.insert(next).second || is_origin_of_flags(*next)) continue;
    if (!next->producer || !moves(next->producer->op)) continue;
    for (const graph::Value* source : words_given_to(*next->producer)) left.push_back(source);
  }
  without.merge(seen);
  return nullptr;
}

bool converts(const graph::Node& node, const graph::Value& result) {
  const auto values = words_given_to(node);
  return values.size() == 1 && values[0]->meta && result.meta && values[0]->meta->dtype != result.meta->dtype;
}

}  // namespace

bool WordOrigins::holds_flags(const graph::Value& value) {
  return find_source(value, without_flags_, [](const graph::Value& source) { return source.is_flags; });
}

void WordOrigins::set_flags(graph::MutableValue& value) {
  if (!std::exchange(value.is_flags, true)) without_flags_.clear();
}

const graph::Node* WordOrigins::arithmetic_behind(const graph::Value& value) {
  const graph::Value* found = find_source(value, without_arithmetic_, [](const graph::Value& source) {
    const graph::Node* node = source.producer;
    if (!node || source.is_flags || !is_aten(node->op)) return false;
    if (moves(node->op)) return converts(*node, source);
    std::vector<const graph::Value*> values;
    for (const graph::Operand& operand : node->operands) add_values(operand, values);
    return !values.empty() && !may_take_flags(node->op);  // one that takes no tensor makes new words
  });
  return found ? found->producer : nullptr;
}

}  // namespace triage::capture
