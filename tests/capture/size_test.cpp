// Sizes that a script relies on: which of them a captured graph is tied to, and which it is not.
#include "tests/capture/script.h"

#include <doctest/doctest.h>
#include <triage/flags.h>

using namespace triage;
using namespace triage::test;
using capture::Compiled;
using capture::Recorder;

namespace {

using Function = FunctionScript::Function;
using Tensors = std::vector<at::Tensor>;

/// A script that makes something of its inputs and relies on dimension 0 of it being that of the first input.
std::shared_ptr<FunctionScript> same_rows(const std::function<at::Tensor(at::ArrayRef<at::Tensor>)>& make) {
  return script(
      [make](auto inputs, auto) {
        if (Recorder* recorder = Recorder::current())
          recorder->sizes().rely_on({{inputs[0], 1}});  // as Tensor(dtype, {"N", 6})
        at::Tensor made = make(inputs);
        if (Recorder* recorder = Recorder::current()) recorder->sizes().rely_on({{made, 0, inputs[0], 0}});
        return Tensors{made};
      },
      {{"z", "w"}, {}, {}, {}});
}

struct Operation {
  std::string name;
  std::function<at::Tensor(at::ArrayRef<at::Tensor>)> make;
};

at::Tensor weight() {
  static const at::Tensor fixed = at::ones({4, 6});
  return fixed;
}

/// Operations on z (N, 6) whose first dimension is provably that of z.
std::vector<Operation> with_rows_of_z() {
  return {
      {"relu", [](auto in) { return op_relu(in[0]); }},
      {"add of itself", [](auto in) { return op_add(in[0], op_relu(in[0])); }},
      {"add of a constant row", [](auto in) { return op_add(in[0], at::ones({6})); }},
      {"add of a number",
       [](auto in) {
         return op("aten::add", "Scalar", {in[0], 1.0, 1});
       }},
      {"linear",
       [](auto in) {
         return op("aten::linear", "", {in[0], weight(), c10::IValue()});
       }},
      {"matmul",
       [](auto in) {
         return op("aten::matmul", "", {in[0], weight().t()});
       }},
      {"mean",
       [](auto in) {
         return op("aten::mean", "dim", {in[0], std::vector<int64_t>{-1}, true, c10::IValue()});
       }},
      {"any",
       [](auto in) {
         return op("aten::any", "dim", {op("aten::isnan", "", {in[0]}), -1, false});
       }},
      {"softmax",
       [](auto in) {
         return op("aten::softmax", "int", {in[0], -1, c10::IValue()});
       }},
      {"transpose twice",
       [](auto in) {
         return op("aten::transpose", "int", {op("aten::t", "", {in[0]}), 0, 1});
       }},
      {"reshape",
       [](auto in) {
         return op("aten::reshape", "",
                   {op("aten::reshape", "", {in[0], std::vector<int64_t>{-1, 2, 3}}), std::vector<int64_t>{-1, 6}});
       }},
      {"flatten",
       [](auto in) {
         return op("aten::flatten", "using_ints", {op("aten::unsqueeze", "", {in[0], 1}), 1, -1});
       }},
      {"select of a column",
       [](auto in) {
         return op("aten::select", "int", {in[0], 1, 2});
       }},
      {"cat along columns",
       [](auto in) {
         return op("aten::cat", "", {Tensors{in[0], in[0]}, 1});
       }},
      {"where",
       [](auto in) {
         return op("aten::where", "self", {op("aten::isnan", "", {in[0]}), at::zeros({}), in[0]});
       }},
      {"new flags",
       [](auto in) {
         return op("triage::new", "", {in[0], 16, at::kLong});
       }},
      {"is_ok of flags",
       [](auto in) {
         return op("triage::is_ok", "", {op("triage::new", "", {in[0], 16, at::kLong})});
       }},
  };
}

}  // namespace

TEST_CASE("T20: sizes that follow from an input's hold for every batch") {
  for (const Operation& operation : with_rows_of_z()) {
    CAPTURE(operation.name);
    auto fn = same_rows(operation.make);
    Compiled compiled(fn, {});
    for (int64_t rows : {3, 0, 1, 2, 31, 32, 33}) {
      at::Tensor z = at::randn({rows, 6}), w = at::ones({2});
      const at::Tensor made = run(compiled, {z, w})[0];
      CHECK(made.size(0) == rows);
    }
    CHECK(fn->calls == 1);
    CHECK(compiled.graph_breaks().empty());
    CHECK(compiled.entries().at(0)->guards.sizes.size() == 1);
  }
}

TEST_CASE("T20: sizes that follow from no rule tie the graph to the sizes of its inputs") {
  const auto rolled = [](auto in) { return op("aten::repeat", "", {in[0], std::vector<int64_t>{1, 2}}); };
  auto fn = same_rows(rolled);
  Compiled compiled(fn, {});
  for (int64_t rows : {3, 4, 3, 4}) CHECK(run(compiled, {at::randn({rows, 6}), at::ones({2})})[0].size(0) == rows);
  CHECK(fn->calls == 2);
}

TEST_CASE("T20: rules never claim what another size disproves") {
  // z (N, 6) and w (M, 6) broadcast: rows of the sum are those of z only while both agree, or w has one row.
  auto fn = same_rows([](auto in) { return op_add(in[0], in[1]); });
  Compiled compiled(fn, {});
  run(compiled, {at::ones({3, 6}), at::ones({3, 6})});
  run(compiled, {at::ones({1, 6}), at::ones({3, 6})});  // 3 rows now, which are not z's
  CHECK(fn->calls == 2);
  // A constant of 5 rows decides whatever z has.
  auto constant = same_rows([](auto in) { return op_add(in[0], at::ones({5, 6})); });
  Compiled with_constant(constant, {});
  run(with_constant, {at::ones({5, 6}), at::ones({2})});
  run(with_constant, {at::ones({1, 6}), at::ones({2})});
  CHECK(constant->calls == 2);
}

TEST_CASE("T20: two inputs of one size are guarded as such, whatever the size") {
  std::vector<std::string> told;
  auto fn = script(
      [](auto inputs, auto) {
        if (Recorder* recorder = Recorder::current()) recorder->sizes().rely_on({{inputs[1], 1, inputs[0], 0}});
        return Tensors{op("aten::matmul", "", {inputs[1], inputs[0]})};
      },
      {{"z", "w"}, {}, {}, {}});
  Compiled::Options options;
  options.inform = [&](const std::string& text) { told.push_back(text); };
  Compiled compiled(fn, options);
  for (int64_t rows : {3, 0, 1, 2, 31, 32, 33}) run(compiled, {at::ones({rows, 6}), at::ones({2, rows})});
  CHECK(fn->calls == 1);
  CHECK(compiled.entries()[0]->guards.text({"z", "w"}).find("w: size(1) == z: size(0)") != std::string::npos);
  CHECK_THROWS(run(compiled, {at::ones({3, 6}), at::ones({2, 4})}));  // the script runs, and says what is wrong
  CHECK(fn->calls == 2);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("tensor 'w' size 4 at index 1 was the size of tensor 'z' at index 0, which is now 3") !=
        std::string::npos);
}

TEST_CASE("T20: sizes that were found equal count as one from then on") {
  auto fn = script(
      [](auto inputs, auto) {
        Recorder* recorder = Recorder::current();
        if (recorder) recorder->sizes().rely_on({{inputs[1], 0, inputs[0], 0}});
        at::Tensor sum = op_add(inputs[0], inputs[1]);
        if (recorder) recorder->sizes().rely_on({{sum, 0, inputs[0], 0}});
        return Tensors{sum};
      },
      {{"z", "w"}, {}, {}, {}});
  Compiled compiled(fn, {});
  for (int64_t rows : {3, 0, 1, 2, 31, 32, 33}) run(compiled, {at::ones({rows, 6}), at::ones({rows, 6})});
  CHECK(fn->calls == 1);
}

TEST_CASE("T32: a size read of something computed ties the graph only to the input it comes from") {
  auto fn = script(
      [](auto inputs, auto) {
        at::Tensor y = op("aten::linear", "", {inputs[0], weight(), c10::IValue()});
        if (Recorder* recorder = Recorder::current()) recorder->sizes().read_size(y, -1);  // that of a constant
        return Tensors{y};
      },
      {{"z"}, {}, {}, {}});
  Compiled compiled(fn, {});
  for (int64_t rows : {3, 0, 1, 33}) run(compiled, {at::ones({rows, 6})});
  CHECK(fn->calls == 1);
}

TEST_CASE("T20: typed inputs of a script are checked whenever guards do not answer for them") {
  Signature signature{{"z", "w"}, {}, {}, {}};
  signature.input_types = {TensorSpec{.dims = {"N", 6}}, TensorSpec{.dims = {"N"}}};
  auto fn = script([](auto inputs, auto) { return Tensors{op_relu(inputs[0])}; }, signature);
  Compiled compiled(fn, {});
  for (int64_t rows : {3, 0, 1, 2, 31, 32, 33}) run(compiled, {at::ones({rows, 6}), at::ones({rows})});
  CHECK(fn->calls == 1);
  CHECK_THROWS_AS(run(compiled, {at::ones({3, 6}), at::ones({4})}), DimensionMismatchError);
  CHECK_THROWS_AS(run(compiled, {at::ones({3, 5}), at::ones({3})}), DimensionMismatchError);
  CHECK_THROWS_AS(run(compiled, {at::ones({3, 6}, at::kDouble), at::ones({3})}), DTypeMismatchError);
  CHECK_THROWS_AS(compiled.prepare({{{3, 6}, at::kFloat, c10::kCPU, false}, {{4}, at::kFloat, c10::kCPU, false}}, {}),
                  DimensionMismatchError);
  CHECK(fn->calls == 1);
}
