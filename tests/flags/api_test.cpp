// The C++ names as a host uses them.
#include "levels.h"

namespace triage::test {
namespace {

Tensor bad_at(int64_t n, int64_t i) {
  PushOptions options;
  options.where = at::arange(n).eq(i);
  return err::push(err::new_t(n), err::nan, Location("api"), options);
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
      err::new_(z), z, [](const Tensor& x) { return x > 0; }, err::negative_idx, Location("positive"));
  CHECK(err::is_err(f).equal(z < 0));
  CHECK(flags::unpack(f, 1)[0].severity == err::error);
  CHECK(err::ensure_mask(err::new_(z), z > 0, err::negative_idx, Location("positive")).equal(f));
  const auto [fixed, next] = err::recover_with_fallback(f, z, at::tensor({9.0}), Location("positive"));
  CHECK(fixed.equal(at::tensor({1.0, 9.0, 3.0})));
  CHECK(flags::unpack(next, 1)[1].severity == err::warn);
  const auto loud = err::recover_with_fallback(f, z, at::tensor({9.0}), Location("positive"), {err::critical}).second;
  CHECK(flags::unpack(loud, 1)[1].severity == err::critical);
  const auto [by_number, also] = err::recover_with_fallback(f, z, 9.0, Location("positive"));
  CHECK(by_number.equal(fixed));
  CHECK(also.equal(next));
}

TEST_CASE("T11: what a function makes of data broadcasts to it, and nothing else") {
  const auto f = bad_at(3, 1);
  const auto z = at::arange(6, at::kFloat).reshape({3, 2});
  const auto sums = [](const Tensor& x) { return x.sum(-1, true); };
  CHECK(err::map_ok(f, z, sums).equal(at::tensor({1.F, 1.F, 2.F, 3.F, 9.F, 9.F}).reshape({3, 2})));
  CHECK(err::map_err(f, z, sums).equal(at::tensor({0.F, 1.F, 5.F, 5.F, 4.F, 5.F}).reshape({3, 2})));
  const err::Step step = [&](const Tensor& x) { return std::pair(sums(x), err::new_(x)); };
  CHECK(err::bind(f, z, step).first.equal(err::map_ok(f, z, sums)));
  CHECK(err::and_then(f, z, step).first.equal(err::map_ok(f, z, sums)));
  const auto too_big = [](const Tensor& x) { return x.unsqueeze(0).expand({4, 3, 2}); };
  check_refused(message_of([&] { err::map_ok(f, z, too_big); }), {"err.map_ok", "broadcasts", "[4, 3, 2]"});
  check_refused(message_of([&] { err::map_ok(f, z, [](const Tensor& x) { return x.to(at::kDouble); }); }),
                {"err.map_ok", "Double"});
}

TEST_CASE("T13: replace by a list of codes, names and values") {
  const double inf = INFINITY;
  const auto z = at::tensor({double{NAN}, inf, -inf, 999.0, 1.0, 2.0});
  CHECK(err::replace(z, 0, {err::nan, err::inf, 999}).equal(at::tensor({0.0, 0.0, 0.0, 0.0, 1.0, 2.0})));
  CHECK(err::replace(z, 0, {"nan", "inf"}).equal(err::replace(z, 0, {.nan = true, .posinf = true, .neginf = true})));
  CHECK(err::replace(z, 0, {double{NAN}, "posinf"})[2].item<double>() == -inf);
  CHECK(err::replace(z, 0, {"nan", "posinf", "neginf", 1.0, 2.0}).equal(at::tensor({0.0, 0.0, 0.0, 999.0, 0.0, 0.0})));
  check_refused(message_of([&] { err::replace(z, 0, {"many"}); }), {"err.replace", "many", "posinf"});
}

TEST_CASE("T11 T12 T13 T14: functions and tensors that are none are input errors") {
  const auto f = bad_at(3, 1);
  const auto z = at::tensor({1.0, 2.0, 3.0});
  const Tensor none;
  const auto nothing = [](const Tensor&) { return Tensor(); };
  FixOptions empty;
  empty.fallback = std::function<Tensor()>();
  const std::vector<std::pair<const char*, std::function<void()>>> wrong = {
      {"map_ok null", [&] { err::map_ok(f, z, nullptr); }},
      {"map_err null", [&] { err::map_err(f, z, nullptr); }},
      {"map_err_flags null", [&] { err::map_err_flags(f, nullptr); }},
      {"and_then null", [&] { err::and_then(f, z, nullptr); }},
      {"bind null", [&] { err::bind(f, z, nullptr); }},
      {"guard null", [&] { err::guard(f, z, nullptr, err::nan, 1); }},
      {"fix null", [&] { fix(z, f, 1, empty); }},
      {"map_ok nothing", [&] { err::map_ok(f, z, nothing); }},
      {"map_err_flags nothing", [&] { err::map_err_flags(f, nothing); }},
      {"bind nothing", [&] { err::bind(f, z, [](const Tensor& x) { return std::pair(x, Tensor()); }); }},
      {"guard nothing", [&] { err::guard(f, z, nothing, err::nan, 1); }},
      {"replace", [&] { err::replace(none, 1, {.nan = true}); }},
      {"flag_nan", [&] { flag_nan(none, 1); }},
      {"flag_oob_indices", [&] { flag_oob_indices(none, 3, 1); }},
      {"new_", [&] { err::new_(none); }},
      {"is_ok", [&] { err::is_ok(none); }},
      {"push", [&] { err::push(none, err::nan, 1); }},
      {"push codes", [&] { err::push(f, none, 1); }},
      {"merge",
       [&] {
         err::merge({f, none});
       }},
      {"merge one", [&] { err::merge(none); }},
      {"clear", [&] { err::clear(none, err::nan); }},
      {"take_ok", [&] { err::take_ok(none, z); }},
      {"take_ok of none", [&] { err::take_ok(f, none); }},
      {"take_ok_p", [&] { err::take_ok_p(f, none); }},
      {"map_ok of none", [&] { err::map_ok(f, none, [](const Tensor& x) { return x; }); }},
      {"ensure_mask", [&] { err::ensure_mask(f, none, err::nan, 1); }},
      {"recover_with_fallback", [&] { err::recover_with_fallback(f, z, none, 1); }},
      {"fix", [&] { fix(none, f, 1); }},
      {"fix of none", [&] { fix(z, none, 1); }},
      {"has_err", [&] { has_err(none); }},
      {"repr", [&] { flags::repr(none); }},
  };
  for (const auto& [function, call] : wrong) {
    const std::string name = function;
    CAPTURE(name);
    CHECK_THROWS_AS(call(), InputError);
  }
}

TEST_CASE("T06: the merge of one is not its argument") {
  const auto f = bad_at(3, 1);
  const auto merged = err::merge(f);
  CHECK(merged.equal(f));
  CHECK_FALSE(merged.is_alias_of(f));
  check_refused(message_of([&] { err::merge(f.slice(1, 0, 3)); }), {"16 slots"});
}

TEST_CASE("T08: Ok and Err are take_ok and take_err") {
  const auto f = bad_at(3, 1);
  const auto z = at::tensor({1.0, 2.0, 3.0});
  CHECK(err::Ok(f, z).equal(err::take_ok(f, z)));
  CHECK(err::Err(f, z).equal(err::take_err(f, z)));
}

TEST_CASE("T07 T08 T09 T11 T14: data in the place of flags is refused by every question") {
  const auto f = bad_at(3, 1);
  for (const auto& data : {at::zeros({3, 7001}), at::zeros({3, 7001}, at::kDouble), at::zeros({3, 7001}, at::kLong)}) {
    const std::vector<std::pair<const char*, std::function<void()>>> questions = {
        {"is_ok", [&] { err::is_ok(data); }},
        {"is_err", [&] { err::is_err(data); }},
        {"has_nan", [&] { err::has_nan(data); }},
        {"has_critical", [&] { err::has_critical(data); }},
        {"has_domain", [&] { err::has_domain(data, Domain::numeric); }},
        {"all_ok", [&] { err::all_ok(data); }},
        {"any_err", [&] { err::any_err(data); }},
        {"count_errors", [&] { err::count_errors(data); }},
        {"max_severity", [&] { err::max_severity(data); }},
        {"get_first_code", [&] { err::get_first_code(data); }},
        {"get_slot", [&] { err::get_slot(data, 0); }},
        {"get_ok", [&] { err::get_ok(data); }},
        {"clear", [&] { err::clear(data, err::nan); }},
        {"take_ok", [&] { err::take_ok(data, f); }},
        {"take_err", [&] { err::take_err(data, f); }},
        {"partition", [&] { err::partition(data, f); }},
        {"take_ok_p", [&] { err::take_ok_p(data, f); }},
        {"take_err_p", [&] { err::take_err_p(data, f); }},
        {"map_ok", [&] { err::map_ok(data, f, [](const Tensor& x) { return x; }); }},
        {"map_err_flags", [&] { err::map_err_flags(data, [](const Tensor& x) { return x; }); }},
        {"and_then", [&] { err::and_then(data, f, [](const Tensor& x) { return std::pair(x, x); }); }},
        {"has_err", [&] { has_err(data); }},
        {"find", [&] { find(data, err::nan); }},
        {"repr", [&] { flags::repr(data); }},
        {"unpack", [&] { flags::unpack(data, 0); }},
        {"summary", [&] { flags::summary(data); }},
    };
    for (const auto& [function, ask] : questions) {
      const std::string name = function;
      CAPTURE(name);
      check_refused(message_of(ask), {"not a flags tensor", "[3, 7001]", "(N, 4)"});
    }
  }
  check_refused(message_of([&] { err::take_ok_p(at::zeros({3, 7001}), f); }), {"are the two swapped?"});
}

TEST_CASE("T07 T27: flags of another configuration are flags") {
  ErrorConfig other = make_config(2 * 6001, at::kFloat);  // no other test has this width
  const auto made = at::zeros({3, 6001});
  CHECK(message_of([&] { err::is_ok(made); }).find("not a flags tensor") != std::string::npos);
  CHECK(flags::repr(made, {other}) == "ErrorFlags(3 samples, no errors)");
  CHECK(err::is_ok(made).all().item<bool>());
  for (at::ScalarType carrier : CARRIERS) {
    const auto config = make_config(4 * 1501, carrier);
    const auto f = err::new_t(2, {.config = config});
    CHECK_FALSE(has_err(f));
    CHECK(err::take_ok_p(f, at::ones({2, 3})).equal(at::ones({2, 3})));
  }
}

TEST_CASE("T14: helpers") {
  const auto f = bad_at(3, 1);
  CHECK(has_err(f));
  CHECK_FALSE(has_err(err::new_t(3)));
  CHECK_FALSE(has_err(err::new_t(0)));
  CHECK(find(f, err::nan).equal(err::is_err(f)));
  CHECK_FALSE(find(f, err::ok).any().item<bool>());  // empty slots are not entries of code OK
  CHECK(push(f, err::inf, Location("api")).equal(err::push(f, err::inf, Location("api"))));
  const auto ids = at::tensor({0L, 5L, -1L});
  CHECK(err::is_err(flag_oob_indices(ids, 5, Location("table"))).equal(at::tensor({0, 1, 1}).to(at::kBool)));
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
