#include "levels.h"

namespace triage::test {

TEST_CASE("T13: unpack, unpack_all and to_table name what happened") {
  ErrorLocation::reset();
  auto f = err::new_t(3);
  PushOptions second;
  second.where = at::tensor({0, 1, 0}).to(at::kBool);
  f = err::push(f, err::nan, Location("encoder.2"), second);
  f = err::push(f, err::value_clamped, 700, second);
  const auto errors = flags::unpack(f, 1);
  REQUIRE(errors.size() == 2);
  CHECK((errors[0] == flags::UnpackedError{err::critical, err::nan, 1, "CRITICAL", "NAN", "encoder.2"}));
  CHECK(errors[1] == flags::UnpackedError{err::warn, err::value_clamped, 700, "WARN", "VALUE_CLAMPED", "Location_700"});
  CHECK((flags::unpack(f, -2) == errors));
  CHECK(flags::unpack(f, 0).empty());
  const auto all = flags::unpack_all(f);
  REQUIRE(all.size() == 3);
  CHECK((all[1] == errors));
  CHECK(all[2].empty());
  const auto table = flags::to_table(f);
  REQUIRE(table.size() == 2);
  CHECK(table[1].sample == 1);
  CHECK(table[1].slot == 1);
  check_refused(message_of([&] { flags::unpack(f, 3); }), {"no sample 3", "batch of 3"});
  check_refused(message_of([&] { flags::unpack(f, -4); }), {"no sample -4"});
}

TEST_CASE("T13: summary counts by location and code") {
  ErrorLocation::reset();
  auto f = err::new_t(4);
  f = err::push(f, at::tensor({1, 1, 2, 0}), Location("encoder"));
  f = err::push(f, at::tensor({0, 2, 2, 0}), Location("output"));
  const flags::Summary expected{{"encoder", {{"NAN", 2}, {"INF", 1}}}, {"output", {{"INF", 2}}}};
  CHECK((flags::summary(f) == expected));
  CHECK(flags::summary(err::new_t(4)).empty());
  CHECK(flags::summary(err::new_t(0)).empty());
}

TEST_CASE("T13: repr in its two forms") {
  ErrorLocation::reset();
  CHECK(flags::repr(err::new_t(32)) == "ErrorFlags(32 samples, no errors)");
  CHECK(flags::repr(err::new_t(0)) == "ErrorFlags(0 samples, no errors)");
  auto codes = at::zeros({32}, at::kLong);
  for (int64_t i : {3, 8, 30}) codes[i] = 1;
  auto f = err::push(err::new_t(32), codes, Location("output"));
  codes.zero_();
  for (int64_t i : {0, 8}) codes[i] = 2;
  f = err::push(f, codes, Location("encoder"));
  CHECK(flags::repr(f) == "ErrorFlags(32 samples, 5 errors: 3xNAN, 2xINF @ encoder, output)");
  for (const char* path : {"b", "a", "z"}) f = err::push(f, codes * 2, Location(path));
  CHECK(flags::repr(f) == "ErrorFlags(32 samples, 11 errors: 6xCODE_4, 3xNAN, 2xINF @ a, b, encoder +2 more)");
}

TEST_CASE("T13: pretty_print") {
  ErrorLocation::reset();
  CHECK(flags::pretty_print(err::new_t(1), 0) == "[OK] No errors");
  auto f = err::push(err::push(err::new_t(1), err::inf, Location("head")), err::oob, 0);
  CHECK(flags::pretty_print(f, 0) ==
        "Found 2 error(s):\n  [0] CRITICAL | NUMERIC.INF | @ head\n  [1] ERROR | INDEX.OUT_OF_BOUNDS | @ Unknown");
}

TEST_CASE("T13 T26: every carrier and any layout unpacks to the same") {
  for (auto carrier : CARRIERS) {
    const auto config = make_config(5, carrier);
    const auto f = flags_of({{0x47, 0, 0xFFFF, 0, 0x4E}, {}}, config);
    const auto errors = flags::unpack_all(f.t().contiguous().t());
    REQUIRE(errors.size() == 2);
    REQUIRE(errors[0].size() == 3);
    CHECK(errors[0][1].location == 1023);
    CHECK(errors[0][1].code_name == "UNKNOWN");
    CHECK((flags::unpack(f, 0) == errors[0]));
    CHECK(errors[1].empty());
  }
}

}  // namespace triage::test
