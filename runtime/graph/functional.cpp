#include "runtime/graph/functional.h"

#include <triage/graph.h>

namespace triage::graph {

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

}  // namespace triage::graph
