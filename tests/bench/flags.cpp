// Operations on flags against moving their bytes.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/flags.h>

#include <cstring>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

struct Operation {
  const char* name;
  std::function<void()> run;
  double moved = 1;  // against one copy of the flags
};

void measure_flags(const Add& add) {
  at::NoGradGuard no_grad;
  for (const int64_t rows : {32, 4096}) {
    const auto z = noise(rows, 64);
    const auto f = flag_nan_and_inf(z, 1), other = err::push(f, err::saturated, 2, {{}, at::rand({rows}) < 0.02, {}});
    PushOptions where;
    where.where = at::rand({rows}) < 0.02;
    const auto codes = where.where.to(at::kLong) * err::saturated;
    auto copy = at::empty_like(f);
    const std::vector<Operation> operations = {
        {"new", [&] { benchmark::DoNotOptimize(err::new_(z)); }},
        {"push(where)", [&] { benchmark::DoNotOptimize(err::push(f, err::saturated, 3, where)); }},
        {"push(codes)", [&] { benchmark::DoNotOptimize(err::push(f, codes, 3)); }, 1.125},  // eight bytes a sample
        {"push_scalar", [&] { benchmark::DoNotOptimize(err::push_scalar(f, err::saturated, 3)); }},
        {"merge",
         [&] {
           benchmark::DoNotOptimize(err::merge({f, other}));
         },
         1.5},  // reads a second flags tensor
        {"is_ok", [&] { benchmark::DoNotOptimize(err::is_ok(f)); }},
        {"has_code", [&] { benchmark::DoNotOptimize(err::has_code(f, err::nan)); }},
        {"count_errors", [&] { benchmark::DoNotOptimize(err::count_errors(f)); }},
        {"max_severity", [&] { benchmark::DoNotOptimize(err::max_severity(f)); }},
        {"clear", [&] { benchmark::DoNotOptimize(err::clear(f, err::nan)); }}};
    std::vector<std::function<void()>> candidates = {[&] {
      std::memcpy(copy.data_ptr(), f.data_ptr(), static_cast<size_t>(f.numel()) * 8);
      benchmark::ClobberMemory();
    }};
    for (const Operation& operation : operations) candidates.push_back(operation.run);
    const Timing timing = measure(candidates);
    for (size_t i = 0; i < operations.size(); ++i) {
      Line line = line_of(timing, i + 1, operations[i].name, shape_name(rows, 16), "move", 1.2, 0.5);
      line.limit_took *= operations[i].moved;
      line.ratio /= operations[i].moved;
      add(line);
    }
  }
}

// The table of TorchGuard's README: records of several widths for 32 samples, and detection in (32, 512) data as its `push`.
void measure_slots(const Add& add) {
  at::NoGradGuard no_grad;
  const auto z = noise(32, 512);
  for (const int64_t slots : {4, 16, 64, 256}) {
    ErrorConfig config;
    config.num_slots = slots;
    const auto f = flag_nan(z, 1, {}, {config}), other = flag_inf(z, 2, {}, {config});
    const auto timing = measure({[&] { benchmark::DoNotOptimize(err::new_(z, {config})); },
                                 [&] { benchmark::DoNotOptimize(flag_nan(z, 3, f, {config})); },
                                 [&] {
                                   benchmark::DoNotOptimize(err::merge({f, other}, {config}));
                                 },
                                 [&] { benchmark::DoNotOptimize(err::is_ok(f)); }});
    const char* names[] = {"new", "push", "merge", "is_ok"};
    for (size_t i = 0; i < std::size(names); ++i) add(line_of(timing, i, names[i], std::to_string(slots) + " slots"));
  }
}

const Table operations("flags", "Operations on flags against moving their bytes (us; the floor of an operation is 0.5)",
                       measure_flags);
const Table slots("slots", "Operations by the slots of a record, 32 samples (us)", measure_slots);

}  // namespace
}  // namespace triage::bench
