// Donated inputs: the repair happens where the data is, and only the bad rows are written. And what a call costs in
// memory.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <triage/flags.h>

#include <limits>

#include "tests/fused/programs.h"
#include "tests/memory_use.h"

namespace triage::fused {
namespace {

using test::page_faults;
using Counting = test::CountedTensorMemory;

Tensors run_donated(const Executable& executable, const Tensors& inputs, const Tensors& given) {
  return run(executable, inputs, {{}, given});
}

/// The tape for donated inputs is there after this.
void warm_up(const Executable& executable, const Tensors& inputs, size_t donated = 0) {
  Tensors copies;
  for (const at::Tensor& input : inputs) copies.push_back(input.clone());
  run_donated(executable, copies, {copies[donated]});
}

/// Memory of whole pages, a row each, of which some may be made read-only.
class Pages {
 public:
  explicit Pages(int64_t rows)
      : bytes_(static_cast<size_t>(rows) * page),
        memory_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
  }
  ~Pages() { ::munmap(memory_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  at::Tensor rows() const {
    return at::from_blob(memory_, {static_cast<int64_t>(bytes_ / page), page / 4}, at::TensorOptions(at::kFloat));
  }
  void protect(int64_t row) const {
    REQUIRE(::mprotect(static_cast<char*>(memory_) + row * static_cast<int64_t>(page), page, PROT_READ) == 0);
  }

 private:
  static constexpr int64_t page = 4096;
  size_t bytes_;
  void* memory_;
};

}  // namespace

TEST_CASE("donated: the same bits, in the memory of the input, at every batch size") {
  const Program where = [](const Tensors& in) {
    return Tensors{at::where(in[0].isfinite().all(-1, true), in[0], 0.5)};
  };
  for (const Program& program : {Program(detect_repair), Program(zscore_clip), Program(softmax_repair), where}) {
    const auto fused = compiled(program, {with_bad_rows({5, 37})});
    warm_up(*fused, {with_bad_rows({5, 37})});
    for (const int64_t n : {0, 1, 2, 31, 32, 33}) {
      const at::Tensor z = with_bad_rows({n, 37}), given = z.clone();
      const Tensors expected = run(*fused, {z}), got = run_donated(*fused, {given}, {given});
      for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(expected[i], got[i]));
      if (n > 0) CHECK(got[0].data_ptr() == given.data_ptr());
      CHECK(same_bits(z, with_bad_rows({n, 37})));
    }
  }
}

TEST_CASE("donated: rows of every shape, which lanes go through in other ways") {
  const Program program = [](const Tensors& in) {
    const at::Tensor f = flag_nan_and_inf(in[0], 1), z = err::take_ok_p(f, in[0]);
    return Tensors{z - z.mean(-1, true) * z.exp().amax(-1, true), f};
  };
  const Program over_time = [](const Tensors& in) {
    const at::Tensor f = flag_nan_and_inf(in[0], 1), z = err::take_ok_p(f, in[0]);
    return Tensors{z - z.mean(1, true) * z.exp().amax(1, true), f};
  };
  for (const Program& one : {program, over_time, Program(detect_repair)})
    for (const auto& sizes : {std::pair{3, 5}, {40, 7}, {5, 40}, {9, 100}}) {
      const int t = sizes.first, d = sizes.second;
      const Tensors examples{with_bad_rows({5, t, d})};
      const auto fused = compiled(one, examples);
      warm_up(*fused, examples);
      for (const int64_t n : {1, 2, 31, 33}) {
        const at::Tensor z = with_bad_rows({n, t, d}), given = z.clone();
        const Tensors expected = run(*fused, {z}), got = run_donated(*fused, {given}, {given});
        CHECK(got[0].data_ptr() == given.data_ptr());
        for (size_t i = 0; i < got.size(); ++i)
          CHECK_MESSAGE(same_bits(expected[i], got[i]), "result " << i << " of " << n << ", " << t << ", " << d);
      }
    }
}

TEST_CASE("donated: rows without errors are not written") {
  const auto fused = compiled(detect_repair, {with_bad_rows({8, 1024})});
  warm_up(*fused, {with_bad_rows({8, 1024})});
  const Pages pages(8);
  const at::Tensor z = pages.rows();
  z.copy_(data({8, 1024}));
  z[2][1000] = nan;
  z[5][0] = -std::numeric_limits<float>::infinity();
  const Tensors expected = detect_repair({z.clone()});
  for (const int64_t row : {0, 1, 3, 4, 6, 7}) pages.protect(row);
  const Tensors got = run_donated(*fused, {z}, {z});  // a write to a healthy row ends the program
  CHECK(got[0].data_ptr() == z.data_ptr());
  CHECK(same_bits(got[0], expected[0]));
  CHECK(got[1].equal(expected[1]));
}

TEST_CASE("donated: not where somebody else needs the memory") {
  const Program sum = [](const Tensors& in) { return Tensors{(in[0] + in[1]) * 2}; };
  const at::Tensor a = data({6, 16}), b = a * 3;
  const auto fused = compiled(sum, {a, b});
  warm_up(*fused, {a, b}, 0);
  warm_up(*fused, {a, b}, 1);
  const auto untouched = [&](const Tensors& inputs, const at::Tensor& given) {
    const Tensors before{inputs[0].clone(), inputs[1].clone()};
    const at::Tensor got = run_donated(*fused, inputs, {given})[0];
    CHECK(got.equal(sum(before)[0]));
    CHECK_FALSE(got.is_alias_of(given));
    CHECK(inputs[0].equal(before[0]));
    CHECK(inputs[1].equal(before[1]));
  };
  at::Tensor z = a.clone();
  untouched({z, z}, z);                // given twice
  untouched({z, z.view({6, 16})}, z);  // a view of it
  const at::Tensor wide = data({7, 16});
  untouched({wide.slice(0, 0, 6), wide.slice(0, 1)}, wide.slice(0, 0, 6));  // parts of one memory
  const at::Tensor gaps = data({6, 32}).slice(1, 0, 16);
  untouched({gaps, b}, gaps);
  const at::Tensor leaf = a.clone().requires_grad_();
  const at::NoGradGuard no_grad;
  untouched({leaf, b}, leaf);
  for (const size_t i : {0, 1}) {  // and where nothing speaks against it, it is taken
    const Tensors own{a.clone(), b.clone()};
    const at::Tensor got = run_donated(*fused, own, {own[i]})[0];
    CHECK(got.data_ptr() == own[i].data_ptr());
    CHECK(got.equal(sum({a, b})[0]));
  }
}

TEST_CASE("donated: only in the call that says so, and not what the graph hands back") {
  const at::Tensor z = with_bad_rows({6, 16});
  const auto fused = compiled(detect_repair, {z});
  warm_up(*fused, {z});
  const at::Tensor given = z.clone();
  CHECK_FALSE(run(*fused, {given})[0].is_alias_of(given));
  CHECK(run_donated(*fused, {given}, {given})[0].is_alias_of(given));
  const Program untouched = [](const Tensors& in) { return Tensors{in[0], in[0].relu() * 2}; };
  const auto passes = compiled(untouched, {z});
  const at::Tensor mine = data({6, 16});
  const Tensors got = run_donated(*passes, {mine}, {mine});
  CHECK(same_bits(got[0], data({6, 16})));
}

TEST_CASE("memory: a call takes its outputs and nothing else, and a warm one nothing at all") {
  Counting counting;
  for (const Program& program : {Program(detect_repair), Program(zscore_clip), Program(softmax_repair)}) {
    const at::Tensor z = with_bad_rows({512, 300});
    const auto fused = compiled(program, {z});
    const size_t before = counting.now();
    counting.begin();
    Tensors outputs = run(*fused, {z});
    size_t bytes = 0;
    for (const at::Tensor& output : outputs) bytes += output.nbytes();
    CHECK(counting.highest() - before <= bytes + bytes / 100);
    outputs.clear();
    const size_t warm = counting.now();
    counting.begin();
    for (int call = 0; call < 5; ++call) run(*fused, {z});
    CHECK(counting.highest() - warm <= 512 * 4 * 8);  // the flags, which are small
    warm_up(*fused, {z});
    const size_t idle = counting.now();
    at::Tensor own = z.clone();
    const size_t with_input = counting.now();
    counting.begin();
    run_donated(*fused, {own}, {own});
    CHECK(counting.highest() - with_input <= 512 * 4 * 8);
    CHECK(with_input - idle == z.nbytes());
  }
}

TEST_CASE("memory: warm calls touch no fresh pages") {
  const at::Tensor z = with_bad_rows({1024, 1024});  // 1024 pages
  const auto fused = compiled(zscore_clip, {z});
  for (int call = 0; call < 3; ++call) run(*fused, {z});
  const int64_t before = page_faults();
  for (int call = 0; call < 20; ++call) run(*fused, {z});
  CHECK(page_faults() - before < 1000);  // of 20,480 that fresh outputs would take; sanitizers have pages of their own
}

}  // namespace triage::fused
