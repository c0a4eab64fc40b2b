// What a warm call allocates: its results and nothing else. All of the program's `operator new` is counted, and every
// allocation of tensor data.
#include "levels.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>

namespace {
thread_local int64_t objects = 0;  // made with operator new
thread_local int64_t buffers = 0;  // of tensor data
}  // namespace

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++objects;
  return std::malloc(size ? size : 1);
}
void* operator new(std::size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace triage::test {
namespace {

// `allocate` is const in older LibTorch, and newer has `copy_data` as well: whichever is virtual there is overridden.
struct CountingAllocator : c10::Allocator {
  explicit CountingAllocator(c10::Allocator* base) : next(base) {}
  c10::DataPtr allocate(size_t bytes) const { return counted(bytes); }
  c10::DataPtr allocate(size_t bytes) { return counted(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return next->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
  c10::DataPtr counted(size_t bytes) const {
    ++buffers;
    return next->allocate(bytes);
  }
  c10::Allocator* next;
};

struct Counts {
  int64_t objects, buffers;
};

Counts counted(const std::function<void()>& call) {
  for (int warm = 0; warm < 3; ++warm) call();
  const Counts before{objects, buffers};
  call();
  return {objects - before.objects, buffers - before.buffers};
}

struct CountedAllocations {
  CountedAllocations() : allocator(c10::GetCPUAllocator()) { c10::SetCPUAllocator(&allocator); }
  ~CountedAllocations() { c10::SetCPUAllocator(allocator.next); }
  CountingAllocator allocator;
};

using Call = std::pair<const char*, std::function<Tensor()>>;

std::vector<Call> calls_on(const Tensor& z, const Tensor& f, const Tensor& other, const PushOptions& where,
                           const Tensor& codes) {
  return {{"new", [=] { return err::new_(z); }},
          {"push(where)", [=] { return err::push(f, err::saturated, 3, where); }},
          {"push(codes)", [=] { return err::push(f, codes, 3); }},
          {"push_scalar", [=] { return err::push_scalar(f, err::saturated, 3); }},
          {"merge",
           [=] {
             return err::merge({f, other});
           }},
          {"clear", [=] { return err::clear(f, err::nan); }},
          {"is_ok", [=] { return err::is_ok(f); }},
          {"is_err", [=] { return err::is_err(f); }},
          {"all_ok", [=] { return err::all_ok(f); }},
          {"any_err", [=] { return err::any_err(f); }},
          {"has_code", [=] { return err::has_code(f, err::nan); }},
          {"has_critical", [=] { return err::has_critical(f); }},
          {"has_domain", [=] { return err::has_domain(f, Domain::numeric); }},
          {"count_errors", [=] { return err::count_errors(f); }},
          {"max_severity", [=] { return err::max_severity(f); }},
          {"get_first_code", [=] { return err::get_first_code(f); }},
          {"get_slot", [=] { return err::get_slot(f, 3); }},
          {"flag_nan", [=] { return flag_nan(z, 1); }},
          {"flag_nan_and_inf", [=] { return flag_nan_and_inf(z, 1, f); }},
          {"flag_nan, rows with a gap", [=] { return flag_nan(z.slice(1, 0, 30), 1, f); }}};
}

std::vector<Call> calls(int64_t samples) {
  auto z = at::randn({samples, 40});
  for (int64_t i = 0; i < samples; i += 5) z[i][i % 30] = 0.0f / 0.0f;
  PushOptions where;
  where.where = at::rand({samples}) < 0.3;
  const auto codes = where.where.to(at::kInt) * to_int(err::inf);  // int32: not the dtype that the kernels count in
  const auto f = flag_nan(z, 1);
  return calls_on(z, f, err::push(f, err::inf, 2, where), where, codes);
}

}  // namespace

TEST_CASE("T30: a warm call allocates its result and nothing else") {
  at::NoGradGuard no_grad;
  const CountedAllocations counting;
  for (int64_t samples : {1, 33, 200}) {
    const auto plain = counted([&] { at::empty({samples, 4}, at::kLong); });
    REQUIRE(plain.buffers == 1);
    const auto sliced = counted([z = at::randn({samples, 40})] { z.slice(1, 0, 30); });
    for (const auto& [call_name, call] : calls(samples)) {
      const std::string name = call_name;
      CAPTURE(name);
      CAPTURE(samples);
      const auto cost = counted([&call = call] { call(); });
      CHECK(cost.buffers == 1);
      CHECK(cost.objects <= plain.objects + (std::string(name).find("gap") == std::string::npos ? 0 : sliced.objects));
    }
  }
}

TEST_CASE("T30: threads that call an operation for the first time, all at once, get the same bits") {
  at::NoGradGuard no_grad;
  constexpr int threads = 8;
  const auto work = calls(65);
  std::vector<std::vector<Tensor>> results(threads);
  std::barrier start(threads);
  std::vector<std::thread> running;
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      at::NoGradGuard no_grad_here;
      start.arrive_and_wait();
      for (int repeat = 0; repeat < 20; ++repeat) {
        results[static_cast<size_t>(t)].clear();
        for (const auto& entry : work) results[static_cast<size_t>(t)].push_back(entry.second());
      }
    });
  }
  for (auto& thread : running) thread.join();
  for (size_t i = 0; i < work.size(); ++i) {
    CAPTURE(work[i].first);
    for (const auto& mine : results) CHECK(same_bits(mine[i], results[0][i]));
    CHECK(same_bits(results[0][i], work[i].second()));
  }
}

}  // namespace triage::test
