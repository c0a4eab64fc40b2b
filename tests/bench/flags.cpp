// Operations on flags against moving their bytes, and the reading of flags at the boundary against reading their bytes.
#include "table.h"
#include "work.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <runtime/flags/kernels/isa.h>
#include <triage/flags.h>

#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace triage::bench {
namespace {

// Copies `from` and reads `other` in the same pass: what a merge of two clean batches cannot do without.
struct CopyAndRead {
  template <int bytes>
  TRIAGE_INLINE uint64_t run(const uint64_t* from, const uint64_t* other, uint64_t* to, int64_t count) const {
    uint64_t any = 0;
#pragma omp simd reduction(| : any)
    for (int64_t i = 0; i < count; ++i) {
      to[i] = from[i];
      any |= other[i];
    }
    return any;
  }
};

ErrorConfig config_of(int64_t slots, at::ScalarType carrier) {
  ErrorConfig config;
  config.num_slots = slots;
  config.flag_dtype = carrier;
  return config;
}

// New flags for `rows` samples of which the share `bad` has one error.
at::Tensor some_errors(int64_t rows, const ErrorConfig& config, double bad) {
  PushOptions where;
  where.config = config;
  where.where = at::rand({rows}) < bad;
  return err::push(err::new_(at::empty({rows, 1}), {config}), err::nan, 1, where);
}

struct Operation {
  const char* name;
  std::function<void()> run;
  double moved = 1;  // times the limit
};

/// Adds a line for each operation, against `limit`.
void add_lines(const Add& add, const std::string& shape, const char* limit_name, const std::function<void()>& limit,
               const std::vector<Operation>& operations, const std::string& suffix) {
  std::vector<std::function<void()>> candidates = {limit};
  for (const Operation& operation : operations) candidates.push_back(operation.run);
  const Timing timing = measure(candidates);
  for (size_t i = 0; i < operations.size(); ++i) {
    Line line = line_of(timing, i + 1, operations[i].name + suffix, shape, limit_name, 1.2, 0.5);
    line.limit_took *= operations[i].moved;
    line.ratio /= operations[i].moved;
    add(line);
  }
}

void measure_operations(const Add& add, int64_t rows, int64_t slots, at::ScalarType carrier, double bad) {
  const ErrorConfig config = config_of(slots, carrier);
  const auto z = at::empty({rows, 1}), f = some_errors(rows, config, bad);
  PushOptions where, all;
  where.config = all.config = config;
  where.where = at::rand({rows}) < bad;
  const auto other = err::push(f, err::saturated, 2, where);
  where.where = at::rand({rows}) < bad;
  const auto codes = where.where.to(at::kLong) * to_int(err::saturated);
  auto copy = at::empty_like(f);
  const auto bytes = static_cast<int64_t>(f.nbytes());
  const auto words = [](const at::Tensor& t) { return static_cast<uint64_t*>(t.data_ptr()); };
  const std::string shape = shape_name(rows, slots);
  const std::string suffix =
      (carrier == at::kLong ? "" : std::string(", ") + c10::toString(carrier)) + (bad == 1 ? ", every sample bad" : "");
  add_lines(
      add, shape, "move",
      [&] {
        std::memcpy(copy.data_ptr(), f.data_ptr(), static_cast<size_t>(bytes));
        benchmark::ClobberMemory();
      },
      {{"new", [&] { benchmark::DoNotOptimize(err::new_(z, {config})); }},
       {"push(where)", [&] { benchmark::DoNotOptimize(err::push(f, err::saturated, 3, where)); }},
       // reads the codes as well, eight bytes a sample of the two times `bytes` that a copy moves
       {"push(codes)", [&] { benchmark::DoNotOptimize(err::push(f, codes, 3, all)); },
        1 + 8.0 * static_cast<double>(rows) / static_cast<double>(2 * bytes)},
       {"push_scalar",
        [&] {
          benchmark::DoNotOptimize(err::push_scalar(f, err::saturated, 3, {{}, config}));
        }},
       {"is_ok", [&] { benchmark::DoNotOptimize(err::is_ok(f)); }},
       {"has_code", [&] { benchmark::DoNotOptimize(err::has_code(f, err::nan)); }},
       {"count_errors", [&] { benchmark::DoNotOptimize(err::count_errors(f)); }},
       {"max_severity", [&] { benchmark::DoNotOptimize(err::max_severity(f)); }},
       {"clear", [&] { benchmark::DoNotOptimize(err::clear(f, err::nan)); }}},
      suffix);
  add_lines(
      add, shape, "move, read",
      [&] {
        benchmark::DoNotOptimize(
            flags::cpu::on_this_machine(CopyAndRead{}, words(f), words(other), words(copy), bytes / 8));
      },
      {{"merge",
        [&] {
          benchmark::DoNotOptimize(err::merge({f, other}, {config}));
        }}},
      suffix);
}

void measure_flags(const Add& add) {
  at::NoGradGuard no_grad;
  for (const int64_t rows : {32, 4096, 65536}) measure_operations(add, rows, 16, at::kLong, 0.01);
  for (const auto carrier : {at::kInt, at::kFloat, at::kDouble}) measure_operations(add, 4096, 16, carrier, 0.01);
  for (const int64_t slots : {4, 64, 256}) measure_operations(add, 4096, slots, at::kLong, 0.01);
  measure_operations(add, 4096, 16, at::kLong, 1);
}

// Reading flags at the boundary: `errors` of them in the first samples.
void measure_reading(const Add& add) {
  at::NoGradGuard no_grad;
  for (const int64_t rows : {4096, 262144}) {
    for (const int64_t errors : {0, 10}) {
      const ErrorConfig config = config_of(16, at::kLong);
      auto f = err::new_t(rows, {at::kCPU, config});
      f.slice(0, 0, errors).copy_(some_errors(errors, config, 1));
      const auto plain = at::randn({static_cast<int64_t>(f.nbytes()) / 4});
      const Timing timing = measure(
          {[&] { benchmark::DoNotOptimize(at::sum(plain)); }, [&] { benchmark::DoNotOptimize(flags::summary(f)); },
           [&] { benchmark::DoNotOptimize(flags::to_table(f)); },
           [&] { benchmark::DoNotOptimize(flags::unpack_all(f)); },
           [&] {
             benchmark::DoNotOptimize(std::vector<std::vector<flags::UnpackedError>>(static_cast<size_t>(rows)));
           }});
      const char* names[] = {"", "summary", "to_table", "unpack_all", "... its empty result"};
      for (size_t i = 1; i < std::size(names); ++i)
        add(line_of(timing, i, names[i] + std::string(errors ? ", 10 errors" : ", clean"), shape_name(rows, 16),
                    "read"));
    }
  }
}

// The table of TorchGuard's README: records of several widths for 32 samples, and detection in (32, 512) data as its
// `push`.
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

const Table operations("flags",
                       "Operations on flags, one in a hundred samples bad, against moving their bytes, merge against "
                       "one more read (us; the floor of "
                       "an operation is 0.5)",
                       measure_flags);
const Table reading("reading", "Reading flags at the boundary, against one read of their bytes (us)", measure_reading);
const Table slots("slots", "Operations by the slots of a record, 32 samples (us)", measure_slots);

}  // namespace
}  // namespace triage::bench
