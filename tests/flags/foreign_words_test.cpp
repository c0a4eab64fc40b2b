// Flags from elsewhere: any bits in any slot, those that the configuration does not use too. Every question and every
// reader, on every level, says what the rules of the layout say of all the slots.
#include "levels.h"

#include <rapidcheck.h>
#include <triage/error_report.h>

#include <algorithm>
#include <bit>

namespace triage::test {
namespace {

using Slots = std::vector<uint16_t>;

/// What the layout says of one sample.
struct Reference {
  explicit Reference(const Slots& slots) : all(slots) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(live),
                 [](uint16_t slot) { return severity_of(slot) != 0; });
  }
  bool has_code(int code) const {
    return std::any_of(live.begin(), live.end(), [=](uint16_t slot) { return code_of(slot) == code; });
  }
  bool has_domain(int domain) const {
    return std::any_of(live.begin(), live.end(), [=](uint16_t slot) { return code_of(slot) >> 2 == domain; });
  }
  int max_severity() const {
    int most = 0;
    for (const uint16_t slot : live) most = std::max(most, severity_of(slot));
    return most;
  }
  Slots cleared(int code) const {
    Slots left = all;
    std::replace_if(
        left.begin(), left.end(), [=](uint16_t slot) { return severity_of(slot) && code_of(slot) == code; },
        uint16_t{0});
    return left;
  }
  Slots all, live;
};

struct Foreign {
  ErrorConfig config;
  std::vector<Slots> samples;
  Tensor f;
};

Foreign draw_foreign() {
  Foreign drawn;
  drawn.config.flag_dtype = *rc::gen::elementOf(CARRIERS);
  drawn.config.num_slots =
      *rc::gen::weightedOneOf<int64_t>({{4, rc::gen::inRange<int64_t>(1, 10)}, {1, rc::gen::inRange<int64_t>(10, 70)}});
  const auto width = static_cast<size_t>(drawn.config.num_words() * drawn.config.slots_per_word());
  const int samples = *rc::gen::elementOf(std::vector<int>{0, 1, 2, 5, 33});
  for (int i = 0; i < samples; ++i) {
    Slots slots;
    const bool sparse = *rc::gen::arbitrary<bool>();
    while (slots.size() < width) {
      const bool empty = sparse && *rc::gen::inRange(0, 4) != 0;
      slots.push_back(empty ? uint16_t{0} : static_cast<uint16_t>(*rc::gen::inRange(0, 0x10000)));
    }
    drawn.samples.push_back(std::move(slots));
  }
  drawn.f = flags_of(drawn.samples, drawn.config);
  if (*rc::gen::arbitrary<bool>()) drawn.f = drawn.f.t().contiguous().t();
  return drawn;
}

template <class Answer>
Tensor answers(const Foreign& drawn, at::ScalarType dtype, Answer answer) {
  std::vector<int64_t> values;
  for (const Slots& slots : drawn.samples) values.push_back(static_cast<int64_t>(answer(Reference(slots))));
  return at::tensor(values, at::kLong).to(dtype);
}

void check_question(const std::string& name, const std::vector<IValue>& arguments, const Tensor& expected) {
  for (const Level level : LEVELS) RC_ASSERT(same_bits(run(level, name, arguments), expected));
}

using flags::TableRow;
using flags::UnpackedError;

void check_entry(const UnpackedError& error, uint16_t slot) {
  RC_ASSERT(to_int(error.severity) == severity_of(slot));
  RC_ASSERT(to_int(error.code) == code_of(slot));
  RC_ASSERT(error.location == location_of(slot));
}

}  // namespace

TEST_CASE("T07 T10: whatever the words, every question says what all their slots say") {
  CHECK(rc::check([] {
    const Foreign drawn = draw_foreign();
    const Tensor& f = drawn.f;
    const ConfigOptions own{drawn.config};
    const int code = *rc::gen::inRange(0, 16), domain = code >> 2;
    const auto ok = answers(drawn, at::kBool, [](const Reference& r) { return r.live.empty(); });
    const auto coded = answers(drawn, at::kBool, [&](const Reference& r) { return r.has_code(code); });
    const auto in_domain = answers(drawn, at::kBool, [&](const Reference& r) { return r.has_domain(domain); });
    const auto critical = answers(drawn, at::kBool, [](const Reference& r) { return r.max_severity() == 3; });
    const auto count = answers(drawn, at::kInt, [](const Reference& r) { return r.live.size(); });
    const auto worst = answers(drawn, at::kLong, [](const Reference& r) { return r.max_severity(); });
    check_question("is_ok", {f}, ok);
    check_question("is_err", {f}, ok.logical_not());
    check_question("all_ok", {f}, ok.all());
    check_question("any_err", {f}, ok.logical_not().any());
    check_question("has_code", {f, code}, coded);
    check_question("match", {f, int64_t{1} << code, 0}, coded);
    check_question("has_domain", {f, domain}, in_domain);
    check_question("has_critical", {f}, critical);
    check_question("count_errors", {f}, count);
    check_question("max_severity", {f}, worst);
    check_question("get_first_code", {f},
                   answers(drawn, at::kInt, [](const Reference& r) { return code_of(r.all[0]); }));
    check_question("get_first_location", {f},
                   answers(drawn, at::kInt, [](const Reference& r) { return location_of(r.all[0]); }));
    check_question("get_first_severity", {f},
                   answers(drawn, at::kInt, [](const Reference& r) { return severity_of(r.all[0]); }));
    const auto at_slot = *rc::gen::inRange<int64_t>(0, f.size(1) * drawn.config.slots_per_word());
    check_question("get_slot", {f, at_slot},
                   answers(drawn, at::kLong, [&](const Reference& r) { return r.all[static_cast<size_t>(at_slot)]; }));
    std::vector<Slots> cleared;
    for (const Slots& slots : drawn.samples) cleared.push_back(Reference(slots).cleared(code));
    check_question("clear", {f, code}, flags_of(cleared, drawn.config));

    const Code asked = code_from(code);
    RC_ASSERT(err::is_ok(f, own).equal(ok) && err::is_err(f, own).equal(ok.logical_not()));
    RC_ASSERT(err::has_code(f, asked, own).equal(coded) && find(f, asked, own).equal(coded));
    RC_ASSERT(err::has_domain(f, static_cast<Domain>(domain), own).equal(in_domain));
    RC_ASSERT(err::count_errors(f, own).equal(count) && err::max_severity(f, own).equal(worst));
    RC_ASSERT(same_bits(err::clear(f, asked, own), flags_of(cleared, drawn.config)));
    RC_ASSERT(has_err(f, own) == ok.logical_not().any().item<bool>());
  }));
}

TEST_CASE("T13: whatever the words, every reader sees all their slots") {
  CHECK(rc::check([] {
    const Foreign drawn = draw_foreign();
    const InspectOptions own{drawn.config};
    const auto all = flags::unpack_all(drawn.f, own);
    const std::vector<TableRow> table = flags::to_table(drawn.f, own);
    RC_ASSERT(all.size() == drawn.samples.size());
    size_t row = 0;
    int64_t errors = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Slots& slots = drawn.samples[i];
      const Slots live = Reference(slots).live;
      RC_ASSERT(all[i] == flags::unpack(drawn.f, static_cast<int64_t>(i), own));
      RC_ASSERT(all[i].size() == live.size());
      for (size_t k = 0; k < live.size(); ++k, ++row) {
        check_entry(all[i][k], live[k]);
        RC_ASSERT(row < table.size() && table[row].sample == static_cast<int64_t>(i));
        RC_ASSERT(slots[static_cast<size_t>(table[row].slot)] == live[k]);
        RC_ASSERT(table[row].error == all[i][k]);
      }
      errors += static_cast<int64_t>(live.size());
    }
    RC_ASSERT(row == table.size());
    int64_t summed = 0;
    for (const auto& [place, codes] : flags::summary(drawn.f, own))
      for (const auto& [name, count] : codes) summed += count;
    RC_ASSERT(summed == errors);
    const std::string head = errors == 0 ? ", no errors" : ", " + std::to_string(errors) + " errors: ";
    RC_ASSERT(flags::repr(drawn.f, own).find(head) != std::string::npos);
    const ErrorReport report = report_of(drawn.f, {.config = drawn.config});
    int64_t reported = 0;
    for (const auto& count : report.counts) reported += count.count;
    RC_ASSERT(reported == errors);
  }));
}

}  // namespace triage::test
