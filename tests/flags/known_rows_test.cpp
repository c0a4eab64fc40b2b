// Composites that know what records can be: the same bits as kernels, few calls, no waiting for the device, and nothing
// known of what was written to.
#include "levels.h"

#include <rapidcheck.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/composites/known_rows.h>

#include <optional>

namespace triage::test {
namespace {

using flags::KnownRows;

/// A tensor as kernels made it, and as composites did that know what they made.
struct Pair {
  Tensor kernel, known;
  Pair(Tensor both) : kernel(both), known(both) {}  // NOLINT(google-explicit-constructor)
  Pair(Tensor of_kernel, Tensor of_known) : kernel(std::move(of_kernel)), known(std::move(of_known)) {}
};

struct Argument {
  IValue kernel, known;
  Argument(const Pair& pair) : kernel(pair.kernel), known(pair.known) {}  // NOLINT(google-explicit-constructor)
  template <class T>
  Argument(T value) : kernel(value), known(value) {}  // NOLINT(google-explicit-constructor)
};

std::vector<Pair> run_both(const std::string& name, const std::vector<Argument>& arguments) {
  CAPTURE(name);
  std::vector<IValue> for_kernel, for_known;
  for (const Argument& argument : arguments) {
    for_kernel.push_back(argument.kernel);
    for_known.push_back(argument.known);
  }
  const auto kernel = run_all(Level::kernel, name, for_kernel), known = run_all(Level::composite, name, for_known);
  RC_ASSERT(kernel.size() == known.size());
  std::vector<Pair> results;
  for (size_t i = 0; i < kernel.size(); ++i) {
    results.emplace_back(kernel[i].toTensor(), known[i].toTensor());
    if (!same_bits(results[i].kernel, results[i].known)) RC_FAIL("triage::" + name + " differs");
  }
  return results;
}

template <class T>
T one_of(const std::vector<T>& all) {
  return *rc::gen::elementOf(all);
}

/// Data of 1 to 3 dims, some of it with gaps or transposed; NaN and Inf in no row, in some or in all.
Tensor draw_data(int64_t samples) {
  const auto shape = one_of<std::vector<int64_t>>({{}, {5}, {3, 4}, {0}});
  std::vector<int64_t> sizes{samples};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  auto z = at::randn(sizes);
  const double nan = one_of<double>({0, 0.2, 1}), inf = one_of<double>({0, 0.2, 1});
  z = at::where(at::rand(sizes) < nan, NaN, z);
  z = at::where(at::rand(sizes) < inf, *rc::gen::arbitrary<bool>() ? Inf : -Inf, z);
  z = z.to(one_of<at::ScalarType>({at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}));
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return at::repeat_interleave(z, 2, 0).slice(0, 0, samples * 2, 2);
    case 1:
      return z.transpose(0, -1).contiguous().transpose(0, -1);
    default:
      return z;
  }
}

Tensor draw_some_mask(int64_t samples) {
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      return at::zeros({samples}, at::kBool);
    case 1:
      return at::ones({samples}, at::kBool);
    case 2:
      return at::rand({samples * 3}).lt(0.5).slice(0, 0, samples * 3, 3);
    default:
      return at::rand({samples}) < 0.5;
  }
}

/// Builds flags out of nothing by operations at random.
class Sequence {
 public:
  Sequence() : samples_(one_of<int64_t>({0, 1, 2, 31, 32, 33})), config_(draw_config()), flags_(start()) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
  }

  void ask() const {
    for (const char* name : {"is_ok", "is_err", "has_critical", "all_ok", "any_err", "count_errors", "max_severity",
                             "get_first_code", "get_first_location", "get_first_severity"})
      run_both(name, {flags_});
    for (int64_t code = 0; code < 16; ++code) run_both("has_code", {flags_, code});
    for (int64_t domain = 0; domain < 4; ++domain) run_both("has_domain", {flags_, domain});
    run_both("get_slot", {flags_, *rc::gen::inRange<int64_t>(0, config_.num_words() * config_.slots_per_word())});
    run_both("match", {flags_, *rc::gen::inRange<int64_t>(0, 0x10000), *rc::gen::inRange<int64_t>(0, 4)});
    const auto z = draw_data(samples_);
    run_both("take_ok_p", {flags_, z, 2.5});
    run_both("take_err_p", {flags_, z, 2.5});
  }

 private:
  static ErrorConfig draw_config() {
    auto config = make_config(one_of<int64_t>({1, 2, 3, 4, 5, 7, 16, 17}), one_of(CARRIERS), one_of(policies()));
    config.track_overflow = config.num_slots > 1 && *rc::gen::inRange(0, 4) == 0;
    return config;
  }

  std::vector<Argument> detection(const Tensor& z, const Argument& flags) const {
    return {z, flags, location(), config_.num_slots, config_.policy(), config_.flag_dtype};
  }
  static int64_t location() { return one_of<int64_t>({0, 1, 2, 512, 1023}); }
  static int64_t severity() { return *rc::gen::inRange<int64_t>(0, 4); }
  static int64_t code() { return *rc::gen::inRange<int64_t>(0, 16); }
  static std::string detector() { return one_of<std::string>({"flag_nan", "flag_inf", "flag_nan_and_inf"}); }

  Pair start() const {
    const auto z = draw_data(samples_);
    if (*rc::gen::inRange(0, 3) == 0) return run_both("new", {z, config_.num_slots, config_.flag_dtype})[0];
    if (*rc::gen::inRange(0, 3) != 0) return run_both(detector(), detection(z, IValue()))[0];
    auto arguments = detection(at::randint(-2, 9, {samples_, 3}), IValue());
    arguments.insert(arguments.begin() + 1, int64_t{7});
    return run_both("flag_oob_indices", arguments)[0];
  }

  Pair mask() const {
    if (*rc::gen::inRange(0, 2) == 0) return draw_some_mask(samples_);
    return *rc::gen::arbitrary<bool>() ? run_both("is_ok", {flags_})[0] : run_both("has_code", {flags_, code()})[0];
  }

  void step() {
    const int64_t slots = config_.num_slots, policy = config_.policy();
    switch (*rc::gen::inRange(0, 9)) {
      case 0:
      case 1:
        flags_ = run_both("push.where", {flags_, code(), location(), severity(), mask(), slots, policy})[0];
        break;
      case 2:
        flags_ = run_both("push.scalar", {flags_, code(), location(), severity(), slots, policy})[0];
        break;
      case 3:
        flags_ = run_both(
            "push",
            {flags_,
             at::randint(-2, 19, {samples_}, at::kLong).to(one_of<at::ScalarType>({at::kLong, at::kInt, at::kChar})),
             location(), severity(), slots, policy})[0];
        break;
      case 4:
        flags_ = run_both(detector(), detection(draw_data(samples_), flags_))[0];
        break;
      case 5:
        flags_ = run_both("fix.scalar", {draw_data(samples_), flags_, 1.5, location(), one_of<int64_t>({0xFFFF, 6, 0}),
                                         severity(), slots, policy})[1];
        break;
      case 6: {
        const auto z = draw_data(samples_);
        flags_ = run_both("fix", {z, flags_, z + z, location(), int64_t{0xFFFF}, severity(), slots, policy})[1];
        break;
      }
      case 7:
        flags_ = run_both("clear", {flags_, code()})[0];
        break;
      default: {
        const Pair other = start();
        const bool turned = *rc::gen::arbitrary<bool>();
        flags_ = run_both("merge", {turned ? other : flags_, turned ? flags_ : other, slots, policy})[0];
      }
    }
  }

  int64_t samples_;
  ErrorConfig config_;
  Pair flags_;
};

// ---- counted on a device without kernels

struct Counted {
  size_t calls;
  std::string made, waits;
};

Counted counted_calls(const std::function<void()>& run) {
  const Calls calls = calls_of(run);
  return {calls.made.size(), listed(calls.made), calls.waits.empty() ? "" : listed(calls.waits)};
}

/// Words of other carriers than int64 are made of int64 words.
size_t conversions(at::ScalarType carrier) { return carrier == at::kFloat ? 2 : carrier == at::kLong ? 0 : 1; }

/// Makes at most so many calls, and waits for none.
void check_calls(const std::string& what, size_t most, const std::function<void()>& run) {
  const Counted got = counted_calls(run);
  CHECK_MESSAGE(got.calls > 0, what);
  CHECK_MESSAGE(got.calls <= most, what << ": at most " << most << ", got " << got.made);
  CHECK_MESSAGE(got.waits == "", what << " waits: " << got.waits);
}

std::string described(const ErrorConfig& config) {
  return std::string(c10::toString(config.flag_dtype)) + ", " + std::to_string(config.num_slots) + " slots, policy " +
         std::to_string(config.policy());
}

Tensor batch(const std::vector<int64_t>& sizes) {
  auto z = at::ones(sizes);
  z.flatten()[0] = NaN;
  return to_other(z);
}

FixOptions fixing(const ErrorConfig& config) {
  FixOptions options;
  options.config = config;
  return options;
}

const std::vector<std::vector<int64_t>> shapes = {{6}, {6, 5}, {6, 3, 4}, {6, 2, 3, 4}};

}  // namespace

TEST_CASE("T05 T06 T07 T10 T27: known records have the bits of kernels, whatever made them") {
  const KnownRows known(KnownRows::Writes::none);
  CHECK(rc::check([] {
    for (int i = 0; i < 5; ++i) {
      Sequence sequence;
      sequence.run(*rc::gen::inRange(0, 7));
      sequence.ask();
    }
  }));
}

TEST_CASE("T05 T06 T07 T10 T27: the same where writes are watched") {
  const KnownRows known(KnownRows::Writes::versioned);
  CHECK(rc::check([] {
    for (int i = 0; i < 5; ++i) {
      Sequence sequence;
      sequence.run(*rc::gen::inRange(0, 7));
      sequence.ask();
    }
  }));
}

TEST_CASE("the device of the tests tells of what waits") {
  const auto z = to_other(at::ones({3}));
  const auto waits = [](const std::function<void()>& run) { return calls_of(run).waits; };
  CHECK(waits([&] { z[0].item<float>(); }) == std::vector<std::string>{"aten::_local_scalar_dense"});
  CHECK(waits([&] { at::nonzero(z); }).size() == 1);
  CHECK_FALSE(waits([&] { z.index({z.gt(0)}); }).empty());
  CHECK(waits([&] { z.cpu(); }).size() == 1);
  CHECK(waits([&] { z.copy_(at::zeros({3})); }).size() == 1);
  CHECK(waits([&] { at::where(z > 0, z + 1, z.sum()); }).empty());
}

TEST_CASE("detection makes few calls and waits for none") {
  for (const auto& policy : policies()) {
    const auto config = make_config(16, at::kLong, policy);
    CAPTURE(described(config));
    for (const auto& shape : shapes) {
      const auto z = batch(shape);
      // The pair of a NaN and an Inf takes three choices more than one of them; many dims take a view.
      const size_t more = shape.size() > 2;
      check_calls("flag_nan", 4 + more, [&] { flag_nan(z, 3, {}, {config}); });
      check_calls("flag_inf", 4 + more, [&] { flag_inf(z, 3, {}, {config}); });
      check_calls("flag_nan_and_inf", 8 + more, [&] { flag_nan_and_inf(z, 3, {}, {config}); });
    }
    const auto ids = to_other(at::ones({6, 5}, at::kInt));
    check_calls("flag_oob_indices", 8, [&] { flag_oob_indices(ids, 4, 3, {}, {config}); });
  }
}

TEST_CASE("detection and repair together make few calls, where it is known that nobody writes to the flags") {
  const KnownRows known(KnownRows::Writes::versioned);
  for (const auto carrier : CARRIERS)
    for (const auto& policy : policies()) {
      const auto config = make_config(16, carrier, policy);
      CAPTURE(described(config));
      for (const auto& shape : shapes) {
        const auto z = batch(shape);
        const size_t second_word = flags::check::slots_per_word(carrier) == 2 ? 3 : 0;  // the third entry's
        const size_t most = (shape.size() > 2 ? 16 : 14) + 2 * conversions(carrier) + second_word;
        check_calls("repair", most, [&] {
          const auto f = flag_nan_and_inf(z, 3, {}, {config});
          fix(z, f, 3, fixing(config));
        });
      }
    }
}

TEST_CASE("a push into a record that is known to be empty makes at most six calls") {
  const KnownRows known(KnownRows::Writes::versioned);
  const auto where = to_other(at::ones({6}, at::kBool)), codes = to_other(at::arange(6));
  for (const auto carrier : CARRIERS)
    for (const auto& policy : policies()) {
      const auto config = make_config(16, carrier, policy);
      CAPTURE(described(config));
      const auto f = err::new_(batch({6, 5}), {config});
      const size_t view = conversions(carrier);
      PushOptions options;
      options.config = config;
      check_calls("push to all", 3 + view, [&] { err::push(f, err::nan, 3, options); });
      options.where = where;
      check_calls("push", 3 + view, [&] { err::push(f, err::nan, 3, options); });
      PushOptions of_codes;
      of_codes.config = config;
      check_calls("push of codes", 6 + view, [&] { err::push(f, codes, 3, of_codes); });
    }
}

TEST_CASE("a push into any record makes at most 40 calls, 57 with an overflow record, and waits for none") {
  const auto where = to_other(at::ones({6}, at::kBool)), codes = to_other(at::arange(6));
  for (const auto carrier : CARRIERS)
    for (const auto& policy : policies())
      for (const bool track_overflow : {false, true}) {
        auto config = make_config(15, carrier, policy);  // a slot of the last word is none
        config.track_overflow = track_overflow;
        CAPTURE(described(config));
        const auto f = err::new_(batch({6, 5}), {config});
        const size_t most = (track_overflow ? 57 : 40) + conversions(carrier);
        PushOptions options;
        options.config = config;
        check_calls("push to all", most, [&] { err::push(f, err::nan, 3, options); });
        options.where = where;
        check_calls("push", most, [&] { err::push(f, err::nan, 3, options); });
        PushOptions of_codes;
        of_codes.config = config;
        check_calls("push of codes", most, [&] { err::push(f, codes, 3, of_codes); });
      }
}

TEST_CASE("a record that was written to is no longer known") {
  const KnownRows known(KnownRows::Writes::versioned);
  const auto config = make_config(16);
  const auto z = at::tensor({NaN, 1.0f}).view({2, 1});
  const std::vector<IValue> arguments{z, IValue(), 3, 16, config.policy(), at::kLong};
  const auto flags = [&] { return run(Level::composite, "flag_nan", arguments); };
  const auto pushed = [&](const Tensor& f) {
    const std::vector<IValue> push{f, 2, 3, 3, 16, config.policy()};
    const auto result = run(Level::composite, "push.scalar", push);
    CHECK(same_bits(result, run(Level::kernel, "push.scalar", push)));
    return result;
  };
  SUBCASE("through itself") {
    auto f = flags();
    REQUIRE(KnownRows::of(f));
    f.fill_(1 << 6 | 2 << 2 | 1);
    CHECK_FALSE(KnownRows::of(f));
    pushed(f);
  }
  SUBCASE("through a view") {
    auto f = flags();
    f.select(0, 1).fill_(1 << 6 | 2 << 2 | 1);
    CHECK_FALSE(KnownRows::of(f));
    pushed(f);
  }
  SUBCASE("through what shares its version") {
    auto f = flags();
    f.detach().fill_(7);
    CHECK_FALSE(KnownRows::of(f));
    pushed(f);
  }
  SUBCASE("through a mask that its rows depend on") {
    auto mask = at::tensor({1, 0}).to(at::kBool);
    const auto empty = run(Level::composite, "new", {z, 16, at::kLong});
    const auto f = run(Level::composite, "push.where", {empty, 1, 3, 3, mask, 16, config.policy()});
    REQUIRE(KnownRows::of(f));
    mask.logical_not_();
    CHECK_FALSE(KnownRows::of(f));
    pushed(f);
  }
  SUBCASE("by what nobody sees") {
    auto f = flags();
    { const KnownRows host(KnownRows::Writes::unseen); }
    CHECK_FALSE(KnownRows::of(f));
  }
  SUBCASE("or without versions") {
    const c10::InferenceMode inference;
    const auto f = run(Level::composite, "flag_nan", arguments);
    CHECK_FALSE(KnownRows::of(f));
    pushed(f);
  }
  SUBCASE("a new tensor is no old one") {
    for (int i = 0; i < 100; ++i) {
      flags();
      CHECK_FALSE(KnownRows::of(at::zeros({2, 4}, at::kLong)));
    }
  }
}

TEST_CASE("answers about known records have memory of their own") {
  const KnownRows known(KnownRows::Writes::versioned);
  const auto policy = make_config(16).policy();
  const auto mask = at::tensor({1, 0}).to(at::kBool), z = at::zeros({2, 1});
  const auto empty = run(Level::composite, "new", {z, 16, at::kLong});
  const auto f = run(Level::composite, "push.where", {empty, 1, 3, 3, mask, 16, policy});
  const auto bad = run(Level::composite, "is_err", {f}), nan = run(Level::composite, "has_code", {f, 1});
  REQUIRE(bad.equal(mask));
  CHECK_FALSE(bad.is_alias_of(mask));
  CHECK_FALSE(bad.is_alias_of(nan));
  bad.logical_not_();
  CHECK(nan.equal(mask));
  CHECK(run(Level::composite, "is_err", {f}).equal(mask));
}

TEST_CASE("nothing is known where nobody watches, and of no argument") {
  const auto z = at::zeros({2, 1});
  CHECK_FALSE(KnownRows::of(run(Level::composite, "new", {z, 16, at::kLong})));
  const KnownRows known(KnownRows::Writes::none);
  CHECK_FALSE(KnownRows::of(at::zeros({2, 4}, at::kLong)));
}

}  // namespace triage::test
