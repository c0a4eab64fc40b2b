// In which order the elements of a result lie: capture relies on it where a write in place becomes an operator that
// returns its result.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/graph/evaluation/restride.h"
#include "runtime/graph/functional.h"
#include "runtime/operators/contract.h"

namespace {

using Tensors = std::vector<at::Tensor>;

/// Dense tensors of which none is row-major.
Tensors orders(at::ScalarType dtype) {
  const auto filled = [&](at::IntArrayRef sizes) {
    return (at::arange(c10::multiply_integers(sizes)) % 3).view(sizes).to(dtype);
  };
  return {filled({3, 2}).t(), filled({2, 3, 4}).permute({2, 0, 1}),
          filled({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
          filled({2, 3, 4, 2, 3}).permute({4, 0, 3, 1, 2})};
}

/// Arguments for a call with this tensor first: row-major tensors of its sizes, and small numbers. False where the
/// operator takes others.
bool push_arguments(const c10::FunctionSchema& schema, const at::Tensor& self, torch::jit::Stack& stack) {
  stack = {self};
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto kind = argument.real_type()->kind();
    if (argument.default_value())
      stack.push_back(*argument.default_value());
    else if (kind == c10::TypeKind::TensorType)
      stack.emplace_back(argument.name() == "value"
                             ? at::ones({}, self.options())
                             : at::ones(self.sizes(), self.options().dtype(
                                                          argument.name() == "mask" ? at::kBool : self.scalar_type())));
    else if (kind == c10::TypeKind::NumberType || kind == c10::TypeKind::FloatType)
      stack.emplace_back(kind == c10::TypeKind::FloatType ? c10::IValue(0.5) : c10::IValue(int64_t{1}));
    else if (kind == c10::TypeKind::IntType)
      stack.emplace_back(int64_t{1});
    else if (kind == c10::TypeKind::OptionalType)
      stack.emplace_back(argument.name() == "rounding_mode" ? c10::IValue("floor") : c10::IValue());
    else
      return false;
  }
  return true;
}

/// How many of `orders` the operator took; checks that it keeps each of them.
int check_order(const c10::OperatorHandle& twin) {
  int taken = 0;
  for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool})
    for (const at::Tensor& self : orders(dtype)) {
      torch::jit::Stack stack;
      if (!push_arguments(twin.schema(), self, stack)) return 0;
      try {
        twin.callBoxed(&stack);
      } catch (const std::exception&) {  // of another dtype
        continue;
      }
      ++taken;
      const at::Tensor& result = stack.back().toTensor();
      CHECK_MESSAGE((result.sizes() == self.sizes() && result.strides() == self.strides()),
                    twin.operator_name() << " of " << self.strides() << " gives " << result.strides());
    }
  return taken;
}

}  // namespace

TEST_CASE("operators that stand for writes keep the order of what is written to, or capture restores it") {
  int known = 0, called = 0;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    const auto twin = op ? triage::graph::functional_twin(*op) : std::nullopt;
    if (!twin || !triage::graph::keeps_order(*twin)) continue;
    ++known;
    called += check_order(*twin) > 0;
  }
  CHECK(known > 150);
  CHECK(called > known - 15);
}

TEST_CASE("restride: the elements of one tensor in the order of another, in memory of their own") {
  for (const at::Tensor& like : orders(at::kFloat)) {
    const at::Tensor rows = at::rand(like.sizes());
    for (const at::Tensor& self : {rows, at::empty_like(like).copy_(rows)}) {
      torch::jit::Stack stack{self, like};
      triage::graph::restride().callBoxed(&stack);
      const at::Tensor& made = stack[0].toTensor();
      CHECK(made.equal(rows));
      CHECK(made.strides() == like.strides());
      CHECK_FALSE(made.is_alias_of(self));
    }
    CHECK(triage::graph::restride_in_aten(rows, like).strides() == like.strides());
  }
  const at::Tensor gaps = at::zeros({4, 6}).slice(1, 0, 3).t(), rows = at::rand({3, 4});
  torch::jit::Stack stack{rows, gaps};
  triage::graph::restride().callBoxed(&stack);
  CHECK(stack[0].toTensor().equal(rows));
  CHECK(stack[0].toTensor().strides() == at::IntArrayRef{1, 3});  // which leaves the gaps out
}
