#include "runtime/operators/contract.h"

#include <ATen/ATen.h>
#include <ATen/native/TypeProperties.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/messages/assert.h"
#include "runtime/operators/call.h"
#include "runtime/operators/division.h"
#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/relations.h"
#include "runtime/operators/table/table.h"
#include "runtime/operators/untrusted.h"

namespace triage::operators {

ArgumentPositions::ArgumentPositions(const c10::FunctionSchema& schema) {
  positions_.fill(-1);
  const auto& declared = schema.arguments();
  for (size_t name = 0; name < positions_.size(); ++name)
    for (size_t i = 0; i < declared.size(); ++i)
      if (declared[i].name() == ArgumentName::all[name]) positions_[name] = static_cast<int8_t>(i);
}

const c10::IValue& OperatorCall::value(ArgumentName name) const {
  static const auto& none = *new c10::IValue;
  const int position = positions.of(name);
  return position < 0 ? none : arguments[static_cast<size_t>(position)];
}

const at::Tensor* OperatorCall::tensor(ArgumentName name) const {
  const c10::IValue& found = value(name);
  return found.isTensor() && found.toTensor().defined() ? &found.toTensor() : nullptr;
}

int64_t OperatorCall::integer(ArgumentName name, int64_t otherwise) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? otherwise : integer_of(found);
}

double OperatorCall::number(ArgumentName name, double otherwise) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? otherwise : number_of(found);
}

bool OperatorCall::boolean(ArgumentName name, bool otherwise) const {
  const c10::IValue& found = value(name);
  return found.isBool() ? found.toBool() : otherwise;
}

std::vector<int64_t> OperatorCall::integers(ArgumentName name) const {
  const c10::IValue& found = value(name);
  return found.isNone() ? std::vector<int64_t>() : integers_of(found);
}

std::vector<at::Tensor> OperatorCall::tensors(ArgumentName name) const {
  std::vector<at::Tensor> all;
  const c10::IValue& found = value(name);
  for_each_tensor(c10::ArrayRef<c10::IValue>(&found, 1), [&](const at::Tensor& tensor) { all.push_back(tensor); });
  return all;
}

int64_t integer_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().item().toLong();
  return value.isBool() ? value.toBool() : value.isDouble() ? static_cast<int64_t>(value.toDouble()) : value.toInt();
}

double number_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().item().toDouble();
  return value.isBool() ? value.toBool() : value.isInt() ? static_cast<double>(value.toInt()) : value.toDouble();
}

std::vector<int64_t> integers_of(const c10::IValue& value) {
  if (value.isIntList()) return value.toIntVector();
  std::vector<int64_t> all;
  if (!value.isList()) return {integer_of(value)};
  for (const c10::IValue& item : value.toListRef()) all.push_back(integer_of(item));
  return all;
}

namespace {

int64_t saturated(double value) {
  constexpr double most = 9.2e18;
  return value < most ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::max();
}

OperatorCall call_of(const Contract& contract, const c10::FunctionSchema& schema,
                     c10::ArrayRef<c10::IValue> arguments) {
  TRIAGE_ASSERT(arguments.size() == schema.arguments().size() && arguments.size() == contract.rules.size());
  return {schema, contract.positions, arguments};
}

}  // namespace

const Contract* find_contract(std::string_view qualified, std::string_view overload) {
  const auto found = OperatorTable::get().contracts.find(OperatorTable::FullName(qualified, overload));
  return found == OperatorTable::get().contracts.end() ? nullptr : &found->second;
}

std::optional<std::string> violation(const Contract& contract, const c10::FunctionSchema& schema,
                                     c10::ArrayRef<c10::IValue> arguments, bool mends_division) {
  const OperatorCall call = call_of(contract, schema, arguments);
  if (auto wrong = broken_rule(contract.rules, call, nullptr)) return wrong;
  const Relation relation = contract.row->relation;
  return relation && !(mends_division && relation == relation::divides) ? relation(call) : std::nullopt;
}

std::optional<std::string> violation_of_constants(const Contract& contract, const c10::FunctionSchema& schema,
                                                  c10::ArrayRef<c10::IValue> arguments,
                                                  const std::vector<bool>& known) {
  TRIAGE_ASSERT(known.size() == arguments.size());
  return broken_rule(contract.rules, call_of(contract, schema, arguments), &known);
}

int64_t allocation_bound(const Contract& contract, const c10::FunctionSchema& schema,
                         c10::ArrayRef<c10::IValue> arguments) {
  return saturated(contract.row->cost.bytes(call_of(contract, schema, arguments)));
}

int64_t time_bound(const Contract& contract, const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  const Cost& cost = contract.row->cost;
  const OperatorCall call = call_of(contract, schema, arguments);
  bool is_complex = false;  // wider, and often conjugated first
  for_each_tensor(arguments, [&](const at::Tensor& tensor) { is_complex |= tensor.is_complex(); });
  return saturated(cost.nanoseconds * (cost.work ? cost.work(call) : cost::most_elements(call)) * (is_complex ? 4 : 1));
}

AskedAgain asked_again(const Contract& contract, const c10::FunctionSchema& schema) {
  const Cost& cost = contract.row->cost;
  const bool of_sizes = std::any_of(contract.rules.begin(), contract.rules.end(), [](const ArgumentRule& rule) {
    return rule.contiguous || rule.unexpanded || rule.filled || rule.apart;
  });
  if (contract.row->relation || of_sizes) return AskedAgain::always;
  if (cost.bytes == cost::nothing) return AskedAgain::never;
  if (cost.of_elements) return AskedAgain::where_large;
  const bool of_flags = cost.bytes == cost::flags && !schema.argumentIndexWithName("num_slots");
  return of_flags ? AskedAgain::where_large : AskedAgain::always;
}

bool may_be_large(c10::ArrayRef<c10::IValue> arguments, int64_t bytes_a_call) noexcept {
  constexpr double small = 1 << 16, most_bytes_an_element = 256;
  double given = 0, broadcast = 1;
  const at::Tensor* last = nullptr;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    const double elements = cost::elements(tensor);
    given += elements;
    if (elements == 1 || (last && last->sizes() == tensor.sizes())) return;
    broadcast *= elements;
    last = &tensor;
  });
  const double most = std::max(given, broadcast);
  return most > small || (bytes_a_call > 0 && most * most_bytes_an_element > static_cast<double>(bytes_a_call));
}

const std::vector<std::pair<std::string, std::string>>& all_contracts() { return OperatorTable::get().names; }

at::ScalarType dtype_of_division(const c10::FunctionSchema& schema, const c10::IValue& self, const c10::IValue& other) {
  at::native::ResultTypeState state;
  const std::pair<size_t, const c10::IValue*> operands[] = {{0, &self}, {1, &other}};
  for (const auto& [argument, value] : operands) {
    if (!value->isTensor())
      state = at::native::update_result_type_state(value->toScalar(), state);
    else if (schema.arguments()[argument].type()->kind() == c10::TypeKind::TensorType)
      state = at::native::update_result_type_state(value->toTensor(), state);
    else
      state = at::native::update_result_type_state(value->toTensor().item(), state);
  }
  return at::native::result_type(state);
}

bool is_minus_one(int64_t number, at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return static_cast<int8_t>(number) == -1;
    case at::kShort:
      return static_cast<int16_t>(number) == -1;
    case at::kInt:
      return static_cast<int32_t>(number) == -1;
    default:
      return dtype == at::kLong && number == -1;
  }
}

std::optional<std::string> refusal(const Contract& contract, const c10::FunctionSchema& schema,
                                   c10::ArrayRef<c10::IValue> arguments, const Untrusted::Terms& terms,
                                   const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  if (auto wrong = violation(contract, schema, arguments)) return wrong;
  if (terms.bytes > 0)
    if (const int64_t bytes = allocation_bound(contract, schema, arguments); bytes > terms.bytes)
      return fmt::format("it may take {} MiB of memory; the limit of an untrusted call is {} MiB", bytes >> 20,
                         terms.bytes >> 20);
  if (!deadline) return std::nullopt;
  const std::chrono::nanoseconds takes(time_bound(contract, schema, arguments));
  if (takes <= std::chrono::milliseconds(10) || takes <= *deadline - std::chrono::steady_clock::now())
    return std::nullopt;
  return fmt::format("it may take {:.3g} s, which is past the deadline of the call",
                     std::chrono::duration<double>(takes).count());
}

}  // namespace triage::operators
