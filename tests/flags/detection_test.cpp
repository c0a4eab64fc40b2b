#include "levels.h"

#include <ATen/Parallel.h>

#include <limits>

namespace triage::test {
namespace {

const std::vector<at::ScalarType> FLOATS = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

// What a detection must give, by the definition: a push for each mask that ATen finds.
Tensor expected_flags(const Tensor& z, bool nan, bool inf, Location location, const ErrorConfig& config,
                      Tensor f = {}) {
  if (!f.defined()) f = err::new_(z, {config});
  auto rows = [&](const Tensor& mask) {
    return mask.reshape({z.size(0), z.numel() / std::max<int64_t>(z.size(0), 1)}).any(1);
  };
  PushOptions options;
  options.config = config;
  if (nan) {
    options.where = rows(at::isnan(z));
    f = err::push(f, err::nan, location, options);
  }
  if (inf) {
    options.where = rows(at::isinf(z));
    f = err::push(f, err::inf, location, options);
  }
  return f;
}

void check_detections(const Tensor& z, const ErrorConfig& config, const Tensor& f = {}) {
  struct Case {
    const char* name;
    bool nan, inf;
  };
  for (const Case& c :
       {Case{"flag_nan", true, false}, Case{"flag_inf", false, true}, Case{"flag_nan_and_inf", true, true}}) {
    CAPTURE(c.name);
    const auto expected = expected_flags(z, c.nan, c.inf, 7, config, f);
    for (Level level : LEVELS) {
      const auto got = run(level, c.name,
                           {z, f.defined() ? IValue(f) : IValue(), 7, config.num_slots, config.accumulation.packed(),
                            config.flag_dtype});
      CHECK(same_bits(got, expected));
    }
  }
}

// Noise with a NaN, an Inf, a -Inf or several of them in some rows.
Tensor poisoned(std::vector<int64_t> sizes, at::ScalarType dtype, double rate) {
  auto z = at::randn(sizes, at::kDouble);
  const auto dice = at::rand(sizes, at::kDouble);
  z = at::where(dice < rate, at::full({}, NAN_VALUE, at::kDouble), z);
  z = at::where((dice >= rate) & (dice < 2 * rate), at::full({}, INF_VALUE, at::kDouble), z);
  z = at::where((dice >= 2 * rate) & (dice < 3 * rate), at::full({}, -INF_VALUE, at::kDouble), z);
  return z.to(dtype);
}

}  // namespace

TEST_CASE("T14 T34: detection agrees with isnan and isinf for every dtype and batch size") {
  for (auto dtype : FLOATS) {
    for (int64_t n : {0, 1, 2, 31, 32, 33, 700}) {
      for (int64_t width : {1, 3, 16, 129, 5000}) {
        CAPTURE(n);
        CAPTURE(width);
        check_detections(poisoned({n, width}, dtype, 0.5 / static_cast<double>(width)), ErrorConfig{});
      }
    }
    check_detections(poisoned({5000}, dtype, 0.1), ErrorConfig{});
    check_detections(poisoned({40, 3, 4, 5}, dtype, 0.01), make_config(6, at::kInt));
    check_detections(at::empty({4, 0}, dtype), ErrorConfig{});
    check_detections(at::empty({0, 4}, dtype), ErrorConfig{});
  }
}

TEST_CASE("T34: the extremes of each format are told apart by their bits") {
  for (auto dtype : FLOATS) {
    const bool wide = dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16;
    auto z = at::zeros({6, 33}, at::kDouble);
    z.index_put_({at::tensor({0L}), at::tensor({32L})}, at::full({1}, wide ? 3e38 : 65504.0, at::kDouble));
    z.index_put_({at::tensor({1L}), at::tensor({0L})}, at::full({1}, -NAN_VALUE, at::kDouble));
    z.index_put_({at::tensor({2L}), at::tensor({31L})}, at::full({1}, -INF_VALUE, at::kDouble));
    z.index_put_({at::tensor({3L}), at::tensor({1L})}, at::full({1}, 1e-45, at::kDouble));
    auto data = z.to(dtype);
    const auto f = flag_nan_and_inf(data, 0);
    CHECK(err::has_nan(f).equal(at::tensor({0, 1, 0, 0, 0, 0}).to(at::kBool)));
    CHECK(err::has_inf(f).equal(at::tensor({0, 0, 1, 0, 0, 0}).to(at::kBool)));
  }
  // NaNs of every payload: only the lowest or only the highest bit of the fraction, either sign.
  const auto payloads = at::tensor({0x7F800001L, 0x7FC00000L, 0xFF800001L, 0x7FFFFFFFL}).to(at::kInt).view(at::kFloat);
  CHECK(err::has_nan(flag_nan(payloads, 0)).all().item<bool>());
  CHECK_FALSE(has_err(flag_inf(payloads, 0)));
  const auto doubles = at::tensor({0x7FF0000000000001L, 0x7FF8000000000000L}).view(at::kDouble);
  CHECK(err::has_nan(flag_nan(doubles, 0)).all().item<bool>());
}

TEST_CASE("T14: detection sees every element whatever the strides") {
  for (auto dtype : FLOATS) {
    const auto base = poisoned({24, 20, 18}, dtype, 0.0005);
    const std::vector<Tensor> views = {base.transpose(0, 2),
                                       base.transpose(0, 1),
                                       base.transpose(1, 2),
                                       base.slice(0, 1, 24, 3),
                                       base.slice(2, 1, 18, 2),
                                       base.slice(1, 3, 17).slice(2, 2, 9),
                                       base.select(2, 5),
                                       base.select(2, 5).t(),
                                       base.select(0, 3).select(1, 7),
                                       base.select(1, 0).unsqueeze(1).expand({24, 5, 18}),
                                       base.slice(0, 2, 3).expand({9, 20, 18}),
                                       base.permute({2, 0, 1}).slice(0, 0, 18, 5),
                                       base.as_strided({40, 3}, {1, 2}),
                                       base.as_strided({5, 7}, {0, 3})};
    for (const auto& z : views) {
      CAPTURE(z.sizes());
      CAPTURE(z.strides());
      check_detections(z, ErrorConfig{});
    }
  }
  const auto channels_last = poisoned({6, 8, 5, 5}, at::kFloat, 0.001).contiguous(at::MemoryFormat::ChannelsLast);
  check_detections(channels_last, ErrorConfig{});
}

TEST_CASE("T34: a complex number is NaN or Inf when one of its parts is") {
  for (auto dtype : {at::kComplexFloat, at::kComplexDouble}) {
    const auto part = dtype == at::kComplexFloat ? at::kFloat : at::kDouble;
    const auto z = at::complex(poisoned({33, 17}, part, 0.004), poisoned({33, 17}, part, 0.004));
    check_detections(z, ErrorConfig{});
    check_detections(z.t(), ErrorConfig{});
    check_detections(z.select(1, 4), ErrorConfig{});
    check_detections(z.conj(), ErrorConfig{});
  }
}

TEST_CASE("T14: detection adds to the flags it is given, under every policy and carrier") {
  for (const auto& policy : policies()) {
    for (auto carrier : CARRIERS) {
      const auto config = make_config(3, carrier, policy);
      PushOptions old;
      old.config = config;
      auto f = err::push(err::new_t(33, {c10::kCPU, config}), err::saturated, 900, old);
      f = err::push(f, at::arange(33).remainder(16), 3, old);
      check_detections(poisoned({33, 40}, at::kFloat, 0.02), config, f);
    }
  }
}

TEST_CASE("T14: a sample with both gets NAN first, then INF") {
  const auto z = at::tensor({INF_VALUE, NAN_VALUE}).reshape({1, 2});
  const auto errors = flags::unpack(flag_nan_and_inf(z, 5), 0);
  REQUIRE(errors.size() == 2);
  CHECK(errors[0].code == err::nan);
  CHECK(errors[1].code == err::inf);
  CHECK(errors[0].severity == err::critical);
  CHECK(errors[1].location == 5);
}

TEST_CASE("T14: integers hold neither NaN nor Inf, and keep the flags they come with") {
  for (auto dtype : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    const auto z = at::ones({3, 4}, dtype);
    for (Level level : LEVELS) {
      CHECK(run(level, "flag_nan_and_inf", {z, IValue(), 1, 16, 24, at::kLong}).equal(at::zeros({3, 4}, at::kLong)));
      const auto f = err::push(err::new_(z), err::oob, 2);
      const auto kept = run(level, "flag_nan", {z, f, 1, 16, 24, at::kLong});
      CHECK(same_bits(kept, f));
      CHECK_FALSE(kept.is_alias_of(f));
    }
  }
}

TEST_CASE("T14: flag_oob_indices for every integer dtype, at the edges") {
  for (auto dtype : {at::kLong, at::kInt, at::kShort, at::kChar, at::kByte}) {
    for (int64_t size : {0L, 1L, 100L, 127L, 128L, 255L, 256L, 40000L}) {
      const auto wide =
          at::randint(dtype == at::kByte ? 0 : -3, dtype == at::kChar || dtype == at::kByte ? 120 : 30000, {65, 9});
      auto ids =
          at::where(at::rand({65, 9}) < 0.9, wide.remainder(std::max<int64_t>(std::min<int64_t>(size, 100), 1)), wide)
              .to(dtype);
      const auto bad = ((ids.to(at::kLong) < 0) | (ids.to(at::kLong) >= size));
      for (const auto& view :
           {std::pair{ids, bad}, {ids.t(), bad.t()}, {ids.slice(1, 0, 9, 2), bad.slice(1, 0, 9, 2)}}) {
        PushOptions where;
        where.where = view.second.any(1);
        const auto expected = err::push(err::new_(view.first), err::oob, 4, where);
        for (Level level : LEVELS) {
          CHECK(
              same_bits(run(level, "flag_oob_indices", {view.first, size, IValue(), 4, 16, 24, at::kLong}), expected));
        }
      }
    }
  }
  const auto far = at::tensor({std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), int64_t{0}});
  CHECK(err::is_err(flag_oob_indices(far, 10, 0)).equal(at::tensor({1, 1, 0}).to(at::kBool)));
}

TEST_CASE("T32: many rows are shared among OpenMP's workers without a change of a bit") {
  const int before = at::get_num_threads();
  const auto z = poisoned({20000, 64}, at::kFloat, 0.0002);
  at::set_num_threads(1);
  const auto one = flag_nan_and_inf(z, 3);
  const auto one_turned = flag_nan_and_inf(z.t(), 3);
  at::set_num_threads(4);
  CHECK(same_bits(flag_nan_and_inf(z, 3), one));
  CHECK(same_bits(flag_nan_and_inf(z.t(), 3), one_turned));
  at::set_num_threads(before);
  CHECK(err::is_err(one).equal(at::logical_not(at::isfinite(z)).any(1)));
}

}  // namespace triage::test
