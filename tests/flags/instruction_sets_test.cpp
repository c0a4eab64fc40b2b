// Kernels record in several records at once, in vectors as wide as the machine's. Here they run in all instruction sets
// that it has, against slots.h, which records in one record at a time and is held against the reference by the other
// tests.
#include "levels.h"

#include <rapidcheck.h>
#include <runtime/flags/kernels/isa.h>
#include <runtime/flags/records/slots.h>

namespace triage::test {
namespace {

using flags::cpu::Isa;

std::vector<Isa> instruction_sets() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::plain, Isa::avx2, Isa::avx512}) {
    if (isa <= flags::cpu::machine_isa()) all.push_back(isa);
  }
  return all;
}

struct With {
  explicit With(Isa isa) { flags::cpu::chosen_isa = isa; }
  ~With() { flags::cpu::chosen_isa = flags::cpu::machine_isa(); }
  With(const With&) = delete;
  With& operator=(const With&) = delete;
};

uint16_t draw_packed_slot() {
  const auto severity = *rc::gen::inRange(0, 4), code = *rc::gen::inRange(0, 16);
  const auto place = *rc::gen::elementOf(std::vector<int>{0, 1, 2, 511, 1022, 1023});
  return flags::pack_slot(code, place, severity);
}

// Clean records, some with a few entries and holes, some full; unused slots of a record hold what nobody may read or
// change.
Tensor draw_flags_with_holes(int64_t samples, const ErrorConfig& config, int clean_in_ten) {
  auto f = err::new_t(samples, {at::kCPU, config});
  auto* slots = static_cast<uint16_t*>(f.data_ptr());
  const int64_t width = config.num_words() * config.slots_per_word();
  for (int64_t i = 0; i < samples; ++i, slots += width) {
    if (*rc::gen::inRange(0, 10) < clean_in_ten) continue;
    const int64_t used = *rc::gen::elementOf(std::vector<int64_t>{1, config.num_slots / 2, config.num_slots, width});
    for (int64_t k = 0; k < used; ++k) slots[k] = draw_packed_slot();
  }
  return f;
}

// A copy of the flags in which change(record, sample) was called for each record.
template <class Change>
Tensor changed(const Tensor& f, Change change) {
  auto result = f.clone();
  const int64_t width = f.size(1) * static_cast<int64_t>(f.element_size() / sizeof(uint16_t));
  for (int64_t i = 0; i < f.size(0); ++i) change(static_cast<uint16_t*>(result.data_ptr()) + i * width, i);
  return result;
}

void check_all(const char* name, const std::vector<IValue>& arguments, const Tensor& expected) {
  for (const Isa isa : instruction_sets()) {
    const With with(isa);
    RC_ASSERT(same_bits(run(Level::kernel, name, arguments), expected));
  }
}

}  // namespace

TEST_CASE("T05 T06 T27: records are the same in every instruction set, of every width, under every policy") {
  CHECK(rc::check([] {
    const int64_t slots =
        *rc::gen::elementOf(std::vector<int64_t>{1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 24, 31, 32, 50, 64, 80});
    auto config = make_config(slots, *rc::gen::elementOf(CARRIERS), *rc::gen::elementOf(policies()));
    config.track_overflow = slots > 1 && *rc::gen::inRange(0, 8) == 0;
    const int64_t samples = *rc::gen::elementOf(std::vector<int64_t>{0, 1, 2, 31, 32, 33, 64, 129});
    const int clean = *rc::gen::elementOf(std::vector<int>{0, 5, 9});
    const auto f = draw_flags_with_holes(samples, config, clean), other = draw_flags_with_holes(samples, config, clean);
    const int64_t policy = config.policy();
    const flags::RecordingPolicy how(policy);
    const uint16_t fresh = draw_packed_slot();
    const IValue code = int64_t{(fresh & CODE_IN_SLOT) >> CODE_SHIFT}, where = int64_t{fresh >> LOCATION_SHIFT},
                 bad = int64_t{fresh & SEVERITY_MASK};
    auto mask = at::zeros({samples * 2}, at::kBool), codes = at::zeros({samples}, at::kLong);
    for (int64_t i = 0; i < samples; ++i) {
      mask.data_ptr<bool>()[2 * i] = *rc::gen::inRange(0, 10) >= clean;
      codes.data_ptr<int64_t>()[i] = *rc::gen::inRange(0, 10) < clean ? 0 : *rc::gen::inRange(-1, 18);
    }
    mask = mask.slice(0, 0, samples * 2, 2);

    check_all("push.scalar", {f, code, where, bad, slots, policy},
              changed(f, [&](uint16_t* record, int64_t) { flags::push_slot(record, slots, fresh, how); }));
    check_all("push.where", {f, code, where, bad, mask, slots, policy}, changed(f, [&](uint16_t* record, int64_t i) {
                if (mask.data_ptr<bool>()[2 * i]) flags::push_slot(record, slots, fresh, how);
              }));
    check_all("push", {f, codes, where, bad, slots, policy}, changed(f, [&](uint16_t* record, int64_t i) {
                const int64_t own = codes.data_ptr<int64_t>()[i],
                              known = own < 0 || own > 15 ? to_int(err::unknown) : own;
                if (own)
                  flags::push_slot(record, slots,
                                   flags::pack_slot(known, fresh >> LOCATION_SHIFT, fresh & SEVERITY_MASK), how);
              }));
    const auto others = other.clone();
    check_all("merge", {f, other, slots, policy}, changed(f, [&](uint16_t* record, int64_t i) {
                const int64_t width = config.num_words() * config.slots_per_word();
                flags::merge_slots(record, slots, static_cast<const uint16_t*>(others.data_ptr()) + i * width, how);
              }));
  }));
}

TEST_CASE("T07 T26: questions are answered the same in every instruction set, after many bad stretches too") {
  for (const int64_t slots : {4, 16, 64}) {
    const auto config = make_config(slots);
    auto f = err::new_t(4100, {at::kCPU, config});
    f.slice(0, 300, 2900).copy_(err::push_scalar(f.slice(0, 300, 2900), err::nan, 3, {{}, config}));
    f.slice(0, 1000, 4100, 7).copy_(err::push_scalar(f.slice(0, 1000, 4100, 7), err::inf, 4, {{}, config}));
    for (const char* name : {"is_ok", "is_err", "has_critical", "count_errors", "max_severity"}) {
      CAPTURE(name);
      const auto expected = run(Level::composite, name, {f});
      for (const Isa isa : instruction_sets()) {
        const With with(isa);
        CHECK(same_bits(run(Level::kernel, name, {f}), expected));
        CHECK(same_bits(run(Level::kernel, "has_code", {f, 2}), run(Level::composite, "has_code", {f, 2})));
      }
    }
  }
}

}  // namespace triage::test
