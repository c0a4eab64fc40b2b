#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/operators/rules.h"
#include "runtime/operators/semantics.h"
#include "runtime/operators/table/row.h"

namespace triage::operators {

struct Contract {
  const Row* row;
  ArgumentPositions positions;
  std::vector<ArgumentRule> rules;
};

/// All rows, against the schemas of this LibTorch: a row may name overloads of another one.
class OperatorTable {
 public:
  using FullName = std::pair<std::string, std::string>;  // "aten::clamp", "Tensor"

  /// Lives as long as the dispatcher's own singleton.
  static const OperatorTable& get();

  std::map<FullName, Contract, std::less<>> contracts;
  std::vector<FullName> names;  // of the contracts
  std::unordered_map<const c10::FunctionSchema*, Semantics> semantics;
  std::vector<std::pair<std::string, std::string_view>> formulas;
  std::vector<std::string> faults;

 private:
  OperatorTable();
  void add(const Row& row);
  void add(const Row& row, const std::string& name, const std::string& overload);
};

}  // namespace triage::operators
