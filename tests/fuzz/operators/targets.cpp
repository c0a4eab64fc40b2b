#include "tests/fuzz/operators/targets.h"

#include "runtime/operators/contract.h"

namespace triage::fuzz {

std::vector<Target> contract_targets() {
  std::vector<Target> targets;
  for (const auto& [name, overload] : operators::all_contracts()) {
    const operators::Contract* contract = operators::find_contract(name, overload);
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    const auto violation = [contract, op](Arguments arguments) {
      return operators::violation(*contract, op.schema(), arguments);
    };
    const auto bytes = [contract, op](Arguments arguments) {
      return operators::allocation_bound(*contract, op.schema(), arguments);
    };
    const auto time = [contract, op](Arguments arguments) {
      return operators::time_bound(*contract, op.schema(), arguments);
    };
    targets.push_back({overload.empty() ? name : name + "." + overload, op, violation, bytes, time});
  }
  return targets;
}

}  // namespace triage::fuzz
