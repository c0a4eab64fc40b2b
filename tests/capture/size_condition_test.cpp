#include "tests/capture/script.h"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include "runtime/capture/sizes/numbers.h"

namespace triage::test {
namespace {

using capture::Compiled;
using capture::Recorder;
using Tensors = std::vector<at::Tensor>;

std::shared_ptr<FunctionScript> script_of_two(FunctionScript::Function function) {
  return std::make_shared<FunctionScript>(std::move(function), Signature{{"z", "w"}, {}, {}, {}});
}

/// One step of a computation with whole numbers: an operator, and what it takes besides the number so far.
struct Step {
  int op;        // into `ops`
  bool by_size;  // takes a size, else `number`
  int64_t number;
};
constexpr const char* ops[] = {"aten::add", "aten::sub", "aten::mul", "aten::floor_divide", "aten::remainder"};
constexpr const char* comparisons[] = {"aten::lt", "aten::le", "aten::gt", "aten::ge", "aten::eq", "aten::ne"};

at::Tensor size_of(const at::Tensor& tensor, int64_t dim) {
  if (Recorder::current())
    if (auto number = capture::record_size(tensor, dim)) return *number;
  return at::scalar_tensor(tensor.size(dim), at::kLong);
}

at::Tensor apply(const std::string& name, const at::Tensor& left, const c10::IValue& right) {
  const char* overload = right.isTensor() ? "Tensor" : "Scalar";
  if (name == "aten::floor_divide") return op(name.c_str(), right.isTensor() ? "" : "Scalar", {left, right});
  if (name == "aten::add" || name == "aten::sub") return op(name.c_str(), overload, {left, right, 1});
  return op(name.c_str(), overload, {left, right});
}

/// Whether the comparison of what the steps give with a number holds for these inputs.
bool decide(at::ArrayRef<at::Tensor> inputs, const std::vector<Step>& steps, int comparison, int64_t with) {
  at::Tensor number = size_of(inputs[0], 0);
  for (const Step& step : steps)
    number = apply(ops[step.op], number, step.by_size ? c10::IValue(size_of(inputs[1], 1)) : c10::IValue(step.number));
  const at::Tensor condition = apply(comparisons[comparison], number, with);
  if (Recorder::current() && capture::is_captured_number(condition)) capture::specialize(condition);
  return condition.item<bool>();
}

}  // namespace

TEST_CASE("D19: a guard on sizes decides as the script would, whatever it computes of them") {
  CHECK(rc::check("one graph for each way", [] {
    std::vector<Step> steps(*rc::gen::inRange<size_t>(0, 4));
    for (Step& step : steps) {
      step = {*rc::gen::inRange(0, 5), *rc::gen::arbitrary<bool>(), *rc::gen::inRange<int64_t>(-4, 5)};
      if (step.op >= 3) step = {step.op, false, std::abs(step.number) + 1};  // sizes can be 0
    }
    const int comparison = *rc::gen::inRange(0, 6);
    const int64_t with = *rc::gen::inRange<int64_t>(-3, 12);
    auto fn = script_of_two([&](auto inputs, auto) {
      return Tensors{decide(inputs, steps, comparison, with) ? op_add(inputs[0], inputs[0]) : op_relu(inputs[0])};
    });
    Compiled compiled(fn, {});
    for (int call = 0; call < 12; ++call) {
      const at::Tensor z = at::randn({*rc::gen::inRange<int64_t>(0, 9), 2});
      const at::Tensor w = at::ones({1, *rc::gen::inRange<int64_t>(0, 5)});
      const at::Tensor got = run(compiled, {z, w})[0];
      const bool way = decide({z, w}, steps, comparison, with);
      RC_ASSERT(got.equal(way ? z + z : z.relu()));
    }
    const bool one_size = steps.empty() && comparison >= 4;  // `size == 3` is known from then on: held fast
    if (!one_size) RC_ASSERT(compiled.entries().size() <= 2U);
  }));
}

TEST_CASE("D19: a guard on sizes says what it compares, and what changed") {
  std::vector<std::string> told;
  auto fn = script_of_two([](auto inputs, auto) {
    return Tensors{decide(inputs, {{2, false, 3}, {0, true, 0}}, 2, 10) ? op_relu(inputs[0]) : inputs[0]};
  });
  Compiled::Options options;
  options.inform = [&](const std::string& text) { told.push_back(text); };
  Compiled compiled(fn, options);
  run(compiled, {at::ones({4, 2}), at::ones({1, 2})});
  run(compiled, {at::ones({2, 2}), at::ones({1, 4})});
  CHECK(compiled.entries()[0]
            ->guards.text({"z", "w"})
            .find("(z:size(0) * 3) + w:size(1) > 10 (a condition of the script") != std::string::npos);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("`(z:size(0) * 3) + w:size(1) > 10` was true, is now false") != std::string::npos);
}

}  // namespace triage::test
