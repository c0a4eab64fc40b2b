// The golden sequences of tests/data/flags.txt (format: tests/data/pack_flags_vectors.py), on all levels.
#include "levels.h"
#include "tests/paths.h"

#include <runtime/flags/composites/composite_slots.h>

#include <fstream>
#include <map>
#include <sstream>

namespace triage::test {
namespace {

const std::map<std::string, Priority> PRIORITY{
    {"CHRONO", Priority::chrono}, {"SEVERITY", Priority::severity}, {"LOCATION", Priority::location}};
const std::map<std::string, Order> ORDER{{"FIRST", Order::first}, {"LAST", Order::last}};
const std::map<std::string, Dedupe> DEDUPE{
    {"NONE", Dedupe::none}, {"CODE", Dedupe::code}, {"LOCATION", Dedupe::location}, {"UNIQUE", Dedupe::unique}};
const std::map<std::string, at::ScalarType> CARRIER{
    {"int64", at::kLong}, {"int32", at::kInt}, {"float32", at::kFloat}, {"float64", at::kDouble}};

struct Sequences {
  std::vector<Level> levels;
  ErrorConfig config;
  int64_t samples = 0;
  Tensor flags[std::size(LEVELS)];  // as each level has it
};

std::vector<uint16_t> slots_of(const std::string& record) {
  std::vector<uint16_t> slots;
  if (record == "-") return slots;
  for (size_t i = 0; i < record.size(); i += 4)
    slots.push_back(static_cast<uint16_t>(std::stoi(record.substr(i, 4), nullptr, 16)));
  return slots;
}

Tensor read_flags(std::istringstream& in, const Sequences& now) {
  std::vector<std::vector<uint16_t>> samples;
  for (std::string record; in >> record;) samples.push_back(slots_of(record));
  REQUIRE(static_cast<int64_t>(samples.size()) == now.samples);
  return flags_of(samples, now.config);
}

Sequences start(std::istringstream& in, const std::vector<Level>& levels) {
  Sequences now;
  now.levels = levels;
  std::string priority, order, dedupe, carrier;
  in >> priority >> order >> dedupe >> now.config.num_slots >> carrier >> now.samples;
  now.config.accumulation = {PRIORITY.at(priority), ORDER.at(order), DEDUPE.at(dedupe)};
  now.config.flag_dtype = CARRIER.at(carrier);
  NewOptions options;
  options.config = now.config;
  for (auto& f : now.flags) {
    f = err::new_t(now.samples, options);
    flags::KnownRows::note(f, flags::composite::empty_rows(now.config.num_words(), now.config.flag_dtype));
  }
  return now;
}

void step(Sequences& now, const std::string& what, std::istringstream& in) {
  const int64_t slots = now.config.num_slots;
  const int64_t policy = now.config.accumulation.packed();
  int64_t location = 0, severity = 0, code = 0;
  if (what == "codes" || what == "where" || what == "scalar") in >> location >> severity;
  std::vector<IValue> tail;
  std::string name = what;
  if (what == "codes") {
    std::vector<int64_t> codes;
    for (int64_t c = 0; in >> c;) codes.push_back(c);
    name = "push";
    tail = {at::tensor(codes), location, severity, slots, policy};
  } else if (what == "where") {
    std::string bits;
    in >> code >> bits;
    auto mask = at::zeros({now.samples}, at::kBool);
    for (size_t i = 0; i < bits.size(); ++i) mask[static_cast<int64_t>(i)] = bits[i] == '1';
    name = "push.where";
    tail = {code, location, severity, mask, slots, policy};
  } else if (what == "scalar") {
    in >> code;
    name = "push.scalar";
    tail = {code, location, severity, slots, policy};
  } else if (what == "merge") {
    tail = {read_flags(in, now), slots, policy};
  } else {
    REQUIRE(what == "clear");
    in >> code;
    tail = {code};
  }
  for (Level level : now.levels) {
    auto& f = now.flags[static_cast<int>(level)];
    std::vector<IValue> arguments{f};
    arguments.insert(arguments.end(), tail.begin(), tail.end());
    f = run(level, name, arguments);
  }
}

// One sample's answers, against what all queries say on both levels.
void ask(const Sequences& now, int64_t sample, std::istringstream& in) {
  int64_t ok = 0, count = 0, worst = 0, critical = 0, fallback = 0, code = 0, location = 0, severity = 0;
  std::string codes, domains;
  in >> ok >> count >> worst >> codes >> critical >> domains >> fallback >> code >> location >> severity;
  for (Level level : now.levels) {
    if (level == Level::other_device && sample > 0)
      continue;  // whole batches are compared elsewhere; here it takes time
    const Tensor f = now.flags[static_cast<int>(level)];
    auto value = [&](const char* name, std::vector<IValue> more = {}) {
      more.insert(more.begin(), f);
      return run(level, name, more)[sample].to(at::kLong).item<int64_t>();
    };
    CHECK(value("is_ok") == ok);
    CHECK(value("is_err") == !ok);
    CHECK(value("count_errors") == count);
    CHECK(value("max_severity") == worst);
    CHECK(value("has_critical") == critical);
    CHECK(value("has_code", {to_int(err::fallback_value)}) == fallback);
    CHECK(value("get_first_code") == code);
    CHECK(value("get_first_location") == location);
    CHECK(value("get_first_severity") == severity);
    const int64_t code_set = std::stoll(codes, nullptr, 16), domain_set = std::stoll(domains, nullptr, 16);
    for (int64_t c = 0; c < 16; ++c) CHECK(value("has_code", {c}) == (code_set >> c & 1));
    for (int64_t d = 0; d < 4; ++d) CHECK(value("has_domain", {d}) == (domain_set >> d & 1));
  }
}

}  // namespace

namespace {

void check_sequences(const std::vector<Level>& levels) {
  std::ifstream file(triage::test::source_dir() + "/tests/data/flags.txt");
  REQUIRE(file.good());
  Sequences now;
  int64_t cases = 0, steps = 0, sample = 0, line_number = 0;
  for (std::string line; std::getline(file, line);) {
    CAPTURE(++line_number);
    std::istringstream in(line);
    std::string what;
    in >> what;
    if (what == "case") {
      now = start(in, levels);
      sample = 0;
      ++cases;
    } else if (what == "=") {
      const Tensor expected = read_flags(in, now);
      for (Level level : levels) CHECK(same_bits(now.flags[static_cast<int>(level)], expected));
    } else if (what == "?") {
      ask(now, sample++, in);
    } else {
      step(now, what, in);
      ++steps;
    }
  }
  CHECK(cases == 1372);
  CHECK(steps > 10000);
}

}  // namespace

TEST_CASE("T02 T05 T06 T07 T10 T26 T27: every golden sequence, on all levels") {
  check_sequences({std::begin(LEVELS), std::end(LEVELS)});
}

TEST_CASE("T02 T05 T06 T07 T10 T26 T27: every golden sequence, with what is known of records that were empty") {
  const flags::KnownRows known(flags::KnownRows::Writes::none);
  check_sequences({Level::composite});
}

}  // namespace triage::test
