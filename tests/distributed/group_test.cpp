// Groups without c10d: a world of one, and ranks that something else connects.
#include "tests/distributed/ranks.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <signal.h>
#include <sys/resource.h>
#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <thread>

using namespace triage;
using test::error_of;

namespace {

struct IgnoredPipe {
  IgnoredPipe() : before(::signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredPipe() { ::signal(SIGPIPE, before); }
  void (*before)(int);
};

}  // namespace

TEST_CASE("a group of this process alone decides and reports by itself") {
  const Group group;
  CHECK(group.rank() == 0);
  CHECK(group.size() == 1);
  CHECK(agree(true, group));
  CHECK_FALSE(agree(false, group));
  CHECK_FALSE(agree(at::ones({0}, at::kBool), group));
  CHECK(agree(at::ones({1}, at::kBool), group, {.share = 0.99}));
  at::Tensor z = at::zeros({3, 2});
  z[1][0] = std::nan("");
  const ErrorReport own = report_of(flag_nan(z, Location("encoder")));
  CHECK(own.text() ==
        "3 samples, 1 with errors, worst CRITICAL\n  CRITICAL NAN @ encoder: 1\n  rank 0, sample 1: NAN @ encoder");
  CHECK(reduce(own, group) == own);
  CHECK(reduce(own, group, {.examples = 0}).examples.empty());
  CHECK(ErrorReport{}.text() == "0 samples, 0 with errors");
}

TEST_CASE("a report counts each kind of error, dropped ones apart, and names the first samples") {
  ErrorConfig config;
  config.num_slots = 4;
  config.track_overflow = true;
  at::Tensor f = err::new_t(3, {.config = config});
  for (int i = 0; i < 5; ++i) f = push(f, err::nan, Location("place" + std::to_string(i)), {.config = config});
  const ErrorReport report = report_of(f, {.examples = 2, .config = config});
  CHECK(report.samples == 3);
  CHECK(report.flagged == 3);
  CHECK(report.dropped == 6);
  CHECK(report.counts.size() == 3);
  CHECK(report.counts[0].count == 3);
  REQUIRE(report.examples.size() == 2);
  CHECK(report.examples[1].sample == 1);
  ErrorReport twice = report;
  twice += twice;
  CHECK(twice.counts.size() == 3);
  CHECK(twice.counts[0].count == 6);
  CHECK(twice.dropped == 12);
  CHECK(twice.examples.size() == 4);
  CHECK_THROWS_AS(report_of(at::zeros({3})), InputError);
}

TEST_CASE("ranks that are threads, connected by a sum of their own") {
  constexpr int count = 3;
  const IgnoredPipe pipe;
  std::barrier<> meet(count);
  std::vector<at::Tensor> given(count);
  std::vector<std::thread> threads;
  std::vector<int> decided(count, -1);
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      const Group group(rank, count, [&, rank](at::Tensor& tensor) {
        given[rank] = tensor.clone();
        meet.arrive_and_wait();
        for (int other = 0; other < count; ++other)
          if (other != rank) tensor += given[other];
        meet.arrive_and_wait();
      });
      decided[rank] = agree(rank == 1, group) + 2 * agree(false, group);
    });
  for (auto& thread : threads) thread.join();
  CHECK(decided == std::vector<int>(count, 1));
}

TEST_CASE("wrong arguments say what is right") {
  CHECK(error_of([] { Group(2, 2, [](at::Tensor&) {}); }).find("got rank 2 of 2") != std::string::npos);
  CHECK(error_of([] { Group(0, 2, [](at::Tensor&) {}); }).find("std::signal(SIGPIPE, SIG_IGN)") != std::string::npos);
  CHECK(error_of([] { Group(0, 1, nullptr); }).find("a null function") != std::string::npos);
  const Group group;
  CHECK(error_of([&] { agree(true, group, {.share = 1}); }) == "agree: expected a `share` from 0 to below 1, got 1");
  CHECK(error_of([&] { agree(true, group, {.share = std::nan("")}); }).find("got nan") != std::string::npos);
  CHECK(error_of([&] { agree(at::Tensor(), group); }).find("got an undefined tensor") != std::string::npos);
  CHECK(error_of([&] { check_same(Policy(), group); }) != "no error");
  CHECK(error_of([&] { all_reduce({}, group); }) == "all_reduce: rank 0 of 1: expected at least one tensor, got none");
  CHECK(error_of([&] {
          all_reduce({at::ones({2}), at::Tensor()}, group);
        }).find("expected dense tensors of floats or integers, got an undefined one as tensor 2") != std::string::npos);
  CHECK(error_of([&] { all_reduce({at::ones({2}).to_sparse()}, group); }).find("dense tensors") != std::string::npos);
}

TEST_CASE("all_reduce adds tensors of any dtype of numbers, in few sums, and leaves those that it was given") {
  const IgnoredPipe pipe;
  int sums = 0;
  const Group group(0, 2, [&](at::Tensor& table) {  // another rank that gives the same
    if (sums++ == 0)
      table[1] = table[0];
    else
      table.mul_(2);
  });
  const at::Tensor x = at::arange(6, at::kFloat).reshape({2, 3}).t().requires_grad_(true);
  const auto all = all_reduce({x, at::ones({2}, at::kHalf), at::ones({}, at::kShort), at::ones({0, 4})}, group);
  CHECK(sums == 3);  // compare, floats, integers
  CHECK(all[0].equal(x.detach() * 2));
  CHECK_FALSE(all[0].requires_grad());
  CHECK(x[2][1].item<float>() == 5);
  CHECK(all[1].dtype() == at::kHalf);
  CHECK(all[1].equal(at::full({2}, 2.0, at::kHalf)));
  CHECK(all[2].dtype() == at::kShort);
  CHECK(all[2].item<int64_t>() == 2);
  CHECK(all[3].sizes().vec() == std::vector<int64_t>{0, 4});
}

TEST_CASE("a sum of tensors that fails is an error, and the group refuses all that follows") {
  const IgnoredPipe pipe;
  int sums = 0;
  const Group group(0, 2, [&](at::Tensor& table) {
    if (sums++ > 0) throw std::runtime_error("the wire is cut");
    table[1] = table[0];
  });
  CHECK(error_of([&] { all_reduce({at::ones({2})}, group); }).find("the wire is cut") != std::string::npos);
  CHECK(error_of([&] { agree(true, group); }).find("an earlier operation of this group failed: all_reduce") !=
        std::string::npos);
}

TEST_CASE("an operation inside another one of the same group is refused") {
  std::optional<Group> group;
  std::string inner;
  group.emplace(0, 1, [&](at::Tensor&) {
    std::thread([&] { inner = error_of([&] { agree(true, *group); }); }).join();  // a thread that comes in between
  });
  CHECK(agree(true, *group));
  CHECK(inner.find("another thread runs an operation on this group") != std::string::npos);
}

TEST_CASE("threads that use one group at once: one operation runs, the others are refused, and the group goes on") {
  std::atomic<int> inside{0}, together{0}, done{0}, refused{0};
  std::atomic<bool> stop{false};
  Group group(0, 1, [&](at::Tensor&) {
    together += inside++ != 0;
    std::this_thread::yield();
    --inside;
  });
  Runtime runtime({.log = [](const LogRecord&) {}});
  define_dist(runtime, group);
  const auto source = [](int number) {
    return "-- " + std::to_string(number) + "\nreturn policy { run = function(z) return dist.agree(z > 0) end }";
  };
  const Policy policy = runtime.load_source(source(0));
  std::atomic<int> wrong{0};
  const auto use = [&](const std::function<bool()>& decide) {
    try {
      wrong += !decide();
      ++done;
    } catch (const InputError& error) {
      wrong += std::string(error.what()).find("another thread runs an operation") == std::string::npos;
      ++refused;
    } catch (const PolicyError& error) {
      wrong += std::string(error.what()).find("another thread runs an operation") == std::string::npos;
      ++refused;
    } catch (const std::exception&) {
      ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) use([&] { return agree(true, group) && reduce({}, group).samples == 0; });
    });
    threads.emplace_back([&] {
      while (!stop) use([&] { return policy.run({at::ones({2})})[0].item<bool>(); });
    });
  }
  threads.emplace_back([&] {
    for (int64_t step = 0; !stop; ++step) group.set_step(step);
  });
  for (int number = 1; number <= 20; ++number) {
    CHECK((policy.replace(source(number)) == Reload::swapped));
    for (const int seen = done + refused; done + refused < seen + 20;) std::this_thread::yield();
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(together == 0);
  CHECK(done > 0);
  CHECK(agree(true, group));
  CHECK(policy.run({at::ones({2})})[0].item<bool>());
}

TEST_CASE("after a failed sum the group refuses all that follows") {
  const IgnoredPipe pipe;
  const Group group(0, 2, [](at::Tensor&) { throw std::runtime_error("the wire is cut"); });
  CHECK(error_of([&] { agree(true, group); }).find("did not hear from all of them: the wire is cut.") !=
        std::string::npos);
  CHECK(error_of([&] { reduce({}, group); }).find("an earlier operation of this group failed: agree") !=
        std::string::npos);
}

TEST_CASE("a rank that the sum leaves out is an error, not one with a wrong argument") {
  const IgnoredPipe pipe;
  const Group group(0, 2, [](at::Tensor&) {});
  const std::string error = error_of([&] { agree(true, group); });
  CAPTURE(error);
  CHECK(error.find("rank 1 calls nothing") != std::string::npos);
  CHECK(error_of([&] { agree(true, group); }).find("an earlier operation of this group failed") != std::string::npos);
}

TEST_CASE("a rank with a wrong argument sees that the others are at another step, and the group refuses what follows") {
  const IgnoredPipe pipe;
  const Group group(0, 2, [](at::Tensor& table) {
    table[1] = table[0];
    table[1][1] += 1;  // the step
  });
  CHECK(error_of([&] { agree(at::zeros({3}), group); }).find("expected a bool tensor") != std::string::npos);
  const std::string error = error_of([&] { agree(true, group); });
  CAPTURE(error);
  CHECK(error.find("an earlier operation of this group failed") != std::string::npos);
  CHECK(error.find("at step 1") != std::string::npos);
}

TEST_CASE("a step that is set while an operation waits is that of the next one") {
  const IgnoredPipe pipe;
  std::optional<Group> group;
  group.emplace(0, 2, [&](at::Tensor& table) {
    group->set_step(2);
    table[1] = table[0];
  });
  group->set_step(1);
  CHECK(error_of([&] { agree(true, *group); }) == "no error");
}

TEST_CASE("two ranks of one number, and a function that does not sum, are told so") {
  const IgnoredPipe pipe;
  const Group group(0, 2, [](at::Tensor& table) { table += table.clone(); });
  CHECK(error_of([&] { agree(true, group); }).find("Two ranks have the same number") != std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__)  // which ends the process instead
TEST_CASE("a rank without memory for what the others send refuses all that follows") {
  const IgnoredPipe pipe;
  int sums = 0;
  const Group group(0, 2, [&](at::Tensor& table) {
    table[1] = table[0];
    if (sums++ == 0) table[1][2] = int64_t{1} << 29;
  });
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit none{1, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &none) == 0);
  const std::string first = error_of([&] { reduce({}, group); });
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CAPTURE(first);
  CHECK(sums == 1);
  const std::string next = error_of([&] { agree(true, group); });
  CAPTURE(next);
  CHECK(next.find("an earlier operation of this group failed: reduce: rank 0 of 2 ended on this rank before") !=
        std::string::npos);
}
#endif

TEST_CASE("what another rank sends is checked before it is read") {
  const IgnoredPipe pipe;
  for (const int64_t length : {int64_t{-1}, (int64_t{1} << 29) + 1, int64_t{1} << 62, int64_t{8}, int64_t{0}}) {
    CAPTURE(length);
    int sums = 0;
    const Group group(0, 2, [&](at::Tensor& table) {
      if (sums++ > 0) return;
      table[1] = table[0];
      table[1][2] = length;
    });
    try {
      reduce({}, group);
      FAIL("no error");
    } catch (const DistributedError& error) {
      CAPTURE(error.what());
      CHECK(std::string(error.what()).find("rank 1") != std::string::npos);
    }
  }
}

TEST_CASE("options that differ are shown with the values of both ranks") {
  const IgnoredPipe pipe;
  const Group group(0, 2, [](at::Tensor& table) {
    table[1] = table[0];
    table[1][4] = std::bit_cast<int64_t>(0.25);
  });
  const std::string error = error_of([&] { agree(true, group, {.share = 0.5}); });
  CAPTURE(error);
  CHECK(error.find("rank 1 gave 0.25 and rank 0 gave 0.5") != std::string::npos);
}

TEST_CASE("a policy without a group is told so, and names with a dot are fields of a table") {
  Runtime runtime;
  const std::string source = "return policy { run = function(z) return dist.agree(z > 0) end }";
  const std::string without = error_of([&] { runtime.load_source(source).run({at::ones({2})}); });
  CAPTURE(without);
  CHECK(without.find("there is no 'dist' in this policy: the host gives it no group of processes") !=
        std::string::npos);
  define_dist(runtime, Group());
  const Policy policy = runtime.load_source(source);
  CHECK(policy.run({at::ones({2})})[0].item<bool>());
  CHECK_FALSE(policy.run({at::zeros({2})})[0].item<bool>());
  CHECK(error_of([&] {
          runtime.load_source("return policy { run = function(z) return dist.agre(z > 0) end }").run({at::ones({2})});
        }).find("dist has no 'agre'; did you mean 'agree'?") != std::string::npos);
  for (const char* name : {"dist.", ".agree", "a.b.c", "a..b", "a.1b"})
    CHECK(error_of([&] {
            runtime.define(name, [](const std::vector<at::Tensor>& x) { return x; });
          }).find("expected a name that scripts can write") != std::string::npos);
}
