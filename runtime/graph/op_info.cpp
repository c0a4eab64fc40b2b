#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <triage/graph.h>

#include "runtime/graph/dynamic_shape.h"
#include "runtime/graph/functional.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/operators/semantics.h"

namespace triage::graph {

using operators::Semantics, operators::semantics_of;

namespace {

bool writes_through(const c10::AliasInfo& info) {
  if (info.isWrite()) return true;
  for (const auto& inner : info.containedTypes())  // Tensor(a!)[]
    if (writes_through(inner)) return true;
  return false;
}

}  // namespace

bool is_random(const c10::OperatorHandle& op) {
  for (const auto& argument : op.schema().arguments()) {
    c10::TypePtr type = argument.real_type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType) return true;
  }
  return op.hasTag(at::Tag::nondeterministic_seeded) || semantics_of(op).has(Semantics::random);
}

namespace {

bool is_dropout(const c10::OperatorHandle& op) {
  return op.operator_name().name.ends_with("dropout") && semantics_of(op).has(Semantics::view_or_copy);
}

}  // namespace

bool has_order(const Node& node) { return is_random(node.op) || is_effect(node.op) || node.checks; }

bool draws(const Node& node) {
  if (!is_random(node.op)) return false;
  if (!is_dropout(node.op)) return true;
  const c10::IValue *p = node.operands[1].constant(), *train = node.operands[2].constant();
  const bool zero = p && ((p->isDouble() && p->toDouble() == 0) || (p->isInt() && p->toInt() == 0));
  return !zero && !(train && train->isBool() && !train->toBool());
}

bool writes(const c10::OperatorHandle& op) {
  for (const auto& argument : op.schema().arguments())
    if (argument.alias_info() && writes_through(*argument.alias_info())) return true;
  return false;
}

bool returns_flags(const c10::OperatorHandle& op, size_t result) {
  return result + 1 == op.schema().returns().size() && semantics_of(op).has(Semantics::gives_flags);
}

bool is_effect(const c10::OperatorHandle& op) {
  return op.schema().returns().empty() || semantics_of(op).has(Semantics::effect);
}

std::optional<c10::OperatorHandle> functional_twin(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  if (name.name.size() < 2 || name.name.back() != '_') return std::nullopt;
  auto twin = c10::Dispatcher::singleton().findSchema({name.name.substr(0, name.name.size() - 1), name.overload_name});
  if (!twin) return std::nullopt;
  const auto& wanted = op.schema().arguments();
  const auto& given = twin->schema().arguments();
  if (wanted.size() != given.size() || twin->schema().returns().size() != 1 || writes(*twin)) return std::nullopt;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i].name() != given[i].name() || *wanted[i].type() != *given[i].type()) return std::nullopt;
  return *twin;
}

namespace {

bool indexes_by_mask(const c10::IValue& indices) {
  if (!indices.isList()) return false;
  for (const c10::IValue& index : indices.toListRef())
    if (index.isTensor() && index.toTensor().defined() &&
        (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte))
      return true;
  return false;
}

}  // namespace

bool gives_dynamic_shape(const c10::OperatorHandle& op, at::ArrayRef<const c10::IValue> arguments) {
  const Semantics& does = semantics_of(op);
  if (does.has(Semantics::dynamic_by_mask)) return arguments.size() > 1 && indexes_by_mask(arguments[1]);
  if (does.has(Semantics::dynamic_by_classes))
    return arguments.size() < 2 || !arguments[1].isInt() || arguments[1].toInt() < 0;
  return does.has(Semantics::dynamic);
}

bool is_uninitialized(const c10::OperatorHandle& op) { return semantics_of(op).has(Semantics::uninitialized); }

bool computes_only(const c10::OperatorHandle& op) {
  return !is_random(op) && !is_effect(op) && !writes(op) && !is_uninitialized(op);
}

}  // namespace triage::graph
