#include "levels.h"

#include <triage/log.h>

#include <set>
#include <thread>

namespace triage::test {
namespace {

struct RestoreConfig {
  ErrorConfig before = get_config();
  ~RestoreConfig() { set_config(before); }
};

}  // namespace

TEST_CASE("T25: the global config is what operations use when given none, and its epoch tells of changes") {
  RestoreConfig restore;
  const auto before = config_epoch();
  set_config(get_config());
  CHECK(config_epoch() == before);
  const ErrorConfig& old = get_config();
  set_config(make_config(5, at::kInt));
  CHECK(config_epoch() > before);
  CHECK(old.num_slots == 16);  // a reference once taken stays what it was
  CHECK(get_config().num_words() == 3);
  CHECK((err::new_t(2).sizes() == at::IntArrayRef({2, 3})));
  CHECK((err::new_t(2).scalar_type() == at::kInt));
  CHECK((err::new_t(2, {c10::kCPU, make_config(16)}).sizes() == at::IntArrayRef({2, 4})));
}

TEST_CASE("T25 T26 T29: derived properties") {
  CHECK(make_config(16).slots_per_word() == 4);
  CHECK(make_config(17).num_words() == 5);
  CHECK(make_config(17, at::kFloat).num_words() == 9);
  CHECK(make_config(16, at::kInt).word_bits() == 32);
  ErrorConfig config;
  CHECK_FALSE(config.should_transpose(20000));
  config.use_transposed_layout = true;
  CHECK(config.should_transpose(10001));
  CHECK_FALSE(config.should_transpose(10000));
}

TEST_CASE("T25: a config out of range is refused and changes nothing") {
  const auto before = config_epoch();
  auto refused = [](auto change) {
    ErrorConfig config;
    change(config);
    return message_of([&] { set_config(config); });
  };
  check_refused(refused([](auto& c) { c.num_slots = 0; }), {"num_slots", "1..32768", "got 0"});
  check_refused(refused([](auto& c) { c.num_slots = 32769; }), {"num_slots", "32769"});
  check_refused(refused([](auto& c) { c.flag_dtype = at::kHalf; }), {"flag_dtype", "Half"});
  check_refused(refused([](auto& c) { c.default_severity = Severity::ok; }), {"default_severity", "got 0"});
  check_refused(refused([](auto& c) { c.accumulation.priority = static_cast<Priority>(3); }), {"priority"});
  check_refused(refused([](auto& c) { c.transpose_threshold = -1; }), {"transpose_threshold"});
  CHECK(config_epoch() == before);
  CHECK_THROWS_AS(err::new_t(1, {c10::kCPU, make_config(0)}), ConfigError);
}

TEST_CASE("T03: codes, severities, domains and their names") {
  CHECK(to_int(err::oob) == 5);
  CHECK(code_name(err::ok) == "OK");
  CHECK(code_name(err::oob) == "OUT_OF_BOUNDS");
  CHECK(code_name(Code{4}) == "CODE_4");
  CHECK(code_name(Code{8}) == "CODE_8");
  CHECK(code_name(Code{12}) == "CODE_12");
  CHECK(code_name(err::unknown) == "UNKNOWN");
  CHECK(severity_name(err::critical) == "CRITICAL");
  CHECK(domain_name(Domain::quality) == "QUALITY");
  check_refused(message_of([] { code_name(Code{16}); }), {"no error code 16"});
  const std::vector<int64_t> expected{0, 3, 3, 2, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1};
  for (int64_t c = 0; c < 16; ++c) CHECK(to_int(default_severity(Code{c})) == expected[static_cast<size_t>(c)]);
}

TEST_CASE("T28: the bit constants describe the layout") {
  const int64_t slot = 0x2A5 << LOCATION_SHIFT | 9 << CODE_SHIFT | 2 << SEVERITY_SHIFT;
  CHECK((slot >> LOCATION_SHIFT & LOCATION_MASK) == 0x2A5);
  CHECK((slot >> CODE_SHIFT & CODE_MASK) == 9);
  CHECK((slot >> SEVERITY_SHIFT & SEVERITY_MASK) == 2);
  CHECK(((LOCATION_IN_SLOT | CODE_IN_SLOT | SEVERITY_MASK) == SLOT_MASK));
  CHECK(LOCATION_BITS + CODE_BITS + SEVERITY_BITS == SLOT_BITS);
  const auto f = err::push_scalar(err::new_t(1), err::zero_output, 0x2A5, {err::error});
  CHECK(f[0][0].item<int64_t>() == slot);
}

TEST_CASE("T16 T19: the registry of locations") {
  ErrorLocation::reset();
  CHECK(ErrorLocation::count() == 1);
  CHECK(ErrorLocation::register_path("encoder.2") == 1);
  CHECK(ErrorLocation::register_path("head") == 2);
  CHECK(ErrorLocation::register_path("encoder.2") == 1);
  CHECK(ErrorLocation::get("head") == 2);
  CHECK(ErrorLocation::get("elsewhere") == 0);
  CHECK_FALSE(ErrorLocation::is_registered("elsewhere"));
  CHECK(ErrorLocation::is_registered("head"));
  CHECK(ErrorLocation::name(0) == "Unknown");
  CHECK(ErrorLocation::name(2) == "head");
  CHECK(ErrorLocation::name(77) == "Location_77");
  CHECK(ErrorLocation::path(77).empty());
  CHECK((ErrorLocation::get_all_paths() == std::map<std::string, int64_t>{{"encoder.2", 1}, {"head", 2}}));
  CHECK(Location("head").id == 2);
  CHECK(Location(1023).id == 1023);
  check_refused(message_of([] { Location(1024); }), {"0..1023", "1024"});
  check_refused(message_of([] { Location(-1); }), {"0..1023", "-1"});
  check_refused(message_of([] { ErrorLocation::register_path(""); }), {"must not be empty"});
  ErrorLocation::reset();
  CHECK(ErrorLocation::get("head") == 0);
}

TEST_CASE("T16: a full registry gives id 0 and keeps every id that it gave true") {
  ErrorLocation::reset();
  for (int i = 1; i <= 1023; ++i) CHECK(ErrorLocation::register_path("p" + std::to_string(i)) == i);
  std::vector<std::string> warnings;
  set_log([&](const LogRecord& record) { warnings.emplace_back(record.text); });
  CHECK(ErrorLocation::register_path("one more") == 0);
  CHECK(ErrorLocation::register_path("yet another") == 0);
  set_log({});
  CHECK(warnings.size() == 1);
  CHECK(warnings.at(0).find("All 1023 locations are taken: `one more`") == 0);
  CHECK(ErrorLocation::register_path("p1023") == 1023);
  CHECK(ErrorLocation::name(1023) == "p1023");
  CHECK_FALSE(ErrorLocation::is_registered("one more"));
  ErrorLocation::reset();
  CHECK(ErrorLocation::register_path("one more") == 1);
  ErrorLocation::reset();
}

TEST_CASE("T16 T30: threads that register the same paths agree on the ids") {
  ErrorLocation::reset();
  constexpr int threads = 4, paths = 200;
  std::vector<std::vector<int64_t>> ids(threads);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (int i = 0; i < paths; ++i) {
        ids[static_cast<size_t>(t)].push_back(
            ErrorLocation::register_path("m." + std::to_string((i * (t + 1)) % paths)));
        ErrorLocation::name(i);
      }
    });
  }
  for (auto& thread : pool) thread.join();
  const auto all = ErrorLocation::get_all_paths();
  std::set<int64_t> distinct;
  for (const auto& [path, id] : all) distinct.insert(id);
  CHECK(distinct.size() == all.size());
  for (int t = 0; t < threads; ++t) {
    for (int i = 0; i < paths; ++i) {
      CHECK(all.at("m." + std::to_string((i * (t + 1)) % paths)) ==
            ids[static_cast<size_t>(t)][static_cast<size_t>(i)]);
    }
  }
  ErrorLocation::reset();
}

TEST_CASE("T25 T30: the config may be read while another thread sets it") {
  RestoreConfig restore;
  std::thread writer([] {
    for (int i = 0; i < 2000; ++i) set_config(make_config(i % 2 ? 16 : 8, i % 2 ? at::kLong : at::kInt));
  });
  bool consistent = true;
  for (int i = 0; i < 20000; ++i) {
    const ErrorConfig& config = get_config();
    consistent = consistent && (config.num_slots == 16) == (config.flag_dtype == at::kLong);
  }
  writer.join();
  CHECK(consistent);
}

TEST_CASE("T29: the transposed layout is a setting that changes no bit and no memory") {
  ErrorConfig plain, transposed;
  transposed.use_transposed_layout = true;
  transposed.transpose_threshold = 10;
  REQUIRE(transposed.should_transpose(33));
  const auto z = at::log(at::randn({33, 5}));  // NaN for negative numbers
  const auto made = [&](const ErrorConfig& config) {
    PushOptions where;
    where.where = at::arange(33) % 3 == 0;
    where.config = config;
    const auto f = flag_nan(z, 1, {}, {config});
    return err::merge({err::push(f, err::saturated, 2, where), err::from_code(err::inf, 3, 33, {at::kCPU, {}, config})},
                      {config});
  };
  const auto f = made(transposed);
  CHECK(same_bits(f, made(plain)));
  CHECK(f.is_contiguous());
  CHECK(flags::repr(f) == flags::repr(made(plain)));
}

}  // namespace triage::test
