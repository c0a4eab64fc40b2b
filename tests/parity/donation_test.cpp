// RunOptions::donate, from a host's call to the memory of the output.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>
#include <triage/triage.h>

#include <cstdlib>
#include <limits>
#include <numeric>
#include <vector>

#include "programs.h"

namespace triage::parity {
namespace {

/// Memory of a host: 96 numbers, and tensors that describe parts of it.
class HostMemory {
 public:
  HostMemory() : numbers_(96), whole_(at::from_blob(numbers_.data(), {96})) { fill(); }
  void fill() { std::iota(numbers_.begin(), numbers_.end(), 0.0f); }
  /// (4, 8) from a number on: a blob with a storage of its own, or a view of one tensor.
  at::Tensor part(int64_t first, bool blob) {
    return blob ? at::from_blob(numbers_.data() + first, {4, 8}) : whole_.slice(0, first, first + 32).view({4, 8});
  }
  /// Whether all numbers but those of `taken` are as they were.
  bool is_kept_but_for(const std::vector<int64_t>& taken) const {
    for (int64_t i = 0; i < 96; ++i) {
      bool given = false;
      for (const int64_t first : taken) given |= i >= first && i < first + 32;
      if (!given && numbers_[static_cast<size_t>(i)] != static_cast<float>(i)) return false;
    }
    return true;
  }

 private:
  std::vector<float> numbers_;
  at::Tensor whole_;
};

bool overlap(int64_t a, int64_t b) { return std::abs(a - b) < 32; }

Policy donating(const std::string& backend, const std::string& source, const at::Tensor& host_tensor = {}) {
  RuntimeOptions options;
  options.backend = backend;
  options.log = [](const LogRecord&) {};
  Runtime runtime(options);
  if (host_tensor.defined()) runtime.define_tensor("given", host_tensor);
  return runtime.load_source(source, "donated.lua");
}

}  // namespace

TEST_CASE("donated inputs that overlap other tensors, as blobs or views, are not taken: what was not donated stays") {
  const Policy policy =
      donating("fused", "return policy {inputs = {'a', 'b'}, run = function(a, b) return a * 2 + b end}");
  HostMemory memory;
  for (int warm = 0; warm < 3; ++warm) policy.run({at::rand({4, 8}), at::rand({4, 8})}, {.donate = {0, 1}});
  int taken_somewhere = 0;
  for (const auto& donate : std::vector<std::vector<size_t>>{{0}, {1}, {0, 1}, {0, 0}})
    for (const bool blob_a : {true, false})
      for (const bool blob_b : {true, false})
        for (const int64_t first_a : {0, 1, 8, 31, 32, 64})
          for (const int64_t first_b : {0, 7, 33, 64}) {
            memory.fill();
            const at::Tensor a = memory.part(first_a, blob_a), b = memory.part(first_b, blob_b), want = a * 2 + b;
            const at::Tensor got = policy.run({a, b}, {.donate = donate})[0];
            CAPTURE(first_a);
            CAPTURE(first_b);
            CHECK(got.equal(want));
            std::vector<int64_t> taken;
            for (const size_t index : donate)
              if (!overlap(first_a, first_b)) taken.push_back(index == 0 ? first_a : first_b);
            taken_somewhere += got.data_ptr() == a.data_ptr() || got.data_ptr() == b.data_ptr();
            memory.fill();
            const at::Tensor again = policy.run({a, b}, {.donate = donate})[0];
            CHECK(again.equal(want));
            const bool in_place = again.data_ptr() == a.data_ptr() || again.data_ptr() == b.data_ptr();
            CHECK(memory.is_kept_but_for(in_place ? taken : std::vector<int64_t>{}));
          }
  CHECK(taken_somewhere > 10);
}

TEST_CASE("donated inputs that overlap params, tensors of the host, or themselves, are not taken") {
  HostMemory memory;
  const at::Tensor other = memory.part(8, true);
  const auto check = [&](const Policy& policy, const RunOptions& options, const at::Tensor& weight) {
    for (int call = 0; call < 3; ++call) {
      memory.fill();
      const at::Tensor z = memory.part(0, true), want = z * 2 + weight.clone();
      CHECK(policy.run({z}, options)[0].equal(want));
      CHECK(memory.is_kept_but_for({}));
    }
  };
  const char* by_param =
      "return policy {inputs = {'z'}, params = {w = torch.zeros({4, 8})}, run = function(z, p) return z * 2 + p.w end}";
  Policy policy = donating("fused", by_param);
  check(policy, {.donate = {0}, .params = {{"w", other}}}, other);
  policy.set_param("w", other);
  check(policy, {.donate = {0}}, other);
  const at::Tensor zeros = at::zeros({4, 8});
  check(policy, {.donate = {0}, .params = {{"w", zeros}}}, zeros);  // another call will have `other` again
  check(donating("fused", "return policy {inputs = {'z'}, run = function(z) return z * 2 + given end}", other),
        {.donate = {0}}, other);
  check(donating("fused", "return policy {inputs = {'z'}, run = function(z) return z * 2 + z * 0 end}", other),
        {.donate = {0}}, zeros);  // a graph that does not read it
  for (int call = 0; call < 3; ++call) {
    memory.fill();
    const at::Tensor row = memory.part(0, true).slice(0, 0, 1).expand({4, 8}), want = row * 2 + zeros;
    CHECK(policy.run({row}, {.donate = {0}, .params = {{"w", zeros}}})[0].equal(want));
    CHECK(memory.is_kept_but_for({}));
  }
}

TEST_CASE("donated inputs: equal results with every backend, in the memory of the input with fused, never otherwise") {
  const char* source = "return function(z) return fix(z, flag_nan_and_inf(z, 'z'), 'z', {fallback = 0.5}) end";
  for (const std::string& backend : list_backends()) {
    RuntimeOptions options;
    options.backend = backend;
    const Policy policy = Runtime(options).load_source(source, "repair.lua");
    for (const int64_t n : {5, 1, 2, 31, 32, 33}) {
      at::Tensor z = at::arange(n * 7).to(at::kFloat).view({n, 7});
      z[n / 2][3] = std::numeric_limits<float>::quiet_NaN();
      const auto expected = policy.run({z.clone()});
      for (int round = 0; round < 3; ++round) {
        const at::Tensor given = z.clone();
        const auto got = policy.run({given}, {.donate = {0}});
        CHECK(got[0].equal(expected[0]));
        CHECK(got[1].equal(expected[1]));
        if (round == 2) CHECK((got[0].data_ptr() == given.data_ptr()) == (backend == "fused"));
        policy.prepare({z.clone()});  // the first donated call that finds the other kernel asks for its own
      }
      const at::Tensor kept = z.clone();
      CHECK_FALSE(policy.run({kept})[0].is_alias_of(kept));
      CHECK(at::equal(kept.nan_to_num(7), z.nan_to_num(7)));
    }
  }
}

}  // namespace triage::parity
