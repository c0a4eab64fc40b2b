// Operations on flags against moving their bytes, and the reading of flags at the boundary against reading their bytes.
#include "table.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <runtime/flags/isa.h>
#include <triage/flags.h>

#include <cstring>

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

void operations(int64_t rows, int64_t slots, at::ScalarType carrier, double bad) {
  const ErrorConfig config = config_of(slots, carrier);
  const auto z = at::empty({rows, 1}), f = some_errors(rows, config, bad);
  PushOptions where, all;
  where.config = all.config = config;
  where.where = at::rand({rows}) < bad;
  const auto other = err::push(f, err::saturated, 2, where);
  where.where = at::rand({rows}) < bad;
  const auto codes = where.where.to(at::kLong) * err::saturated;
  auto copy = at::empty_like(f);
  const auto bytes = static_cast<int64_t>(f.nbytes());
  const auto words = [](const at::Tensor& t) { return static_cast<uint64_t*>(t.data_ptr()); };
  const std::vector<const char*> names{"move",         "move and read", "new",   "push(where)",
                                       "push(codes)",  "push_scalar",   "is_ok", "has_code",
                                       "count_errors", "max_severity",  "clear", "merge"};
  const auto timing = measure(
      {[&] {
         std::memcpy(copy.data_ptr(), f.data_ptr(), static_cast<size_t>(bytes));
         benchmark::ClobberMemory();
       },
       [&] {
         benchmark::DoNotOptimize(
             flags::cpu::on_this_machine(CopyAndRead{}, words(f), words(other), words(copy), bytes / 8));
       },
       [&] { benchmark::DoNotOptimize(err::new_(z, {config})); },
       [&] { benchmark::DoNotOptimize(err::push(f, err::saturated, 3, where)); },
       [&] { benchmark::DoNotOptimize(err::push(f, codes, 3, all)); },
       [&] {
         benchmark::DoNotOptimize(err::push_scalar(f, err::saturated, 3, {{}, config}));
       },
       [&] { benchmark::DoNotOptimize(err::is_ok(f)); }, [&] { benchmark::DoNotOptimize(err::has_code(f, err::nan)); },
       [&] { benchmark::DoNotOptimize(err::count_errors(f)); }, [&] { benchmark::DoNotOptimize(err::max_severity(f)); },
       [&] { benchmark::DoNotOptimize(err::clear(f, err::nan)); },
       [&] {
         benchmark::DoNotOptimize(err::merge({f, other}, {config}));
       }});
  // A push by codes reads them as well, eight bytes a sample of the two times `bytes` that a copy moves.
  std::vector<double> shares(names.size(), 1);
  shares[4] += 8.0 * static_cast<double>(rows) / static_cast<double>(2 * bytes);
  std::vector<size_t> limits(names.size(), 0);
  limits.back() = 1;
  print_row({rows, slots}, c10::toString(carrier), names, timing, 1.2, limits, shares);
}

// `errors` of them in the first samples.
void boundary(int64_t rows, int64_t errors) {
  const ErrorConfig config = config_of(16, at::kLong);
  auto f = err::new_t(rows, {at::kCPU, config});
  f.slice(0, 0, errors).copy_(some_errors(errors, config, 1));
  const auto plain = at::randn({static_cast<int64_t>(f.nbytes()) / 4});
  const auto timing = measure(
      {[&] { benchmark::DoNotOptimize(at::sum(plain)); }, [&] { benchmark::DoNotOptimize(flags::summary(f)); },
       [&] { benchmark::DoNotOptimize(flags::to_table(f)); }, [&] { benchmark::DoNotOptimize(flags::unpack_all(f)); },
       [&] { benchmark::DoNotOptimize(std::vector<std::vector<flags::UnpackedError>>(static_cast<size_t>(rows))); }});
  print_row({rows, 16}, errors ? "10 errors" : "clean",
            {"read", "summary", "to_table", "unpack_all", "its empty result"}, timing, 1.2);
}

void flags_table() {
  at::NoGradGuard no_grad;
  print_head("Operations on flags against moving their bytes, merge against one more read (goal: 1.2 x, above 0.5 us)",
             "move us");
  for (const int64_t rows : {32, 4096, 65536}) operations(rows, 16, at::kLong, 0.01);
  for (const auto carrier : {at::kInt, at::kFloat, at::kDouble}) operations(4096, 16, carrier, 0.01);
  for (const int64_t slots : {4, 64, 256}) operations(4096, slots, at::kLong, 0.01);
  print_head("The same where every sample has errors", "move us");
  operations(4096, 16, at::kLong, 1);
  print_head("Reading flags at the boundary against one read of their bytes", "read us");
  for (const int64_t rows : {4096, 262144}) {
    for (const int64_t errors : {0, 10}) boundary(rows, errors);
  }
}

const Table flags_operations("flags", flags_table);

}  // namespace
}  // namespace triage::bench
