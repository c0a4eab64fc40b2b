// Kernels take rows in groups, blocks and stretches, and pass over what is empty: here are the edges of all of them,
// for every kind of width, against the composites, which know nothing of blocks.
#include "levels.h"

#include <random>

namespace triage::test {
namespace {

enum class Filled { none, last_row, some_rows, all_rows, full_rows };

// `stale` leaves location and code bits in empty slots, which count as empty but must stay where they are.
uint16_t any_slot(std::mt19937& random, bool stale) {
  const auto severity = static_cast<uint16_t>(stale ? random() % 4 : 1 + random() % 3);
  const uint16_t locations[] = {0, 1, 2, 511, 1023};
  return static_cast<uint16_t>(severity | (random() % 16) << 2 | locations[random() % 5] << 6);
}

Tensor filled_flags(int64_t samples, const ErrorConfig& config, Filled filled, std::mt19937& random) {
  std::vector<std::vector<uint16_t>> rows(static_cast<size_t>(samples));
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool touched = filled == Filled::all_rows || filled == Filled::full_rows ||
                         (filled == Filled::last_row && i + 1 == rows.size()) ||
                         (filled == Filled::some_rows && random() % 9 == 0);
    if (!touched) continue;
    const auto slots = static_cast<uint64_t>(config.num_slots);
    const uint64_t used = filled == Filled::full_rows ? slots : 1 + random() % slots;
    for (uint64_t k = 0; k < used; ++k) rows[i].push_back(any_slot(random, filled != Filled::full_rows));
  }
  return flags_of(rows, config);
}

void check_same(const std::string& name, const std::vector<IValue>& arguments) {
  CAPTURE(name);
  CHECK(same_bits(run(Level::kernel, name, arguments), run(Level::composite, name, arguments)));
}

void check_operations(const Tensor& f, const Tensor& other, const ErrorConfig& config) {
  const int64_t slots = config.num_slots, policy = config.accumulation.packed(), samples = f.size(0);
  const auto mask = at::rand({samples * 2}) < 0.1;
  const auto codes = (at::rand({samples}) < 0.1).to(at::kLong) * at::randint(-1, 18, {samples});
  for (const char* name : {"is_ok", "is_err", "has_critical", "all_ok", "any_err", "count_errors", "max_severity"})
    check_same(name, {f});
  check_same("has_code", {f, 1});
  check_same("has_domain", {f, 2});
  check_same("match", {f, 0x2A, 2});
  check_same("clear", {f, 1});
  check_same("push.scalar", {f, 1, 511, 3, slots, policy});
  check_same("push.scalar", {f, 0, 511, 3, slots, policy});
  check_same("push.where", {f, 2, 1, 2, mask.slice(0, 0, samples), slots, policy});
  check_same("push.where", {f, 2, 1, 2, mask.slice(0, 0, samples * 2, 2), slots, policy});
  for (auto dtype : {at::kLong, at::kInt, at::kShort, at::kChar})
    check_same("push", {f, codes.to(dtype), 2, 1, slots, policy});
  check_same("push", {f, at::clamp(codes, 0).to(at::kByte), 2, 1, slots, policy});
  if (slots <= 33) check_same("merge", {f, other, slots, policy});
}

}  // namespace

TEST_CASE("T05 T06 T07 T26: the edges of blocks, for all widths and fillings") {
  std::mt19937 random(7);
  size_t round = 0;
  const auto all = policies();
  for (int64_t slots : {1, 3, 4, 5, 8, 13, 16, 17, 33, 66}) {
    for (int64_t samples : {0, 1, 8, 9, 63, 64, 65, 130}) {
      for (auto filled : {Filled::none, Filled::last_row, Filled::some_rows, Filled::all_rows, Filled::full_rows}) {
        const auto config = make_config(slots, CARRIERS[round % CARRIERS.size()], all[round * 7 % all.size()]);
        ++round;
        CAPTURE(slots);
        CAPTURE(samples);
        CAPTURE(static_cast<int>(filled));
        CAPTURE(config.accumulation.packed());
        CAPTURE(c10::toString(config.flag_dtype));
        const auto f = filled_flags(samples, config, filled, random);
        check_operations(f, filled_flags(samples, config, Filled::some_rows, random), config);
      }
    }
  }
}

TEST_CASE("T05 T27: the default policy at the edges of its quick way") {
  // One full first word, holes, duplicates milder and worse, entries beyond the first word.
  const std::vector<std::vector<uint16_t>> rows = {{},
                                                   {0x0045, 0x0085, 0x00C5, 0x0105},
                                                   {0x0045, 0x0085, 0x00C5, 0x0105, 0x0145},
                                                   {0x0045, 0, 0x00C5},
                                                   {0x0044, 0x0085},
                                                   {0, 0, 0, 0, 0x0047},
                                                   {0x0045, 0x0046},
                                                   {0x0047}};
  for (int64_t slots : {5, 8, 16}) {
    for (auto carrier : CARRIERS) {
      const auto config = make_config(slots, carrier);
      const auto f = flags_of(rows, config);
      for (int64_t severity : {1, 2, 3})
        check_same("push.scalar", {f, 1, 1, severity, slots, config.accumulation.packed()});
    }
  }
}

TEST_CASE("T05 T07: records wider than any stretch, up to the last slot there can be") {
  std::mt19937 random(11);
  for (int64_t slots : {1024, 1030, 8200}) {
    const auto config = make_config(slots);
    const auto f = filled_flags(3, config, Filled::some_rows, random);
    std::vector<std::vector<uint16_t>> rows(3);
    rows[1] = std::vector<uint16_t>(static_cast<size_t>(slots), 0);
    rows[1].back() = 0x0045;
    check_same("push.scalar", {f, 1, 511, 3, slots, config.accumulation.packed()});
    check_same("clear", {flags_of(rows, config), 1});
    const auto merged = err::merge({f, flags_of(rows, config)}, {config});
    CHECK(err::has_code(merged, err::nan)[1].item<bool>());
  }
  // A record of the most slots, full but for its last one: reference.py puts the entry there.
  const auto config = make_config(MAX_SLOTS, at::kLong, {Priority::chrono, Order::first, Dedupe::none});
  std::vector<std::vector<uint16_t>> rows{std::vector<uint16_t>(static_cast<size_t>(MAX_SLOTS), 0x0045)};
  rows[0].back() = 0x0100;  // empty, though not zero
  const int64_t policy = config.accumulation.packed();
  const auto pushed = run(Level::kernel, "push.scalar", {flags_of(rows, config), 2, 1, 2, MAX_SLOTS, policy});
  CHECK(err::get_slot(pushed, MAX_SLOTS - 1).item<int64_t>() == (2 | 2 << CODE_SHIFT | 1 << LOCATION_SHIFT));
  CHECK(err::get_slot(pushed, MAX_SLOTS - 2).item<int64_t>() == 0x0045);
  CHECK(run(Level::kernel, "push.scalar", {pushed, 2, 1, 2, MAX_SLOTS, policy}).equal(pushed));  // it is full
}

TEST_CASE("T13: what stretches hold is found wherever it lies") {
  for (int64_t slots : {2, 16, 40}) {
    for (int64_t at : {0, 1, 62, 63, 64, 300, 999}) {
      const auto config = make_config(slots);
      std::vector<std::vector<uint16_t>> rows(1000);
      rows[static_cast<size_t>(at)] = {0x0044, 0x0045};  // empty, though not zero; and an error
      const auto f = flags_of(rows, config);
      const auto table = flags::to_table(f);
      REQUIRE(table.size() == 1);
      CHECK(table[0].sample == at);
      CHECK(table[0].slot == 1);
      CHECK(flags::unpack_all(f)[static_cast<size_t>(at)].size() == 1);
      CHECK(has_err(f));
      CHECK_FALSE(has_err(err::clear(f, err::nan)));
    }
  }
}

}  // namespace triage::test
