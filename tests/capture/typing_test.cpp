// Declared tensors and Results as C++ hosts use them.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/config.h>
#include <triage/flags.h>
#include <triage/result.h>
#include <triage/scoped_config.h>
#include <triage/type_cast.h>
#include <triage/typing.h>

#include <memory>
#include <stdexcept>
#include <string>

using namespace triage;

namespace {

template <typename E, typename Call>
E caught(const Call& call) {
  try {
    call();
  } catch (const E& error) {
    return error;
  }
  throw std::runtime_error("nothing was thrown");
}

}  // namespace

TEST_CASE("T21: declarations are values, and read as in Lua") {
  const TensorSpec spec{.dtype = at::kHalf, .dims = {"...", "N", 3, Dim::attribute("hidden"), Dim::broadcast()}};
  CHECK(spec.text() == "Tensor(float16_t, {\"...\", \"N\", 3, Dim.hidden, Broadcast})");
  CHECK(spec == TensorSpec{.dtype = at::kHalf, .dims = {"...", "N", 3, Dim::attribute("hidden"), Dim::broadcast()}});
  CHECK_FALSE(spec == TensorSpec{.dtype = at::kHalf, .dims = {"..."}});
  CHECK_THROWS_AS((TensorSpec{.dims = {"...", "..."}}.validate()), InputError);
  CHECK_THROWS_AS((TensorSpec{.dims = {-1}}.validate()), InputError);
  CHECK_THROWS_AS((TensorSpec{.dims = {""}}.validate()), InputError);
}

TEST_CASE("T20: names bind over the tensors of one call, at every batch size") {
  for (int64_t rows : {0, 1, 2, 31, 32, 33}) {
    TensorMatcher call("encode", [](const std::string&) { return std::variant<int64_t, std::string>(int64_t{4}); });
    const at::Tensor strided = at::randn({4, rows, 2}).permute({1, 2, 0});
    CHECK_NOTHROW(call.check(strided, {.dims = {"N", "...", Dim::attribute("hidden")}}, "x"));
    CHECK_NOTHROW(call.check(at::ones({rows}, at::kBool), {.dtype = at::kBool, .dims = {"N"}}, "mask"));
    CHECK_NOTHROW(call.check(at::ones({1, 4}), {.dims = {Dim::broadcast(), 4}}, "bias"));
    CHECK_THROWS_AS(call.check(at::ones({rows + 1}), {.dims = {"N"}}, "w"), DimensionMismatchError);
  }
}

TEST_CASE("T23: each kind of error is a class, and carries its fields") {
  const auto check = [](const at::Tensor& x, const TensorSpec& spec) {
    return [=] { TensorMatcher("encode").check(x, spec, "x"); };
  };
  const at::Tensor x = at::zeros({2, 3});
  const auto wrong_size = caught<DimensionMismatchError>(check(x, {.dims = {"N", 4}}));
  CHECK(wrong_size.failure().kind == ValidationKind::dimension);
  CHECK(wrong_size.failure().function == "encode");
  CHECK(wrong_size.failure().parameter == "x");
  CHECK(std::get<int64_t>(wrong_size.failure().expected) == 4);
  CHECK(std::get<int64_t>(wrong_size.failure().actual) == 3);
  CHECK(
      std::string(wrong_size.what()) ==
      "DimensionMismatchError: encode: argument 'x': dimension 1: expected 4, got 3; it is float32 (2, 3) and declared "
      "Tensor(float32_t, {\"N\", 4})");
  CHECK(caught<DimensionMismatchError>(check(x, {.dims = {"N", "N"}})).failure().dim_name == "N");
  const auto wrong_dtype = caught<DTypeMismatchError>(check(x, {.dtype = at::kDouble}));
  CHECK(std::get<std::string>(wrong_dtype.failure().expected) == "float64");
  CHECK_THROWS_AS(check(x, {.device = c10::Device("cuda:0")})(), DeviceMismatchError);
  CHECK_NOTHROW(check(x, {.device = c10::Device("cpu")})());
  CHECK_THROWS_AS(check(x, {.requires_grad = true})(), InvalidParameterError);
  CHECK_THROWS_AS(check(at::Tensor(), {})(), InvalidParameterError);
  CHECK_THROWS_AS(check(x, {.dims = {"N", Dim::attribute("hidden")}})(), InvalidParameterError);
  for (const TensorSpec& spec :
       {TensorSpec{.dims = {1}}, TensorSpec{.dtype = at::kInt}, TensorSpec{.requires_grad = true}})
    CHECK_THROWS_AS(check(x, spec)(), ValidationError);  // the base of them all
  CHECK_THROWS_AS(check(x, {.dims = {1}})(), InputError);
  for (const auto kind : {ValidationKind::type, ValidationKind::invalid_return}) {
    ValidationFailure failure;
    failure.kind = kind;
    if (kind == ValidationKind::type) CHECK_THROWS_AS(throw_validation(failure), TypeMismatchError);
    if (kind == ValidationKind::invalid_return) CHECK_THROWS_AS(throw_validation(failure), InvalidReturnTypeError);
  }
}

TEST_CASE("T20: flags fit the configuration in each carrier, and a malformed one is a ValidationError itself") {
  const TensorSpec flags{.flags = true, .dims = {"N", "words"}};
  const at::Tensor z = at::zeros({3, 2});
  for (const at::ScalarType carrier : {at::kLong, at::kInt, at::kDouble, at::kFloat}) {
    ErrorConfig config;
    config.flag_dtype = carrier;
    const ScopedConfig scope(config);
    TensorMatcher call("encode");
    call.check(z, {.dims = {"N", 2}}, "z");
    CHECK_NOTHROW(call.check(err::new_(z), flags, "f"));
    const auto malformed = caught<ValidationError>([&] { call.check(err::new_t(4), flags, "f"); });
    CHECK(malformed.failure().kind == ValidationKind::validation);
  }
  TensorMatcher narrow("encode", {}, 8);
  ErrorConfig eight;
  eight.num_slots = 8;
  CHECK_NOTHROW(narrow.check(err::new_(z, {eight}), flags, "f"));
  CHECK_THROWS_AS(narrow.check(err::new_(z), flags, "f"), ValidationError);
}

TEST_CASE("T25: a configuration for the rest of a block") {
  const ErrorConfig before = get_config();
  {
    ErrorConfig config;
    config.num_slots = 4;
    const ScopedConfig scope(config);
    CHECK(err::new_t(2).size(1) == 1);
    config.num_slots = 0;
    CHECK_THROWS_AS(ScopedConfig{config}, ConfigError);
    CHECK(get_config().num_slots == 4);
  }
  CHECK(get_config() == before);
}

TEST_CASE("T22: type_cast in C++") {
  CHECK(type_cast(at::kFloat, at::ones({3}, at::kLong)).unwrap().equal(at::ones({3})));
  const at::Tensor half = at::ones({0, 2}, at::kHalf);
  CHECK(type_cast(at::kHalf, half).unwrap().is_same(half));
  CHECK((type_cast(at::kFloat, at::Tensor()).unwrap_err().kind == ValidationKind::invalid_parameter));
  const auto lost = type_cast(at::kFloat, at::ones({2}, at::kComplexFloat));
  REQUIRE(lost.is_err());
  CHECK(lost.unwrap_err().message ==
        "DTypeMismatchError: type_cast: argument 'x': expected a real tensor to make float32 of, got complex64; a cast "
        "would drop the imaginary parts: take torch.real(x)");
}

TEST_CASE("T24: Result in C++") {
  const auto half = [](int n) -> Result<int, std::string> {
    if (n % 2) return Err("odd: " + std::to_string(n));
    return Ok(n / 2);
  };
  CHECK(half(8).is_ok());
  CHECK(half(3).is_err());
  CHECK(half(8).unwrap() == 4);
  CHECK(half(3).unwrap_err() == "odd: 3");
  CHECK(half(8).unwrap_or(7) == 4);
  CHECK(half(3).unwrap_or(7) == 7);
  CHECK(half(8).map([](int n) { return n + 0.5; }).unwrap() == 4.5);
  CHECK(half(3).map([](int n) { return n + 0.5; }).unwrap_err() == "odd: 3");
  CHECK(half(3).map_err([](const std::string& e) { return e.size(); }).unwrap_err() == 6);
  CHECK(half(8).and_then(half).and_then(half).unwrap() == 1);
  CHECK(half(6).and_then(half).unwrap_err() == "odd: 3");
  CHECK_THROWS_WITH_AS((void)half(3).unwrap(), "Result::unwrap: the result is an error: odd: 3", InputError);
  CHECK_THROWS_AS((void)half(8).unwrap_err(), InputError);
}

TEST_CASE("T24: as_result keeps what was thrown, and as_exception throws it again") {
  const auto fails = [](int n) {
    if (n < 0) throw std::out_of_range("negative");
    return n;
  };
  CHECK(as_result([&] { return fails(3); }).unwrap() == 3);
  const Result<int> failed = as_result([&] { return fails(-1); });
  REQUIRE(failed.is_err());
  CHECK(failed.unwrap_err().message() == "negative");
  CHECK(failed.unwrap_err().is<std::out_of_range>());
  CHECK_FALSE(failed.unwrap_err().is<Error>());
  CHECK_THROWS_AS((void)failed.unwrap(), std::out_of_range);
  const auto again = as_exception([&](int n) { return as_result([&] { return fails(n); }); });
  CHECK(again(3) == 3);
  CHECK_THROWS_AS((void)again(-1), std::out_of_range);
  CHECK(as_result([] {}).is_ok());
  CHECK(as_result([] { throw InputError("no"); }).unwrap_err().is<InputError>());
  auto owner = as_result([] { return std::make_unique<int>(5); });  // values that only move
  CHECK(*std::move(owner).unwrap() == 5);
}
