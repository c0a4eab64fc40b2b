#include "runtime/operators/table/table.h"

#include <algorithm>

#include "runtime/operators/table_faults.h"

namespace triage::operators {
namespace {

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> all;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) all.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

}  // namespace

OperatorTable::OperatorTable() {
  for (const Rows rows : {elementwise_rows(), reduction_rows(), shape_rows(), indexing_rows(), creation_rows(),
                          linear_rows(), network_rows(), flags_rows(), trusted_rows()})
    for (const Row& row : rows) add(row);
  for (const auto& [name, contract] : contracts) names.push_back(name);
}

const OperatorTable& OperatorTable::get() {
  static const OperatorTable* const all = new OperatorTable;
  return *all;
}

void OperatorTable::add(const Row& row) {
  std::vector<std::string> overloads = words(row.overloads);
  const bool in_place = std::erase(overloads, "_") != 0;
  for (const std::string& base : words(row.names)) {
    const std::string name = std::string(row.space) + "::" + base;
    for (const std::string& overload : overloads) {
      add(row, name, overload == "." ? "" : overload);
      if (in_place) add(row, name + "_", overload == "." ? "" : overload);
    }
  }
}

void OperatorTable::add(const Row& row, const std::string& name, const std::string& overload) {
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op) return;
  if (!semantics.emplace(&op->schema(), row.does.semantics()).second)
    faults.push_back(name + "." + overload + ": it has two rows");
  if (const std::string_view formula = row.does.semantics().formula; !formula.empty() && name.back() != '_')
    formulas.emplace_back(overload.empty() ? name : name + "." + overload, formula);
  if (!row.cost.bytes) return;
  std::vector<std::string> own_faults;
  Contract contract{&row, ArgumentPositions(op->schema()), read_rules(op->schema(), row.rules, own_faults)};
  faults.insert(faults.end(), own_faults.begin(), own_faults.end());
  if (own_faults.empty()) contracts.emplace(FullName(name, overload), std::move(contract));
}

const Semantics& semantics_of(const c10::OperatorHandle& op) {
  static const auto& none = *new Semantics;
  const auto found = OperatorTable::get().semantics.find(&op.schema());
  return found == OperatorTable::get().semantics.end() ? none : found->second;
}

const std::vector<std::pair<std::string, std::string_view>>& formulas() { return OperatorTable::get().formulas; }

const char* sign(Arithmetic op) {
  static constexpr const char* signs[] = {"",  "-", "+",   "-",   "-", "*",  "/", "//", "%",  "&",
                                          "|", "~", "max", "min", "<", "<=", ">", ">=", "==", "~="};
  static_assert(std::size(signs) == std::size(arithmetic_words));
  return signs[static_cast<size_t>(op)];
}

const std::vector<std::string>& table_faults() { return OperatorTable::get().faults; }

}  // namespace triage::operators
