// The law of size rules: whatever a graph was made to rely on of a result's sizes holds at every size for which the
// graph answers. A rule that claims too much breaks it; one that claims too little costs only graphs.
#include "tests/capture/script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/library.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace triage;
using namespace triage::test;
using capture::Compiled;
using capture::Recorder;

namespace {

using Ints = std::vector<int64_t>;
using Tensors = std::vector<at::Tensor>;

const c10::IValue none;

struct Case {
  std::string name;
  std::function<at::Tensor(const at::Tensor& z)> make;  // z is (N, 6)
};

at::Tensor fixed(Ints sizes, at::ScalarType dtype = at::kFloat) { return at::ones(sizes, dtype); }
at::Tensor is_nan(const at::Tensor& z) { return op("aten::isnan", "", {z}); }
at::Tensor cube(const at::Tensor& z) { return op("aten::view", "", {z, Ints{-1, 2, 3}}); }
at::Tensor new_flags(const at::Tensor& z) { return op("triage::new", "", {z, 16, static_cast<int64_t>(at::kLong)}); }

/// One call of an operator on z, by name.
Case call(const char* name, const char* overload, std::function<torch::jit::Stack(const at::Tensor& z)> arguments) {
  return {std::string(name) + "." + overload, [=](const at::Tensor& z) { return op(name, overload, arguments(z)); }};
}

/// One of the tensors that an operator cuts z into, from the end.
Case part(const char* name, const char* overload, size_t from_end, std::vector<c10::IValue> how) {
  return {std::string(name) + "." + overload, [=](const at::Tensor& z) {
            torch::jit::Stack stack{z};
            stack.insert(stack.end(), how.begin(), how.end());
            capture::call(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), stack);
            const std::vector<at::Tensor> parts = stack.back().toTensorVector();
            return parts[parts.size() - 1 - std::min(from_end, parts.size() - 1)];
          }};
}

std::vector<Case> parts() {
  std::vector<Case> cases;
  for (const int64_t dim : {0, 1, -1, -2})
    for (const size_t from_end : {0, 1, 9})
      for (const int64_t number : {1, 2, 4, 6}) {
        cases.push_back(part("aten::split", "Tensor", from_end, {number, dim}));
        cases.push_back(part("aten::chunk", "", from_end, {number, dim}));
        cases.push_back(part("aten::tensor_split", "sections", from_end, {number, dim}));
        cases.push_back(part("aten::tensor_split", "indices", from_end, {Ints{1, number}, dim}));
        cases.push_back(part("aten::split_with_sizes", "", from_end, {Ints{6 - number, number}, dim}));
        cases.push_back(part("aten::unbind", "int", from_end, {dim}));
      }
  return cases;
}

std::vector<Case> elementwise() {
  return {
      call("aten::exp", "", [](auto& z) { return torch::jit::Stack{z}; }),
      call("aten::add", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({6}), 1};
           }),
      call("aten::add", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{fixed({2, 1, 1}), z, 1};
           }),
      call("aten::add", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({1, 6}), 1};
           }),
      call("aten::add", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({3, 6}), 1};
           }),
      call("aten::clamp", "",
           [](auto& z) {
             return torch::jit::Stack{z, 0.0, 1.0};
           }),
      call("aten::clamp", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({3, 1, 1}), none};
           }),
      call("aten::masked_fill", "Scalar",
           [](auto& z) {
             return torch::jit::Stack{z, is_nan(z), 0.0};
           }),
      call("aten::lerp", "Scalar",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({6}), 0.5};
           }),
      call("aten::where", "self",
           [](auto& z) {
             return torch::jit::Stack{is_nan(z), at::zeros({}), z};
           }),
      call("aten::softmax", "int",
           [](auto& z) {
             return torch::jit::Stack{z, 1, none};
           }),
      call("aten::cumsum", "",
           [](auto& z) {
             return torch::jit::Stack{z, 0, none};
           }),
      call("aten::roll", "",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{1}, Ints{0}};
           }),
      call("aten::triu", "",
           [](auto& z) {
             return torch::jit::Stack{z, 0};
           }),
      call("aten::zeros_like", "", [](auto& z) { return torch::jit::Stack{z, none, none, none, none, none}; }),
  };
}

std::vector<Case> reductions_and_products() {
  return {
      call("aten::sum", "",
           [](auto& z) {
             return torch::jit::Stack{z, none};
           }),
      call("aten::sum", "dim_IntList",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{0}, false, none};
           }),
      call("aten::sum", "dim_IntList",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{-1}, true, none};
           }),
      call("aten::sum", "dim_IntList",
           [](auto& z) {
             return torch::jit::Stack{cube(z), Ints{0, 2}, true, none};
           }),
      call("aten::std", "dim",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{1}, false, true};
           }),
      call("aten::var", "",
           [](auto& z) {
             return torch::jit::Stack{z, false};
           }),
      call("aten::any", "dim",
           [](auto& z) {
             return torch::jit::Stack{is_nan(z), 0, false};
           }),
      call("aten::argmin", "",
           [](auto& z) {
             return torch::jit::Stack{z, 1, false};
           }),
      call("aten::logsumexp", "",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{1}, false};
           }),
      call("aten::count_nonzero", "",
           [](auto& z) {
             return torch::jit::Stack{z, 1};
           }),
      call("aten::linear", "",
           [](auto& z) {
             return torch::jit::Stack{cube(z), fixed({4, 3}), none};
           }),
      call("aten::mm", "",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({6, 4})};
           }),
      call("aten::matmul", "",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({6})};
           }),
      call("aten::matmul", "",
           [](auto& z) {
             return torch::jit::Stack{z, fixed({2, 6, 4})};
           }),
      call("aten::matmul", "",
           [](auto& z) {
             return torch::jit::Stack{fixed({6}), op("aten::t", "", {z})};
           }),
      call("aten::bmm", "",
           [](auto& z) {
             return torch::jit::Stack{cube(z), cube(z).transpose(1, 2)};
           }),
      call("aten::addmm", "",
           [](auto& z) {
             return torch::jit::Stack{fixed({4}), z, fixed({6, 4}), 1, 1};
           }),
      call("aten::embedding", "",
           [](auto& z) {
             at::Tensor rows = op("aten::argmin", "", {z, 1, true});
             return torch::jit::Stack{fixed({9, 5}), rows, -1, false, false};
           }),
      call("aten::conv1d", "",
           [](auto& z) {
             at::Tensor signal = op("aten::unsqueeze", "", {z, 1});
             return torch::jit::Stack{signal, fixed({2, 1, 3}), none, Ints{1}, Ints{0}, Ints{1}, 1};
           }),
  };
}

std::vector<Case> views_joins_and_flags() {
  constexpr int64_t end = std::numeric_limits<int64_t>::max();
  const auto flags_call = [](const char* name, const char* overload, std::vector<c10::IValue> rest) {
    return call(name, overload, [=](auto& z) {
      torch::jit::Stack stack{new_flags(z)};
      stack.insert(stack.end(), rest.begin(), rest.end());
      return stack;
    });
  };
  return {
      call("aten::flatten", "using_ints",
           [](auto& z) {
             return torch::jit::Stack{cube(z), 1, -1};
           }),
      call("aten::flatten", "using_ints",
           [](auto& z) {
             return torch::jit::Stack{z, 0, -1};
           }),
      call("aten::view", "",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{-1, 3, 2}};
           }),
      call("aten::view", "",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{-1, 3}};
           }),
      call("aten::reshape", "",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{2, -1}};
           }),
      call("aten::reshape", "",
           [](auto& z) {
             return torch::jit::Stack{cube(z), Ints{-1}};
           }),
      call("aten::unsqueeze", "",
           [](auto& z) {
             return torch::jit::Stack{z, -1};
           }),
      call("aten::t", "", [](auto& z) { return torch::jit::Stack{z}; }),
      call("aten::transpose", "int",
           [](auto& z) {
             return torch::jit::Stack{z, 0, -1};
           }),
      call("aten::permute", "",
           [](auto& z) {
             return torch::jit::Stack{cube(z), Ints{2, 0, 1}};
           }),
      call("aten::select", "int",
           [](auto& z) {
             return torch::jit::Stack{z, 1, 0};
           }),
      call("aten::slice", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, 0, 0, 2, 1};
           }),
      call("aten::slice", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, 0, none, none, 2};
           }),
      call("aten::slice", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, 0, 0, end, 1};
           }),
      call("aten::slice", "Tensor",
           [](auto& z) {
             return torch::jit::Stack{z, 0, -2, end, 1};
           }),
      call("aten::cat", "",
           [](auto& z) {
             return torch::jit::Stack{Tensors{z, z}, 1};
           }),
      call("aten::cat", "",
           [](auto& z) {
             return torch::jit::Stack{Tensors{z, fixed({2, 6})}, 0};
           }),
      call("aten::stack", "",
           [](auto& z) {
             return torch::jit::Stack{Tensors{z, z, z}, 1};
           }),
      call("aten::expand_as", "",
           [](auto& z) {
             return torch::jit::Stack{fixed({6}), z};
           }),
      call("aten::squeeze", "", [](auto& z) { return torch::jit::Stack{z}; }),
      call("aten::squeeze", "dim",
           [](auto& z) {
             return torch::jit::Stack{z, 0};
           }),
      call("aten::repeat", "",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{2, 1}};
           }),
      call("aten::expand", "",
           [](auto& z) {
             return torch::jit::Stack{z, Ints{2, -1, 6}, false};
           }),
      flags_call("triage::is_ok", "", {}),
      flags_call("triage::all_ok", "", {}),
      flags_call("triage::get_slot", "", {1}),
      flags_call("triage::push", "scalar", {1, 0, 3, 16, 24}),
      call("triage::flag_nan", "",
           [](auto& z) { return torch::jit::Stack{z, none, 0, 5, 24, static_cast<int64_t>(at::kInt)}; }),
      call("triage::flag_nan", "",
           [](auto& z) { return torch::jit::Stack{z, new_flags(z), 0, 16, 24, static_cast<int64_t>(at::kLong)}; }),
      call("triage::take_ok_p", "",
           [](auto& z) {
             return torch::jit::Stack{new_flags(z), z, 0.0};
           }),
      call("triage::fix", "scalar",
           [](auto& z) { return torch::jit::Stack{z, new_flags(z), 0.0, 0, 0xFFFF, 1, 16, 24}; }),
      call("triage::select", "",
           [](auto& z) {
             return torch::jit::Stack{op("aten::any", "dim", {is_nan(z), -1, false}), z, z};
           }),
  };
}

/// A graph captured at `rows` that relies on `facts` of what the case makes; the result it gives at other sizes.
void check_law(const Case& each, int64_t rows, int64_t dim, bool of_z, bool columns_known) {
  at::Tensor at_capture;
  auto script = std::make_shared<FunctionScript>([&](auto inputs, auto) {
    if (Recorder* recorder = Recorder::current(); recorder && columns_known)
      recorder->sizes().rely_on({{inputs[0], 1}});
    at::Tensor made = each.make(inputs[0]);
    if (Recorder* recorder = Recorder::current()) {
      at_capture = made;
      if (of_z)
        recorder->sizes().rely_on({{made, dim, inputs[0], 0}});
      else
        recorder->sizes().rely_on({{made}, {made, dim}});
    }
    return Tensors{made};
  });
  Compiled compiled(script, {});
  run(compiled, {at::ones({rows, 6})});
  REQUIRE(compiled.entries().size() == 1);
  for (int64_t other : {0, 1, 2, 3, 4, 6, 33}) {
    const at::Tensor z = at::ones({other, 6});
    if (!compiled.entries()[0]->guards.hold({z})) continue;
    CAPTURE(other);
    std::vector<at::Tensor> outputs;
    try {
      compiled.entries()[0]->executable->run({z}, outputs);
    } catch (const std::exception&) {
      continue;  // no result, no claim
    }
    REQUIRE(outputs.size() == 1);
    REQUIRE(outputs[0].dim() == at_capture.dim());
    CHECK(outputs[0].size(dim) == (of_z ? other : at_capture.size(dim)));
  }
}

void check_cases(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    CAPTURE(each.name);
    for (int64_t rows : {1, 2, 3, 6}) {
      at::Tensor made;
      try {
        made = each.make(at::ones({rows, 6}));
      } catch (const std::exception&) {
        continue;  // does not work at this size
      }
      CAPTURE(rows);
      for (int64_t dim = 0; dim < made.dim(); ++dim) {
        CAPTURE(dim);
        for (const bool columns_known : {false, true}) {
          check_law(each, rows, dim, false, columns_known);
          if (made.size(dim) == rows) check_law(each, rows, dim, true, columns_known);
        }
      }
    }
  }
}

/// Operators that are called as some of ATen's, and give other sizes: at least three rows, and all rows of a sum.
TORCH_LIBRARY(size_rules_test, m) {
  const auto padded = [](const at::Tensor& x) {
    return at::constant_pad_nd(x, {0, 0, 0, std::max<int64_t>(0, 3 - x.size(0))});
  };
  m.def("relu(Tensor x) -> Tensor", padded);
  m.def("sum(Tensor x) -> Tensor", padded);
  m.def("mT(Tensor x) -> Tensor", padded);
}

}  // namespace

TEST_CASE("an operator of another library gets no rule of the operator of ATen that has its name") {
  check_cases({{"relu", [](const at::Tensor& z) { return op("size_rules_test::relu", "", {z}); }},
               {"sum", [](const at::Tensor& z) { return op("size_rules_test::sum", "", {z}); }},
               {"mT", [](const at::Tensor& z) { return op("size_rules_test::mT", "", {z}); }}});
}

TEST_CASE("T20: what is relied on of sizes holds wherever the graph answers: elementwise operators") {
  check_cases(elementwise());
}

TEST_CASE("T20: what is relied on of sizes holds wherever the graph answers: reductions and products") {
  check_cases(reductions_and_products());
}

TEST_CASE("T20: what is relied on of sizes holds wherever the graph answers: views, joins, flags") {
  check_cases(views_joins_and_flags());
}

TEST_CASE("T20: what is relied on of sizes holds wherever the graph answers: parts") { check_cases(parts()); }
