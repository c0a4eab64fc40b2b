// Branches by element of C++ hosts: IF with a mask of two or more dimensions, and WHERE.
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>
#include <triage/control_flow.h>

#include <runtime/flags/branches/element_masks.h>
#include <cmath>

#include "levels.h"

using namespace triage;
using namespace triage::test;

namespace {

at::Tensor table(const std::vector<double>& values, int64_t columns) {
  return at::tensor(values, at::kDouble).view({-1, columns});
}
at::Tensor leaf(const at::Tensor& data) { return data.clone().requires_grad_(true); }
at::Tensor gradient(const at::Tensor& y, const at::Tensor& x) {
  return torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0];
}
at::Tensor mask_of(const std::vector<int>& values, at::IntArrayRef sizes) {
  return at::tensor(values).to(at::kBool).view(sizes);
}

}  // namespace

TEST_CASE("IF chooses element by element, and only what is chosen has a gradient") {
  const at::Tensor x = leaf(table({4, 0, -1, NAN_VALUE}, 2));
  const at::Tensor y = IF(x > 0, [&] { return x.log(); }).ELIF(x < 0, [&] { return (-x).sqrt(); }).ELSE([&] {
    return at::zeros_like(x);
  });
  CHECK(at::allclose(y, table({std::log(4.0), 0, 1, 0}, 2)));
  CHECK(at::allclose(gradient(y, x), table({0.25, 0, -0.5, 0}, 2)));
}

TEST_CASE("masks over elements and of samples in one chain, and in branches of each other") {
  const at::Tensor x = leaf(table({4, -9, 0, 1}, 2));
  const at::Tensor y =
      IF(x > 0, [&] { return x.sqrt(); }).ELIF(mask_of({1, 0}, {2}), [&] { return -x; }).ELSE([&] { return x * 2; });
  CHECK(y.equal(table({2, 9, 0, 1}, 2)));
  CHECK(gradient(y, x).equal(table({0.25, -1, 2, 0.5}, 2)));
  const at::Tensor z = IF(mask_of({1, 0}, {2}), [&] {
                         return IF(x > 0, [&] { return x.log(); }).ELSE([&] { return x * 1; });
                       }).ELSE([&] { return x * 3; });
  CHECK(gradient(z, x).equal(table({0.25, 1, 3, 3}, 2)));
}

TEST_CASE("what mixes elements in a branch spoils none of them") {
  const at::Tensor x = leaf(table({3, 4, 0, 0}, 2));
  const at::Tensor y = IF(x != 0, [&] { return x / x.pow(2).sum(1).sqrt().unsqueeze(1); }).ELSE([&] { return x * 1; });
  CHECK(at::allclose(gradient(y, x), table({4.0 / 125, -3.0 / 125, 1, 1}, 2)));
}

TEST_CASE("weights that are broadcast: by themselves where the branch makes NaN, by expand_as where the data has it") {
  const at::Tensor w = leaf(at::tensor({2.0, 3.0}, at::kDouble));
  const at::Tensor x = table({1, 0, 4, 5}, 2);
  const at::Tensor y = WHERE(
      x > 0, [&] { return (x * w).log(); }, 0.0);
  CHECK(at::allclose(gradient(y, w), at::tensor({2 / 2.0, 1 / 3.0}, at::kDouble)));
  const at::Tensor bad = table({1, INF_VALUE, NAN_VALUE, 5}, 2);
  const at::Tensor z = WHERE(
      bad.isfinite(), [&] { return bad * w.expand_as(bad); }, 0.0);
  CHECK(gradient(z, w).equal(at::tensor({1.0, 5.0}, at::kDouble)));
}

TEST_CASE("WHERE takes functions, tensors and numbers, and masks of all kinds") {
  const at::Tensor x = leaf(table({4, 1, 0, 1}, 2));
  const at::Tensor rows = mask_of({1, 0}, {2});
  CHECK(gradient(WHERE(
                     rows, [&] { return x.log(); }, 7),
                 x)
            .equal(table({0.25, 1, 0, 0}, 2)));
  CHECK(WHERE(rows, 7, [&] { return x * 1; }).equal(table({7, 7, 0, 1}, 2)));
  CHECK(WHERE(x > 0, x, -1.5).equal(table({4, 1, -1.5, 1}, 2)));
  int ran = 0;
  const at::Tensor a = leaf(at::scalar_tensor(100.0, at::kDouble));
  const at::Tensor b = WHERE(
      a <= 0, [&] { return ++ran, a.exp() * INF_VALUE; }, [&] { return ++ran, 1 + a; });
  CHECK(b.item<double>() == 101.0);
  CHECK(gradient(b, a).item<double>() == 1.0);
  CHECK(ran == 2);
  const auto [root, same] = WHERE(
      x > 0, [&] { return std::pair(x.sqrt(), x); }, [&] { return std::pair(at::zeros_like(x), x); });
  CHECK(root.equal(table({2, 1, 0, 1}, 2)));
  CHECK(same.is_same(x));
}

TEST_CASE("shapes broadcast and dtypes are promoted as by at::where") {
  const at::Tensor mask = mask_of({1, 0, 0, 1, 1, 0}, {2, 3});
  const at::Tensor a = at::arange(3), b = at::randn({2, 1}, at::kDouble);
  const at::Tensor y = IF(mask, [&] { return a; }).ELSE([&] { return b; });
  CHECK(y.equal(at::where(mask, a.to(at::kDouble), b)));
  CHECK(IF(mask, [&] {
          return at::scalar_tensor(1.0);
        }).ELSE([&] {
            return at::scalar_tensor(2.0);
          }).equal(2 - mask.to(at::kFloat)));
}

TEST_CASE("IF by element refuses what does not fit, by the name of the branch") {
  const at::Tensor z = at::ones({2, 3}), mask = z > 0;
  const auto keep = [&] { return z; };
  const auto refused = [&](const std::function<void()>& call, std::initializer_list<const char*> parts) {
    check_refused(message_of(call), parts);
    CHECK_THROWS_AS(call(), InputError);
  };
  refused([&] { (void)IF(mask, keep).ELSE([&] {
                  return at::ones({2, 2});
                }); },
          {"IF: the branches IF and ELSE differ in result 1", "[2, 3] against", "[2, 2]"});
  refused(
      [&] {
        (void)IF(at::ones({2, 2}, at::kBool), keep).ELSE([&] { return z * 2; });
      },
      {"does not broadcast with the condition", "[2, 2]"});
  refused([&] { (void)IF(mask, [&] { return z[0]; }).ELSE([&] { return z[1]; }); }, {"has more dimensions than"});
  refused([&] { (void)IF(mask, [&] { return err::new_(z); }).ELSE([&] { return err::new_(z * 2); }); },
          {"is flags, which belong to samples", "mask.flatten(1).any(1)"});
  refused([&] { (void)WHERE(z, keep, keep); }, {"WHERE: expected a bool tensor", "compare it with something"});
  refused([&] { (void)WHERE(mask, keep, at::ones({2, 2})); }, {"WHERE: the branches a and b differ in result 1"});
  refused(
      [&] {
        (void)WHERE(
            mask, [] { return at::Tensor(); }, keep);
      },
      {"WHERE: the branch a returned an undefined tensor"});
  refused([&] { (void)IF(mask_of({1, 0, 1}, {3}), keep).ELSE([&] { return z * 2; }); }, {"mask.unsqueeze(0)"});
}

TEST_CASE("a mask over elements for tensors of other sizes") {
  using flags::elements::over;
  const at::Tensor mask = mask_of({1, 0, 0, 0, 0, 0}, {2, 3});
  const auto says = [&](at::IntArrayRef sizes, const at::Tensor& expected) {
    const auto found = over(mask, sizes);
    REQUIRE(found.has_value());
    CHECK(found->equal(expected));
  };
  says({2, 3}, mask);
  says({2, 1}, mask_of({1, 0}, {2, 1}));
  says({1, 3}, mask_of({1, 0, 0}, {1, 3}));
  says({4, 2, 3}, mask.unsqueeze(0));
  says({2, 3, 4}, mask.unsqueeze(2));
  says({3}, mask_of({1, 0, 0}, {3}));
  says({2}, mask_of({1, 0}, {2}));
  says({}, mask_of({1}, {}));
  CHECK_FALSE(over(mask, {3, 2}).has_value());
  CHECK_FALSE(over(mask, {4}).has_value());
  const at::Tensor square = mask_of({0, 1, 0, 0}, {2, 2});  // which dimension is meant is not known
  CHECK(over(square, {2})->equal(mask_of({1, 1}, {2})));
}
