#include "tests/fuzz/operators/targets.h"

#include "runtime/operators/contract.h"

namespace triage::fuzz {

std::vector<Target> contract_targets() {
  std::vector<Target> targets;
  for (const auto& [name, overload] : operators::all_contracts()) {
    const operators::Contract* contract = operators::find_contract(name, overload);
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    const auto of_call = [contract, op](auto function) {
      return [=](Arguments arguments) { return function(*contract, op.schema(), arguments); };
    };
    targets.push_back({overload.empty() ? name : name + "." + overload, op, of_call(operators::violation),
                       of_call(operators::allocation_bound), of_call(operators::time_bound)});
  }
  return targets;
}

}  // namespace triage::fuzz
