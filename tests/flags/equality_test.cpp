// Properties, on random operations, configurations and carriers: all levels give the same bits, and merge is what
// pushes give.
#include "levels.h"

#include <rapidcheck.h>

namespace triage::test {
namespace {

struct Form {
  ErrorConfig config;
  int64_t samples;
};

Form draw_form() {
  ErrorConfig config;
  config.flag_dtype = *rc::gen::elementOf(CARRIERS);
  config.num_slots = *rc::gen::weightedOneOf<int64_t>(
      {{4, rc::gen::inRange<int64_t>(1, 10)}, {2, rc::gen::just<int64_t>(16)}, {1, rc::gen::inRange<int64_t>(10, 40)}});
  config.accumulation = *rc::gen::elementOf(policies());
  return {config, *rc::gen::elementOf(std::vector<int64_t>{0, 1, 2, 31, 32, 33})};
}

// Any slot: empty ones, codes without a name, few locations so that duplicates are common.
uint16_t draw_slot() {
  const auto location = *rc::gen::elementOf(std::vector<int>{0, 1, 2, 511, 512, 1023});
  return static_cast<uint16_t>(*rc::gen::inRange(0, 4) | *rc::gen::inRange(0, 16) << 2 | location << 6);
}

Tensor draw_flags(const Form& form) {
  std::vector<std::vector<uint16_t>> samples(static_cast<size_t>(form.samples));
  for (auto& sample : samples) {
    const auto used = *rc::gen::inRange<int64_t>(0, form.config.num_slots + 1);
    for (int64_t i = 0; i < used; ++i) sample.push_back(draw_slot());
  }
  auto f = flags_of(samples, form.config);
  return *rc::gen::arbitrary<bool>() ? f : f.t().contiguous().t();
}

Tensor draw_mask(int64_t samples) {
  auto mask = at::zeros({samples * 2}, at::kBool);
  for (int64_t i = 0; i < mask.size(0); ++i) mask.data_ptr<bool>()[i] = *rc::gen::arbitrary<bool>();
  return mask.slice(0, 0, samples * 2, 2);
}

void same_on_all(const std::string& name, const std::vector<IValue>& arguments) {
  const auto kernel = run_all(Level::kernel, name, arguments);
  for (const Level level : {Level::composite, Level::other_device}) {
    const auto composite = run_all(level, name, arguments);
    RC_ASSERT(kernel.size() == composite.size());
    for (size_t i = 0; i < kernel.size(); ++i) RC_ASSERT(same_bits(kernel[i].toTensor(), composite[i].toTensor()));
  }
}

}  // namespace

TEST_CASE("T05 T26 T27: push gives the same bits on all levels") {
  CHECK(rc::check([] {
    const auto form = draw_form();
    const auto f = draw_flags(form);
    const int64_t slots = form.config.num_slots, policy = form.config.accumulation.packed();
    const int64_t location = *rc::gen::inRange<int64_t>(0, 4), severity = *rc::gen::inRange<int64_t>(0, 4);
    const int64_t code = *rc::gen::inRange<int64_t>(0, 16);
    auto codes = at::zeros({form.samples}, at::kLong);
    for (int64_t i = 0; i < form.samples; ++i) codes[i] = *rc::gen::inRange<int64_t>(-2, 19);
    const auto dtype = *rc::gen::elementOf(std::vector<at::ScalarType>{at::kLong, at::kInt, at::kShort, at::kChar});
    same_on_all("push", {f, codes.to(dtype), location, severity, slots, policy});
    same_on_all("push.where", {f, code, location, severity, draw_mask(form.samples), slots, policy});
    same_on_all("push.scalar", {f, code, location, severity, slots, policy});
  }));
}

TEST_CASE("T06 T27: merge gives the same bits on all levels, and is what pushing each slot gives") {
  CHECK(rc::check([] {
    const auto form = draw_form();
    const auto f = draw_flags(form), other = draw_flags(form);
    const int64_t slots = form.config.num_slots, policy = form.config.accumulation.packed();
    same_on_all("merge", {f, other, slots, policy});
    auto pushed = f.clone();
    for (int64_t i = 0; i < slots; ++i) {
      const auto slot = run(Level::kernel, "get_slot", {other, i});
      for (int64_t sample = 0; sample < form.samples;
           ++sample) {  // one sample at a time: location and severity are its own
        const auto bits = slot[sample].item<int64_t>();
        auto row = run(Level::composite, "push.scalar",
                       {pushed.narrow(0, sample, 1), bits >> 2 & 15, bits >> 6, bits & 3, slots, policy});
        pushed.narrow(0, sample, 1).copy_(row);
      }
      if (form.samples > 2 && i > 3) break;
    }
    if (form.samples <= 2 || slots <= 4)
      RC_ASSERT(same_bits(run(Level::kernel, "merge", {f, other, slots, policy}), pushed));
  }));
}

TEST_CASE("T07 T10: queries and clear give the same bits on all levels") {
  CHECK(rc::check([] {
    const auto form = draw_form();
    const auto f = draw_flags(form);
    for (const char* name : {"is_ok", "is_err", "has_critical", "all_ok", "any_err", "count_errors", "max_severity",
                             "get_first_code", "get_first_location", "get_first_severity"}) {
      same_on_all(name, {f});
    }
    const int64_t code = *rc::gen::inRange<int64_t>(0, 16);
    same_on_all("has_code", {f, code});
    same_on_all("clear", {f, code});
    same_on_all("has_domain", {f, *rc::gen::inRange<int64_t>(0, 4)});
    same_on_all("get_slot", {f, *rc::gen::inRange<int64_t>(0, form.config.num_words() * form.config.slots_per_word())});
    same_on_all("match", {f, *rc::gen::inRange<int64_t>(0, 0x10000), *rc::gen::inRange<int64_t>(0, 4)});
    same_on_all("match", {f, 0xFFFF, 0});
    same_on_all("new", {f, form.config.num_slots, *rc::gen::elementOf(CARRIERS)});
  }));
}

TEST_CASE("T09 T14: repairs give the same bits on all levels") {
  CHECK(rc::check([] {
    const auto form = draw_form();
    const auto f = draw_flags(form);
    const int64_t slots = form.config.num_slots, policy = form.config.accumulation.packed();
    const auto dtype = *rc::gen::elementOf(
        std::vector<at::ScalarType>{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte});
    const auto shape = *rc::gen::elementOf(std::vector<std::vector<int64_t>>{{}, {5}, {3, 4}, {0}});
    std::vector<int64_t> sizes{form.samples};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    auto z = (at::randn(sizes) * 5 + 20).to(dtype);
    if (z.dim() == 2 && *rc::gen::arbitrary<bool>()) z = z.t().contiguous().t();
    const auto number = *rc::gen::elementOf(std::vector<c10::Scalar>{0.0, 2.5, int64_t{7}, -1.0});
    const int64_t codes = *rc::gen::elementOf(std::vector<int64_t>{0xFFFF, 0x6, 0x0});
    const int64_t least = *rc::gen::inRange<int64_t>(0, 4);
    same_on_all("take_ok_p", {f, z, number});
    same_on_all("take_err_p", {f, z, number});
    same_on_all("fix.scalar", {z, f, number, 3, codes, least, slots, policy});
    const auto row = at::ones(at::IntArrayRef(sizes).slice(1), z.options());
    for (const auto& fallback : {row, z * 2, at::full({}, 3.5, at::kFloat), at::full({1}, 2, at::kFloat)}) {
      same_on_all("fix", {z, f, fallback, 3, codes, least, slots, policy});
    }
    same_on_all("select", {draw_mask(form.samples), z, z + z});
    same_on_all("select", {at::scalar_tensor(*rc::gen::arbitrary<bool>(), at::kBool), f, at::zeros_like(f)});
  }));
}

TEST_CASE("T11: replace gives the same bits on all levels") {
  CHECK(rc::check([] {
    const auto dtype = *rc::gen::elementOf(
        std::vector<at::ScalarType>{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt});
    auto z = at::randint(-3, 4, {9, 11}).to(at::kDouble);
    if (at::isFloatingType(dtype)) z = at::where(at::rand({9, 11}) < 0.4, at::log(z) / at::clamp(z, 0), z);
    z = z.to(dtype);
    if (*rc::gen::arbitrary<bool>()) z = z.t();
    const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
    const auto values = *rc::gen::elementOf(std::vector<std::vector<double>>{{}, {2}, {0.0, -1.0}, {0.3, 1}, {1e6}});
    const auto value = *rc::gen::elementOf(std::vector<c10::Scalar>{0.0, 2.5, int64_t{7}});
    const auto integers =
        *rc::gen::elementOf(std::vector<std::vector<int64_t>>{{}, {2}, {-1, 1000000}, {(int64_t{1} << 53) + 1}});
    same_on_all("replace", {z, value, flag(), flag(), flag(), values, integers});
  }));
}

TEST_CASE("T26: a record may have up to 32,768 slots") {
  constexpr int64_t weakest = 20000;
  for (auto carrier : CARRIERS) {
    const auto config = make_config(MAX_SLOTS, carrier, {Priority::severity, Order::last, Dedupe::none});
    std::vector<uint16_t> full(static_cast<size_t>(MAX_SLOTS), 3 << 2 | to_int(err::error));
    full[weakest] = 9 << 2 | to_int(err::warn);
    const auto f = flags_of({full, {}}, config);
    for (Level level : LEVELS) {
      const auto next = run(level, "push.scalar",
                            {f, to_int(err::nan), 9, to_int(err::critical), MAX_SLOTS, config.accumulation.packed()});
      CHECK(run(level, "count_errors", {next}).equal(at::tensor({32768, 1}).to(at::kInt)));
      CHECK(run(level, "has_code", {next, to_int(err::nan)}).all().item<bool>());
      CHECK(run(level, "has_code", {next, 9})[0].item<bool>() == false);
      CHECK(run(level, "get_slot", {next, weakest})[0].item<int64_t>() ==
            (9 << 6 | to_int(err::nan) << 2 | to_int(err::critical)));
    }
  }
}

}  // namespace triage::test
