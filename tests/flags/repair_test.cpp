// What passes data through, and its gradients: a repaired row contributes exactly nothing.
#include "levels.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

namespace triage::test {
namespace {

Tensor rows_bad(std::vector<int64_t> bad) {  // flags of 4 samples
  auto mask = at::zeros({4}, at::kBool);
  for (int64_t i : bad) mask[i] = true;
  PushOptions options;
  options.where = mask;
  return err::push(err::new_t(4), err::nan, 1, options);
}

Tensor leaf(const Tensor& value) { return value.detach().clone().set_requires_grad(true); }

Tensor gradient(const Tensor& output, const Tensor& input, Tensor grad = {}) {
  if (!grad.defined()) grad = at::ones_like(output);
  return torch::autograd::grad({output}, {input}, {grad}, /*retain_graph=*/true, /*create_graph=*/false,
                               /*allow_unused=*/true)[0];
}

// Central differences of sum(w * fn(x)) against autograd, in double.
template <class Fn>
void check_gradient(Fn fn, const Tensor& at_point) {
  const auto x = leaf(at_point);
  const auto y = fn(x);
  const auto w = at::rand_like(y.detach()) + 0.5;
  const auto got = gradient(y, x, w);
  const double step = 1e-6;
  for (int64_t i = 0; i < x.numel(); ++i) {
    auto up = at_point.clone(), down = at_point.clone();
    up.view(-1)[i] += step;
    down.view(-1)[i] -= step;
    const double slope = ((fn(up) * w).sum() - (fn(down) * w).sum()).item().toDouble() / (2 * step);
    CHECK(got.view(-1)[i].item().toDouble() == doctest::Approx(slope).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("T14 T33: fix gives bad samples the fallback and records it") {
  const auto z = at::randn({4, 3});
  const auto f = rows_bad({1, 3});
  FixOptions options;
  options.fallback = 2.5;
  auto [fixed, next] = fix(z, f, 6, options);
  CHECK(fixed.equal(at::where(err::is_err(f).unsqueeze(1), at::full({}, 2.5), z)));
  CHECK(err::has_fallback(next).equal(err::is_err(f)));
  const auto errors = flags::unpack(next, 3);
  REQUIRE(errors.size() == 2);
  CHECK(errors[1].severity == err::warn);
  CHECK(errors[1].location == 6);
  const auto row = at::randn({3}), full = at::randn({4, 3}), column = at::randn({4, 1});
  for (const auto& fallback : {row, full, column, at::full({}, 1.5), at::full({1, 1}, 1.5)}) {
    options.fallback = fallback;
    CHECK(fix(z, f, 6, options).first.equal(at::where(err::is_err(f).unsqueeze(1), fallback, z)));
  }
  options.fallback = [&] { return full; };
  CHECK(fix(z, f, 6, options).first.equal(at::where(err::is_err(f).unsqueeze(1), full, z)));
}

TEST_CASE("T14: codes and min_severity narrow which entries count in fix") {
  auto f = rows_bad({1, 3});
  PushOptions mild;
  mild.where = at::tensor({1, 0, 0, 0}).to(at::kBool);
  f = err::push(f, err::saturated, 2, mild);
  const auto z = at::ones({4, 2});
  auto changed = [&](FixOptions options) { return at::ne(fix(z, f, 0, options).first, 1).any(1); };
  FixOptions options;
  CHECK(changed(options).equal(at::tensor({1, 1, 0, 1}).to(at::kBool)));
  options.codes = {err::saturated};
  CHECK(changed(options).equal(at::tensor({1, 0, 0, 0}).to(at::kBool)));
  options.codes = {};
  options.min_severity = err::error;
  CHECK(changed(options).equal(at::tensor({0, 1, 0, 1}).to(at::kBool)));
}

TEST_CASE("T09 T32: take_ok_p and take_err_p keep the shape, for every batch size and stride") {
  for (int64_t n : {0, 1, 2, 31, 32, 33}) {
    PushOptions options;
    options.where = at::arange(n).remainder(3).eq(1);
    const auto f = err::push(err::new_t(n), err::inf, 1, options);
    for (auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
      const auto base = at::randn({7, n}).to(dtype);
      for (const auto& z : {base.t(), base.t().contiguous(), base.t().slice(1, 0, 7, 2), base.t().select(1, 2)}) {
        const auto mask = z.dim() == 1 ? options.where : options.where.unsqueeze(1);
        CHECK(same_bits(err::take_ok_p(f, z), at::where(mask, at::zeros({}, z.options()), z)));
        CHECK(same_bits(err::take_err_p(f, z, -1), at::where(mask, z, at::full({}, -1, z.options()))));
      }
    }
  }
}

TEST_CASE("T11: replace takes NaN, infinities and plain numbers, element by element") {
  const auto z = at::tensor({1.0, NAN_VALUE, INF_VALUE, -INF_VALUE, 999.0, 2.0});
  auto list = [](const Tensor& t) {
    return std::vector<double>(t.data_ptr<double>(), t.data_ptr<double>() + t.numel());
  };
  CHECK((list(err::replace(z, 0.0, {true, true, true})) == std::vector<double>{1, 0, 0, 0, 999, 2}));
  CHECK(list(err::replace(z, -1.0, {true, false, true, {999.0}}))[4] == -1);
  CHECK(list(err::replace(z, -1.0, {true, false, true}))[2] == INF_VALUE);
  CHECK((list(err::replace(z, 5.0, {true, true, true, {1.0, 2.0}})) == std::vector<double>{5, 5, 5, 5, 999, 5}));
  check_refused(message_of([&] { err::replace(z, 0.0, {}); }), {"err.replace", "no targets"});
}

TEST_CASE("T11: replace compares integers exactly, and what a dtype cannot hold is no target") {
  constexpr int64_t large = (int64_t{1} << 53) + 1;  // no double
  const auto z = at::tensor({large, large - 1, int64_t{16777217}});
  CHECK(err::replace(z, 0, {large}).equal(at::tensor({int64_t{0}, large - 1, int64_t{16777217}})));
  CHECK(err::replace(z, 0, ReplaceTargets{.integers = {large - 1}})
            .equal(at::tensor({large, int64_t{0}, int64_t{16777217}})));
  CHECK(err::replace(z, 0, {16777216.5, 1e300, -INF_VALUE}).equal(z));
  CHECK(err::replace(z, 0, {16777217.0})[2].item<int64_t>() == 0);
  const auto half = at::tensor({INF_VALUE, 1.0, 3.0}).to(at::kHalf);
  CHECK(err::replace(half, 0, {1e6, 3}).equal(at::tensor({INF_VALUE, 1.0, 0.0}).to(at::kHalf)));
  const auto x = leaf(at::tensor({1.0, 5.0}));
  CHECK(gradient(err::replace(x, 0, {5}), x).equal(at::tensor({1.0, 0.0})));
}

TEST_CASE("T09 T11: numbers put in keep the dtype where they are of its kind, and have to fit it") {
  const auto truth = at::tensor({1, 0}).to(at::kBool), whole = at::tensor({1, 2}).to(at::kByte);
  const auto f = err::push(err::new_t(2), err::nan, 1, {.where = at::tensor({0, 1}).to(at::kBool)});
  CHECK(same_bits(err::replace(truth, 0, {true}), truth));
  CHECK(same_bits(err::replace(truth, 0, {"nan", 1.0}), at::zeros({2}, at::kBool)));
  CHECK(same_bits(err::take_ok_p(f, truth, 1), at::ones({2}, at::kBool)));
  CHECK((err::take_ok_p(f, truth, 2).scalar_type() == at::kLong));
  CHECK(same_bits(err::take_ok_p(f, whole), at::tensor({1, 0}).to(at::kByte)));
  check_refused(message_of([&] { err::take_ok_p(f, whole, 300); }),
                {"triage::take_ok_p", "`fill` is 300", "cannot hold"});
  check_refused(message_of([&] { err::take_err_p(f, whole, -1); }), {"triage::take_err_p", "`fill` is -1"});
  const auto half = at::ones({2}, at::kHalf);
  check_refused(message_of([&] { err::replace(half, 1e6, {1.0}); }), {"triage::replace", "`value` is 1e+06", "Half"});
  check_refused(message_of([&] { fix(half, f, 1, {.fallback = 1e6}); }), {"triage::fix", "`fallback` is 1e+06"});
  CHECK(err::take_ok_p(f, half, INF_VALUE)[1].item<double>() == INF_VALUE);
  CHECK_THROWS_AS(err::replace(half, 1e6, {1.0}), InputError);
}

TEST_CASE("T31: repaired rows get gradient exactly zero, even from NaN") {
  const auto f = rows_bad({0, 2});
  auto data = at::rand({4, 3}) + 0.5;
  data[0] = -1;
  data[2] = 0;
  const auto poison = at::full({4, 3}, NAN_VALUE);
  const auto bad = err::is_err(f).unsqueeze(1).expand({4, 3});
  auto check_zero = [&](const Tensor& g) {
    CHECK(g.masked_select(bad).eq(0).all().item<bool>());
    CHECK(g.masked_select(bad.logical_not()).isnan().all().item<bool>());  // the rest is passed as it is
  };
  const auto z = leaf(data);
  check_zero(gradient(fix(z, f, 1).first, z, poison));
  check_zero(gradient(err::take_ok_p(f, z), z, poison));
  FixOptions by_tensor;
  by_tensor.fallback = at::zeros({3});
  check_zero(gradient(fix(z, f, 1, by_tensor).first, z, poison));
  const auto through_log = gradient(fix(at::log(z), f, 1).first, z);
  CHECK(through_log.masked_select(bad.logical_not()).equal((1 / data).masked_select(bad.logical_not())));
}

TEST_CASE("T31: gradients of fix, take_*_p, replace and select agree with differences") {
  const auto f = rows_bad({1});
  const auto z = at::rand({4, 3}, at::kDouble) + 0.5;
  check_gradient([&](const Tensor& x) { return fix(x * x, f, 1).first; }, z);
  check_gradient([&](const Tensor& x) { return err::take_ok_p(f, x * x); }, z);
  check_gradient([&](const Tensor& x) { return err::take_err_p(f, x * x, 3); }, z);
  check_gradient([&](const Tensor& x) { return err::replace(x * x, 0, {true, true, true}); }, z);
  check_gradient([&](const Tensor& x) { return err::map_ok(f, x, [](const Tensor& v) { return at::exp(v); }); }, z);
  const auto shifted = z + 1;
  FixOptions options;
  for (const auto& fallback : {at::rand({3}, at::kDouble), at::rand({4, 3}, at::kDouble), at::rand({4, 1}, at::kDouble),
                               at::rand({}, at::kDouble)}) {
    check_gradient(
        [&](const Tensor& x) {
          FixOptions own;
          own.fallback = x * x;
          return fix(shifted, f, 1, own).first;
        },
        fallback);
  }
}

TEST_CASE("T11 T31: replaced elements get zero gradient") {
  const auto z = leaf(at::tensor({1.0, NAN_VALUE, 3.0, INF_VALUE}));
  const auto g = gradient(err::replace(z, 0.0, {true, true, true, {3.0}}), z);
  CHECK(g.equal(at::tensor({1.0, 0.0, 0.0, 0.0})));
}

TEST_CASE("T15 T31: select sends no gradient to the side not taken, whatever comes back") {
  auto op = c10::Dispatcher::singleton()
                .findSchemaOrThrow("triage::select", "")
                .typed<Tensor(const Tensor&, const Tensor&, const Tensor&)>();
  const auto cond = at::tensor({1, 0, 0, 1}).to(at::kBool);
  const auto a = leaf(at::randn({4, 2})), b = leaf(at::randn({4, 2}));
  const auto poison = at::full({4, 2}, NAN_VALUE);
  const auto y = op.call(cond, a, b);
  CHECK(gradient(y, a, poison).isnan().equal(cond.unsqueeze(1).expand({4, 2})));
  CHECK(gradient(y, b, poison)
            .nan_to_num(7)
            .equal(at::where(cond.unsqueeze(1), at::zeros({}), at::full({}, 7.0)).expand({4, 2})));
  const auto whole = op.call(at::scalar_tensor(false, at::kBool), a, b);
  CHECK(whole.equal(b));
  CHECK_FALSE(gradient(whole, a, poison).defined());  // no part of autograd's graph
  CHECK(gradient(whole, b, poison).isnan().all().item<bool>());
}

TEST_CASE("T31: guard_grad is the identity forward and stops non-finite gradients of untaken rows") {
  auto op = c10::Dispatcher::singleton()
                .findSchemaOrThrow("triage::guard_grad", "")
                .typed<Tensor(const Tensor&, const Tensor&)>();
  const auto taken = at::tensor({1, 0, 1, 0}).to(at::kBool);
  const auto z = leaf(at::randn({4, 2}));
  const auto y = op.call(z, taken);
  CHECK(y.equal(z));
  auto grad = at::ones({4, 2});
  grad[1][0] = NAN_VALUE;
  grad[3][1] = INF_VALUE;
  grad[0][0] = NAN_VALUE;
  const auto g = gradient(y, z, grad);
  CHECK(g[0].isnan().equal(at::tensor({1, 0}).to(at::kBool)));
  CHECK(g[1].equal(at::tensor({0.0f, 1.0f})));
  CHECK(g[3].equal(at::tensor({1.0f, 0.0f})));
}

TEST_CASE(
    "T31: guard_grad leaves alone what holds no row for each sample, and guards everything where the batch is "
    "selected") {
  auto op = c10::Dispatcher::singleton()
                .findSchemaOrThrow("triage::guard_grad", "")
                .typed<Tensor(const Tensor&, const Tensor&)>();
  const auto weight = leaf(at::randn({3, 2}));
  const auto poison = at::full({3, 2}, NAN_VALUE);
  CHECK(gradient(op.call(weight, at::zeros({4}, at::kBool)), weight, poison).isnan().all().item<bool>());
  CHECK(gradient(op.call(weight, at::scalar_tensor(false, at::kBool)), weight, poison).eq(0).all().item<bool>());
  CHECK(gradient(op.call(weight, at::scalar_tensor(true, at::kBool)), weight, poison).isnan().all().item<bool>());
}

TEST_CASE("T11 T31: map_ok of a function that is NaN on the bad rows leaves finite gradients upstream") {
  const auto weight = leaf(at::ones({3}));
  auto data = at::ones({4, 3});
  data[2] = -4;
  const auto f = rows_bad({2});
  const auto y = err::map_ok(f, data * weight, [](const Tensor& v) { return at::sqrt(v); });
  CHECK(gradient(y, weight).isfinite().all().item<bool>());
}

TEST_CASE("T02 T31: flags and masks never require grad, data does where its input did") {
  const auto z = leaf(at::randn({4, 3}));
  for (auto carrier : CARRIERS) {
    const auto config = make_config(16, carrier);
    const auto f = flag_nan_and_inf(z, 1, {}, {config});
    CHECK_FALSE(f.requires_grad());
    CHECK_FALSE(err::is_ok(f).requires_grad());
    FixOptions options;
    options.config = config;
    const auto [fixed, next] = fix(z, f, 1, options);
    CHECK(fixed.requires_grad());
    CHECK_FALSE(next.requires_grad());
  }
  at::NoGradGuard none;
  CHECK_FALSE(err::take_ok_p(err::new_(z), z).requires_grad());
}

TEST_CASE("T31: second derivatives pass through a repair") {
  const auto z = leaf(at::rand({4, 2}, at::kDouble) + 1);
  const auto f = rows_bad({1});
  const auto y = fix(z * z * z, f, 1).first.sum();
  const auto first = torch::autograd::grad({y}, {z}, {}, true, /*create_graph=*/true)[0];
  const auto second = torch::autograd::grad({first.sum()}, {z})[0];
  CHECK(at::allclose(second, at::where(err::is_err(f).unsqueeze(1), at::zeros({}, at::kDouble), 6 * z.detach())));
}

TEST_CASE("Meta tensors: every differentiable operation gives shapes without data") {
  const auto z = at::empty({5, 3}, at::TensorOptions(at::kMeta).dtype(at::kFloat));
  const auto f = err::new_(z);
  CHECK(f.is_meta());
  CHECK((f.sizes() == at::IntArrayRef({5, 4})));
  const auto flagged = flag_nan_and_inf(z, 1, f);
  CHECK((flagged.sizes() == f.sizes()));
  const auto [fixed, next] = fix(z, flagged, 1);
  CHECK((fixed.sizes() == z.sizes()));
  CHECK((next.scalar_type() == at::kLong));
  CHECK((err::count_errors(next).scalar_type() == at::kInt));
  CHECK(err::merge({f, next}).is_meta());
  CHECK((err::replace(z, 0, {true}).sizes() == z.sizes()));
  const auto x = at::empty_like(z).requires_grad_();
  for (const at::Tensor& y : {fix(x, flagged, 1).first, err::take_ok_p(flagged, x), err::replace(x, 0, {true})})
    CHECK((torch::autograd::grad({y.sum()}, {x})[0].sizes() == z.sizes()));
}

}  // namespace triage::test
