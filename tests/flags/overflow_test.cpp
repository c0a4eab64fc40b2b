// T27: counting the errors that were dropped (ErrorConfig::track_overflow), against the definition of layout.h written
// plainly, one sample at a time.
#include "levels.h"

#include <rapidcheck.h>

#include <algorithm>

namespace triage::test {
namespace {

using Record = std::vector<uint16_t>;

uint16_t slot_of(int code, int location, int severity) {
  return static_cast<uint16_t>(severity | code << 2 | location << 6);
}

bool same(uint16_t a, uint16_t b, Dedupe dedupe) {
  const bool codes = code_of(a) == code_of(b), locations = location_of(a) == location_of(b);
  return dedupe == Dedupe::code       ? codes
         : dedupe == Dedupe::location ? locations
                                      : dedupe == Dedupe::unique && codes && locations;
}

void count_dropped(Record& record, int more, int worst) {
  uint16_t& last = record.back();
  int number = more;
  if (severity_of(last)) number += code_of(last) == 15 ? location_of(last) : 1;
  last = slot_of(15, std::min(number, 1023), std::max(severity_of(last), worst));
}

// Pushes into all slots but the last, which counts.
void push(Record& record, uint16_t fresh, const AccumulationConfig& how) {
  if (!code_of(fresh) || !severity_of(fresh)) return;
  const auto end = record.end() - 1;
  for (auto entry = record.begin(); entry != end; ++entry) {
    if (!severity_of(*entry) || !same(*entry, fresh, how.dedupe)) continue;
    if (severity_of(fresh) > severity_of(*entry)) *entry = fresh;
    return;
  }
  uint16_t dropped = fresh;
  if (how.priority == Priority::chrono && how.order == Order::last) {
    dropped = *(end - 1);
    std::copy_backward(record.begin(), end - 1, end);
    record.front() = fresh;
  } else if (auto empty = std::find_if(record.begin(), end, [](uint16_t s) { return !severity_of(s); }); empty != end) {
    *empty = fresh;
    return;
  } else if (how.priority != Priority::chrono) {
    const auto key = [&](uint16_t s) {
      const int rank = how.priority == Priority::severity ? severity_of(s) : location_of(s);
      return how.order == Order::last ? rank : -rank;
    };
    const auto weakest = std::min_element(record.begin(), end, [&](uint16_t a, uint16_t b) { return key(a) < key(b); });
    if (key(fresh) > key(*weakest)) std::swap(*weakest, dropped);
  }
  if (severity_of(dropped)) count_dropped(record, 1, severity_of(dropped));
}

void merge(Record& record, const Record& other, const AccumulationConfig& how) {
  for (size_t i = 0; i + 1 < other.size(); ++i) push(record, other[i], how);
  const uint16_t last = other.back();
  if (!severity_of(last)) return;
  if (code_of(last) == 15)
    count_dropped(record, location_of(last), severity_of(last));
  else
    push(record, last, how);
}

struct CountingForm {
  ErrorConfig config;
  size_t samples = 0;
};

CountingForm draw_counting_form() {
  ErrorConfig config;
  config.track_overflow = true;
  config.flag_dtype = *rc::gen::elementOf(CARRIERS);
  config.num_slots = *rc::gen::elementOf(std::vector<int64_t>{2, 2, 3, 4, 5, 6, 8, 9, 13, 16, 17});
  config.accumulation = *rc::gen::elementOf(policies());
  return {config, *rc::gen::elementOf(std::vector<size_t>{0, 1, 2, 31, 32, 33})};
}

uint16_t draw_counted_slot() {
  const int place = *rc::gen::elementOf(std::vector<int>{0, 1, 2, 3, 511, 1022, 1023});
  return slot_of(*rc::gen::inRange(0, 16), place, *rc::gen::inRange(0, 4));
}

// Full and nearly full records, which errors drop out of; the last slot holds a number, something else, or nothing.
std::vector<Record> draw_records(const CountingForm& form) {
  std::vector<Record> records(form.samples);
  const auto slots = static_cast<size_t>(form.config.num_slots);
  for (auto& record : records) {
    const auto used = *rc::gen::elementOf(std::vector<size_t>{0, slots / 2, slots - 1, slots});
    for (size_t i = 0; i < used; ++i) record.push_back(draw_counted_slot());
    record.resize(slots);
  }
  return records;
}

void check(const std::string& name, const std::vector<IValue>& arguments, const Tensor& expected) {
  for (Level level : LEVELS) RC_ASSERT(same_bits(run(level, name, arguments), expected));
}

}  // namespace

TEST_CASE("T05 T27: with track_overflow, push counts what is dropped, on both levels as defined") {
  CHECK(rc::check([] {
    const auto form = draw_counting_form();
    const auto& config = form.config;
    const auto records = draw_records(form);
    const auto f = flags_of(records, config);
    const uint16_t fresh = draw_counted_slot();
    const int64_t slots = config.num_slots, policy = config.policy();
    const auto n = static_cast<int64_t>(form.samples);
    auto mask = at::zeros({n}, at::kBool), codes = at::zeros({n}, at::kLong);
    std::vector<Record> all = records, some = records, own = records;
    for (size_t i = 0; i < records.size(); ++i) {
      push(all[i], fresh, config.accumulation);
      const bool taken = *rc::gen::arbitrary<bool>();
      mask[static_cast<int64_t>(i)] = taken;
      if (taken) push(some[i], fresh, config.accumulation);
      const int c = *rc::gen::inRange(0, 16);
      codes[static_cast<int64_t>(i)] = c;
      push(own[i], slot_of(c, location_of(fresh), severity_of(fresh)), config.accumulation);
    }
    const IValue where = location_of(fresh), bad = severity_of(fresh), what = code_of(fresh);
    check("push.scalar", {f, what, where, bad, slots, policy}, flags_of(all, config));
    check("push.where", {f, what, where, bad, mask, slots, policy}, flags_of(some, config));
    check("push", {f, codes, where, bad, slots, policy}, flags_of(own, config));
  }));
}

TEST_CASE("T06 T27: with track_overflow, merge adds up what both dropped, on both levels as defined") {
  CHECK(rc::check([] {
    const auto form = draw_counting_form();
    const auto records = draw_records(form), others = draw_records(form);
    std::vector<Record> merged = records;
    for (size_t i = 0; i < merged.size(); ++i) merge(merged[i], others[i], form.config.accumulation);
    const IValue slots = form.config.num_slots, policy = form.config.policy();
    check("merge", {flags_of(records, form.config), flags_of(others, form.config), slots, policy},
          flags_of(merged, form.config));
  }));
}

TEST_CASE("T05 T27: while nothing was dropped, track_overflow changes no bit") {
  CHECK(rc::check([] {
    auto config = draw_counting_form().config;
    const auto n = *rc::gen::inRange<int64_t>(0, 40);
    auto tracked = err::new_t(n, {at::kCPU, config});
    auto plain = tracked.clone();
    auto off = config;
    off.track_overflow = false;
    for (int64_t i = 0; i + 1 < config.num_slots; ++i) {
      const int64_t what = *rc::gen::inRange<int64_t>(1, 16), where = *rc::gen::inRange<int64_t>(0, 4);
      const auto mask = at::rand({n}) < 0.5;
      tracked = err::push(tracked, Code{what}, where, {.where = mask, .config = config});
      plain = err::push(plain, Code{what}, where, {.where = mask, .config = off});
    }
    RC_ASSERT(same_bits(tracked, plain));
  }));
}

TEST_CASE("T13 T27: what was dropped is counted, saturates, and is named") {
  ErrorConfig config;
  config.num_slots = 3;
  config.track_overflow = true;
  config.accumulation.dedupe = Dedupe::none;
  const InspectOptions with{config};
  const int64_t encoder = ErrorLocation::register_path("overflow.encoder");
  auto f = err::new_t(2, {at::kCPU, config});
  const auto second = at::tensor({0, 1}).to(at::kBool);
  for (int i = 0; i < 5; ++i)
    f = err::push(f, i < 4 ? err::zero_output : err::nan, encoder, {.where = second, .config = config});
  const auto errors = flags::unpack(f, 1, with);
  REQUIRE(errors.size() == 3);
  CHECK(errors[2].code_name == "UNKNOWN");
  CHECK(errors[2].location == 3);
  CHECK(errors[2].location_name == "(3 dropped)");
  CHECK(errors[2].severity == err::critical);  // the NaN that found no room
  CHECK(err::has_critical(f)[1].item<bool>());
  CHECK(flags::repr(f, with) == "ErrorFlags(2 samples, 2 errors: 2xZERO_OUTPUT @ overflow.encoder; 3 dropped)");
  CHECK(flags::summary(f, with)[flags::DROPPED]["UNKNOWN"] == 3);
  CHECK(flags::summary(f, with)["overflow.encoder"]["ZERO_OUTPUT"] == 2);
  CHECK(flags::pretty_print(f, 1, with).find("@ (3 dropped)") != std::string::npos);
  CHECK(flags::to_table(f, with).back().error.location_name == "(3 dropped)");
  CHECK(flags::unpack(f, 1)[2].location_name == ErrorLocation::name(3));  // the global configuration does not track
  for (int i = 0; i < 1100; ++i) f = err::push(f, err::inf, encoder, {.where = second, .config = config});
  CHECK(flags::unpack(f, 1, with)[2].location == MAX_DROPPED);
  CHECK(flags::unpack_all(f, with)[1][2].location_name == "(at least 1023 dropped)");
  CHECK(flags::repr(f, with).find("; at least 1023 dropped)") != std::string::npos);
  CHECK(flags::unpack(f, 0, with).empty());
}

TEST_CASE("T25 T27: track_overflow needs two slots, and says so") {
  ErrorConfig config;
  config.num_slots = 1;
  config.track_overflow = true;
  CHECK_THROWS_AS(config.validate(), ConfigError);
  const auto f = err::new_t(2, {at::kCPU, ErrorConfig{.num_slots = 1}});
  for (Level level : LEVELS) {
    CHECK_THROWS_AS(run(level, "push.scalar", {f, 1, 0, 3, 1, config.policy()}), InputError);
    CHECK_THROWS_AS(run(level, "flag_nan", {at::ones({2}), IValue(), 0, 1, config.policy(), at::kLong}), InputError);
    CHECK_THROWS_AS(run(level, "push.scalar", {f, 1, 0, 3, 1, 64}), InputError);
  }
}

}  // namespace triage::test
