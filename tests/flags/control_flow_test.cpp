// IF, ELIF, ELSE, HAS, IS, AND, OR, NOT of C++ hosts.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/control_flow.h>

#include "levels.h"

using namespace triage;
using namespace triage::test;

namespace {

at::Tensor bools(const std::vector<int>& values) { return at::tensor(values).to(at::kBool); }

at::Tensor gradient_of_sum(const at::Tensor& y, const at::Tensor& x) {
  return torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0];
}

at::Tensor leaf_column(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).unsqueeze(1).requires_grad_(true);
}

bool truth(const at::Tensor& condition) {
  CHECK(condition.dim() == 0);
  return condition.item<bool>();
}

}  // namespace

TEST_CASE("T15: IF selects sample by sample, and the first condition that holds wins") {
  for (int64_t n : {0, 1, 2, 33}) {
    CAPTURE(n);
    const at::Tensor z = at::randn({4, n}).t();  // strided
    const at::Tensor first = at::arange(n).remainder(2).eq(0), second = at::arange(n).remainder(3).eq(0);
    const at::Tensor y =
        IF(first, [&] { return z + 1; }).ELIF(second, [&] { return z * 2; }).ELSE([&] { return at::zeros_like(z); });
    const auto rows = [](const at::Tensor& mask) { return mask.unsqueeze(1); };
    CHECK(y.equal(at::where(rows(first), z + 1, at::where(rows(second), z * 2, at::zeros_like(z)))));
  }
}

TEST_CASE("T15: branches give pairs, tuples and lists, and what all of them return is given back as it is") {
  const at::Tensor z = at::ones({2, 3}), f = flag_nan(z, 1), m = bools({1, 0});
  auto [a, g] = IF(m, [&] { return std::pair(z * 5, f); }).ELSE([&] { return std::pair(z, f); });
  CHECK(a.equal(at::tensor({5, 5, 5, 1, 1, 1}).to(at::kFloat).reshape({2, 3})));
  CHECK(g.is_same(f));
  auto [b, h, k] = IF(m, [&] { return std::tuple(z, f, m); }).ELSE([&] { return std::tuple(-z, f, ~m); });
  CHECK(k.equal(bools({1, 1})));
  const std::vector<at::Tensor> list = IF(m, [&] { return std::vector{z}; }).ELSE([&] { return std::vector{-z}; });
  CHECK(list.at(0).equal(b));
  const auto nothing = IF(m, [] { return std::vector<at::Tensor>(); }).ELSE([] { return std::vector<at::Tensor>(); });
  CHECK(nothing.empty());
}

TEST_CASE("T15: a condition of the batch runs only the branch that it takes") {
  const at::Tensor z = at::ones({2, 2}), yes = at::ones({}, at::kBool), no = at::zeros({}, at::kBool);
  std::string ran;
  const auto branch = [&](const char* name, double value) {
    return [&ran, name, value, z] {
      ran += name;
      return z * value;
    };
  };
  CHECK(IF(yes, branch("a", 1)).ELIF(yes, branch("b", 2)).ELSE(branch("c", 3)).equal(z));
  CHECK(IF(no, branch("d", 1)).ELIF(no, branch("e", 2)).ELSE(branch("f", 3)).equal(z * 3));
  CHECK(ran == "af");
  ran.clear();
  // Mixed: the mask decides its rows, the batch the others.
  const at::Tensor y = IF(bools({0, 1}), branch("g", 4)).ELIF(yes, branch("h", 5)).ELSE(branch("i", 6));
  CHECK(y.select(1, 0).equal(at::tensor({5, 4}).to(at::kFloat)));
  CHECK(ran == "gh");
}

TEST_CASE("T15: HAS, IS, AND, OR, NOT") {
  const at::Tensor z = at::tensor({1.0F, NaN}).unsqueeze(1), f = flag_nan_and_inf(z, 1), fine = err::new_(z);
  CHECK(truth(HAS(f)));
  CHECK_FALSE(truth(HAS(fine)));
  CHECK(truth(IS(err::nan, f)));
  CHECK_FALSE(truth(IS(err::inf, f)));
  CHECK(truth(AND(HAS(f), NOT(HAS(fine)), IS(err::nan, f))));
  CHECK_FALSE(truth(AND(HAS(f), HAS(fine))));
  CHECK(truth(OR(HAS(fine), HAS(f))));
  CHECK_FALSE(truth(OR(HAS(fine))));
  CHECK_FALSE(truth(HAS(err::new_t(0))));
}

TEST_CASE("T15 T31: what a branch does to rows that it does not decide reaches no gradient") {
  const at::Tensor x = leaf_column({0.0, 4.0, -1.0, 9.0}), w = at::ones({1, 1}, at::kDouble).requires_grad_(true);
  const at::Tensor z = x.mm(w) * 1.0;  // the branches use what was made before them, and a weight
  const at::Tensor positive = (z > 0).flatten(0);
  const auto check = [&](const at::Tensor& y) {
    CHECK(gradient_of_sum(y, x).flatten().equal(at::tensor({1.0, 0.25, 1.0, 1.0 / 9}, at::kDouble)));
    CHECK(std::isfinite(gradient_of_sum(y, w).item<double>()));
  };
  SUBCASE("IF") {
    check(IF(positive, [&] { return z.log(); }).ELSE([&] { return z; }));
  }
  SUBCASE("ELSE") {
    check(IF(~positive, [&] { return z * 1.0; }).ELSE([&] { return z.log(); }));
  }
  SUBCASE("ELIF") {
    const at::Tensor y = IF(~positive, [&] { return z * 1.0; }).ELIF(positive, [&] { return z.log(); }).ELSE([&] {
      return z.sqrt().log();
    });
    check(y);
  }
  SUBCASE("a leaf used in the branch itself") {
    const at::Tensor y = IF(positive, [&] { return x.log(); }).ELSE([&] { return x; });
    check(y * w);
  }
  SUBCASE("IF in a branch") {
    const at::Tensor first = bools({0, 1, 0, 0});
    const auto inner = [&] { return IF(positive, [&] { return z.log(); }).ELSE([&] { return 1 / (z - z) * 0; }); };
    check(IF(first, [&] { return z.log(); }).ELIF(positive, inner).ELSE([&] { return z; }));
  }
  SUBCASE("of several results, two ways to the same tensor") {
    auto [y, s] =
        IF(positive, [&] { return std::pair(z.log(), z.log() + z.sqrt()); }).ELSE([&] { return std::pair(z, z); });
    check(y);
    CHECK(gradient_of_sum(y + s, x).isfinite().all().item<bool>());
  }
}

TEST_CASE("T15 T31: a NaN in rows that the branch does decide is not hidden") {
  const at::Tensor x = leaf_column({0.0, 4.0});
  const at::Tensor y = IF(bools({1, 0}), [&] { return (x * 0.0).sqrt() * 0.0; }).ELSE([&] { return x * 1.0; });
  const at::Tensor grad = gradient_of_sum(y, x).flatten();
  CHECK(std::isnan(grad[0].item<double>()));
  CHECK(grad[1].item<double>() == 1.0);
}

TEST_CASE("T15: without gradients nothing is guarded, and second derivatives are there") {
  const at::Tensor x = leaf_column({0.0, 2.0});
  const auto cube = [&] { return IF(bools({0, 1}), [&] { return x * x * x / x; }).ELSE([&] { return x * 1.0; }); };
  {
    at::NoGradGuard no_grad;
    CHECK_FALSE(cube().requires_grad());
  }
  const at::Tensor first =
      torch::autograd::grad({cube().sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  CHECK(first.flatten().equal(at::tensor({1.0, 4.0}, at::kDouble)));
  const at::Tensor second = torch::autograd::grad({first[1].sum()}, {x})[0];
  CHECK(second.flatten()[1].item<double>() == doctest::Approx(2.0));
}

TEST_CASE("T15: IF in C++ refuses what does not fit, by the name of the branch") {
  const at::Tensor z = at::ones({3, 2}), m = bools({1, 0, 1});
  const auto keep = [&] { return z; };
  const auto refused = [&](const std::function<void()>& call, std::initializer_list<const char*> parts) {
    check_refused(message_of(call), parts);
    CHECK_THROWS_AS(call(), InputError);
  };
  refused([&] { (void)IF(z, keep); }, {"IF: expected a bool tensor", "compare it with something"});
  refused([&] { (void)IF({}, keep); }, {"IF: expected a bool tensor", "an undefined tensor"});
  refused([&] { (void)IF(m, keep).ELIF(z, keep); }, {"ELIF: expected a bool tensor", "[3, 2]", "compare it"});
  refused([&] { (void)IF(m, std::function<at::Tensor()>()); }, {"IF: the function is empty"});
  refused([&] { (void)IF(m, keep).ELSE(std::function<at::Tensor()>()); }, {"ELSE: the function is empty"});
  refused([&] { (void)IF(m, [&] { return z.to(at::kLong); }).ELSE(keep); },
          {"the branches IF and ELSE differ in result 1", "Long of shape [3, 2] against Float of shape [3, 2]"});
  refused([&] { (void)IF(m, keep).ELIF(m, [&] { return z.sum(1); }).ELSE(keep); },
          {"the branches ELIF 1 and ELSE differ in result 1", "[3]"});
  refused([&] { (void)IF(m, [&] { return z.sum() * 1; }).ELSE([&] { return z.sum() * 2; }); },
          {"differ in result 1", "does not have one row per sample"});
  refused([&] { (void)IF(m, [] { return at::Tensor(); }).ELSE(keep); },
          {"the branch IF returned an undefined tensor as result 1"});
  refused([&] { (void)IF(m, [&] { return std::vector{z}; }).ELSE([&] {
                  return std::vector{z, z};
                }); },
          {"the branch IF returns 1 tensors and ELSE returns 2"});
  refused([&] { AND(m, m); }, {"AND: expected a condition of shape ()", "& | ~"});
  refused([&] { OR(z.sum()); }, {"OR: expected a bool tensor"});
  refused([&] { NOT(m); }, {"NOT: expected a condition of shape ()"});
  refused([&] { IS(Code{16}, flag_nan(z, 1)); }, {"IS: an error code is 0..15; got 16"});
  refused([&] { IS(err::nan, {}); }, {"IS: `f` is not a tensor"});
  refused([&] { HAS(m); }, {"HAS: "});
}
