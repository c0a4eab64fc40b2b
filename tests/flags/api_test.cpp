// The C++ names as a host uses them.
#include "levels.h"

namespace triage::test {
namespace {

Tensor bad_at(int64_t n, int64_t i) {
  PushOptions options;
  options.where = at::arange(n).eq(i);
  return err::push(err::new_t(n), err::nan, "api", options);
}

}  // namespace

TEST_CASE("T04: new_, new_t and from_code") {
  CHECK(err::new_(at::zeros({3, 7, 2})).equal(at::zeros({3, 4}, at::kLong)));
  CHECK((err::new_(at::zeros({3})).sizes() == at::IntArrayRef({3, 4})));
  CHECK((err::new_(at::zeros({0, 5})).sizes() == at::IntArrayRef({0, 4})));
  const auto f = err::from_code(err::oob, 12, 2);
  CHECK(f.equal(at::tensor({12 << 6 | 5 << 2 | 2L, 0L, 0L, 0L}).expand({2, 4})));
  FromCodeOptions options;
  options.severity = err::warn;
  options.config = make_config(2, at::kFloat);
  CHECK(flags::unpack(err::from_code(err::oob, 12, 2, options), 1)[0].severity == err::warn);
  check_refused(message_of([] { err::new_t(-1); }), {"new_t", "-1"});
}

TEST_CASE("T05: default severities, overrides, and where with a tensor of codes") {
  CHECK(flags::unpack(err::push(err::new_t(1), err::zero_output, 1), 0)[0].severity == err::warn);
  CHECK(flags::unpack(err::push(err::new_t(1), at::tensor({9L}), 1), 0)[0].severity == err::error);
  PushOptions options;
  options.severity = err::critical;
  CHECK(flags::unpack(err::push(err::new_t(1), err::zero_output, 1, options), 0)[0].severity == err::critical);
  PushOptions some;
  some.where = at::tensor({1, 0}).to(at::kBool);
  CHECK(err::is_err(err::push(err::new_t(2), at::tensor({9L, 9L}), 1, some)).equal(some.where));
}

TEST_CASE("T06: merge of one, two and more") {
  const auto a = err::push(err::new_t(2), err::nan, 1), b = err::push(err::new_t(2), err::inf, 2),
             c = err::push(err::new_t(2), err::oob, 3);
  CHECK(err::merge({a}).equal(a));
  const auto all = flags::unpack(err::merge({a, b, c}), 0);
  REQUIRE(all.size() == 3);
  CHECK(all[0].code == err::nan);
  CHECK(all[2].code == err::oob);
  check_refused(message_of([] { err::merge({}); }), {"err.merge", "none"});
}

TEST_CASE("T08 T33: dynamic filters") {
  const auto f = bad_at(4, 2);
  const auto z = at::arange(8).reshape({4, 2});
  CHECK(err::take_ok(f, z).equal(at::tensor({0L, 1L, 2L, 3L, 6L, 7L}).reshape({3, 2})));
  CHECK(err::take_err(f, z).equal(at::tensor({4L, 5L}).reshape({1, 2})));
  CHECK(err::get_err(f).size(0) == 1);
  CHECK(err::get_ok(f).size(0) == 3);
  const auto [fine, bad] = err::partition_many(f, {z, z * 2});
  CHECK(fine[1].equal(err::take_ok(f, z * 2)));
  CHECK(bad[0].equal(err::take_err(f, z)));
  CHECK((err::take_ok(err::new_t(0), at::zeros({0, 2})).sizes() == at::IntArrayRef({0, 2})));
}

TEST_CASE("T11: combinators: and_then freezes, bind accumulates") {
  const auto f = bad_at(3, 1);
  const auto z = at::tensor({1.0, 2.0, 3.0});
  CHECK(err::map_ok(f, z, [](const Tensor& x) { return x * 10; }).equal(at::tensor({10.0, 2.0, 30.0})));
  CHECK(err::map_err(f, z, [](const Tensor& x) { return x * 10; }).equal(at::tensor({1.0, 20.0, 3.0})));
  CHECK_FALSE(has_err(err::map_err_flags(f, [](const Tensor& g) { return at::zeros_like(g); })));
  const err::Step step = [](const Tensor& x) { return std::pair(x * 10, err::push(err::new_(x), err::saturated, 9)); };
  const auto [z1, f1] = err::and_then(f, z, step);
  CHECK(z1.equal(at::tensor({10.0, 2.0, 30.0})));
  CHECK(err::count_errors(f1).equal(at::tensor({1, 1, 1}).to(at::kInt)));
  CHECK(err::has_nan(f1).equal(err::is_err(f)));
  const auto [z2, f2] = err::bind(f, z, step);
  CHECK(z2.equal(z1));
  CHECK(err::count_errors(f2).equal(at::tensor({1, 2, 1}).to(at::kInt)));
}

TEST_CASE("T12: guards and recovery") {
  const auto z = at::tensor({1.0, -2.0, 3.0});
  const auto f = err::guard(
      err::new_(z), z, [](const Tensor& x) { return x > 0; }, err::negative_idx, "positive");
  CHECK(err::is_err(f).equal(z < 0));
  CHECK(flags::unpack(f, 1)[0].severity == err::error);
  CHECK(err::ensure_mask(err::new_(z), z > 0, err::negative_idx, "positive").equal(f));
  const auto [fixed, next] = err::recover_with_fallback(f, z, at::tensor({9.0}), "positive");
  CHECK(fixed.equal(at::tensor({1.0, 9.0, 3.0})));
  CHECK(flags::unpack(next, 1)[1].severity == err::warn);
  const auto loud = err::recover_with_fallback(f, z, at::tensor({9.0}), "positive", {err::critical}).second;
  CHECK(flags::unpack(loud, 1)[1].severity == err::critical);
}

TEST_CASE("T14: helpers") {
  const auto f = bad_at(3, 1);
  CHECK(has_err(f));
  CHECK_FALSE(has_err(err::new_t(3)));
  CHECK_FALSE(has_err(err::new_t(0)));
  CHECK(find(err::nan, f).equal(err::is_err(f)));
  CHECK_FALSE(find(0, f).any().item<bool>());  // empty slots are not entries of code OK
  CHECK(push(f, err::inf, "api").equal(err::push(f, err::inf, "api")));
  const auto ids = at::tensor({0L, 5L, -1L});
  CHECK(err::is_err(flag_oob_indices(ids, 5, "table")).equal(at::tensor({0, 1, 1}).to(at::kBool)));
}

TEST_CASE("T07: scalar questions and fallbacks") {
  const auto f = bad_at(3, 1);
  CHECK(err::any_err(f).sizes().empty());
  CHECK(err::has_any(f).item<bool>());
  CHECK_FALSE(err::all_ok(f).item<bool>());
  CHECK(err::all_ok(err::new_t(0)).item<bool>());
  CHECK(err::has_critical(f).equal(err::has_nan(f)));
  CHECK_FALSE(err::has_fallback(f).any().item<bool>());
  CHECK((err::get_slot(f, 0).scalar_type() == at::kLong));
}

}  // namespace triage::test
