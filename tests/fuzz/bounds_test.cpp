// The bound of bytes beside what LibTorch itself says a call gives: on Meta tensors, which have sizes and no memory, so
// that sizes can be of any kind.
#include "tests/fuzz/operators/arguments.h"
#include "tests/fuzz/operators/large_calls.h"
#include "tests/fuzz/operators/targets.h"

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

namespace triage::fuzz {
namespace {

using c10::IValue;

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
}

IValue on_meta(const IValue& value, const c10::Argument& argument) {
  if (value.isTensor()) return on_meta(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(on_meta(tensor));
    return tensors;
  }
  if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    c10::List<c10::optional<at::Tensor>> list;
    for (const IValue& item : value.toListRef())
      list.push_back(item.isTensor() ? c10::optional<at::Tensor>(on_meta(item.toTensor())) : c10::nullopt);
    return list;
  }
  return argument.name() == "device" ? IValue(c10::Device(c10::kMeta)) : value;
}

void visit_tensors(const IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
}

/// Bytes of the results, but for memory that was given; nothing where this LibTorch does not know them without
/// computing.
std::optional<double> bytes_of_results(const Target& target, const torch::jit::Stack& arguments) {
  torch::jit::Stack stack;
  std::set<const void*> seen;
  for (size_t i = 0; i < arguments.size(); ++i) {
    stack.push_back(on_meta(arguments[i], target.op.schema().arguments()[i]));
    visit_tensors(stack.back(),
                  [&](const at::Tensor& tensor) { seen.insert(tensor.storage().unsafeGetStorageImpl()); });
  }
  try {
    target.op.callBoxed(stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  double bytes = 0;
  for (const IValue& value : stack)
    visit_tensors(value, [&](const at::Tensor& tensor) {
      if (tensor.is_meta() && seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
        bytes += static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
    });
  return bytes;
}

}  // namespace

// A budget that charges far more than a call takes refuses batches that would fit; one that charges less stops nothing.
TEST_CASE("contracts: on large inputs the bound of bytes is what a call takes, and at most four times that") {
  constexpr int64_t slack = 1 << 20;
  size_t plain = 0;
  for (const Target& target : contract_targets())
    for (const LargeCall& call : large_calls(target, 2, 1)) {
      CHECK_MESSAGE(call.peak - slack <= call.bound, target.name << " took " << call.peak << " bytes, its bound is "
                                                                 << call.bound << ": " << call.arguments);
      if (!call.plain || has_wide_bound(target)) continue;
      ++plain;
      CHECK_MESSAGE(excess_of_bytes(call) <= 4.1, target.name << " took " << call.peak << " bytes of " << call.given
                                                              << " given, its bound is " << call.bound << ": "
                                                              << call.arguments);
    }
  CHECK(plain > 400);
}

TEST_CASE("contracts: the bound of bytes holds what LibTorch says results have, with sizes of 0 beside large ones") {
  c10::SetStackTraceFetcher([]() -> std::string { return ""; });  // takes a millisecond for each error
  size_t known = 0, of_aten = 0, calls = 0;
  for (const Target& target : contract_targets()) {
    if (target.name.rfind("aten::", 0) != 0) continue;  // triage's own read what they are given
    ++of_aten;
    Random random(std::hash<std::string>()(target.name));
    size_t given = 0, unknown = 0;
    for (int i = 0; i < 40 && unknown < 10; ++i) {
      const torch::jit::Stack arguments = make_arguments(target.op.schema(), random, Reach::vast);
      if (target.violation(arguments)) continue;
      const auto bytes = bytes_of_results(target, arguments);
      unknown += !bytes;
      if (!bytes) continue;
      ++given, unknown = 0;
      const auto bound = static_cast<double>(target.allocation_bound(arguments));
      INFO(target.name << "(" << describe_arguments(target.op.schema(), arguments) << ")");
      CHECK(*bytes <= bound);
    }
    calls += given;
    known += given > 0;
  }
  INFO(known << " of " << of_aten << " operators, " << calls << " calls");
  CHECK(known > 550);
  CHECK(calls > 10000);
}

}  // namespace triage::fuzz
