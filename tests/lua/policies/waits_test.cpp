// Policies that call each other through functions of the host, on several threads: no wait is for ever.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <array>
#include <atomic>
#include <barrier>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using triage::Policy;
using triage::Runtime;
using Tensors = std::vector<at::Tensor>;

/// Policies of one Runtime, each of which calls the function `go` of the host with its number, when it runs.
class Callers {
 public:
  explicit Callers(size_t count, bool with_state = false, triage::RuntimeOptions options = {})
      : runtime_(silent(std::move(options))) {
    runtime_.define("go", [this](const Tensors& given) {
      when_inside(static_cast<size_t>(given.at(1).item<int64_t>()));
      return Tensors{given[0]};
    });
    for (size_t i = 0; i < count; ++i) {
      const std::string name = "p" + std::to_string(i);
      const std::string state = with_state ? "state = {n = {shape = {}}}, " : "";
      const std::string rest = with_state ? "z, s) local y = " : "z) local y = ";
      const std::string result = with_state ? "return y, {n = s.n + 1}" : "return y";
      policies.push_back(runtime_.load_source("return policy{name = '" + name + "', inputs = {'z'}, outputs = {'z'}, " +
                                                  state + "run = function(" + rest + "go(z, torch.tensor(" +
                                                  std::to_string(i) + ")) " + result + " end}",
                                              name + ".lua"));
    }
  }

  void call(size_t policy, const triage::RunOptions& options = {}) { policies[policy].run({at::ones({2})}, options); }
  Runtime& runtime() { return runtime_; }

  std::vector<Policy> policies;
  std::function<void(size_t policy)> when_inside;

 private:
  static triage::RuntimeOptions silent(triage::RuntimeOptions options) {
    options.log = [](const triage::LogRecord&) {};
    return options;
  }
  Runtime runtime_;
};

/// What calls on threads of their own threw.
std::vector<std::string> errors_of(const std::vector<std::function<void()>>& calls) {
  std::mutex mutex;
  std::vector<std::string> errors;
  std::vector<std::thread> threads;
  for (const auto& call : calls)
    threads.emplace_back([&] {
      try {
        call();
      } catch (const triage::Error& error) {
        const std::lock_guard lock(mutex);
        errors.emplace_back(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

bool tells(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("policies that call each other in a ring, from as many threads: one gets an error that names all of them") {
  for (const size_t count : {2u, 3u, 5u}) {
    Callers callers(count);
    for (size_t i = 0; i < count; ++i) callers.when_inside = [](size_t) {}, callers.call(i);  // each was called once
    std::barrier all_inside(static_cast<std::ptrdiff_t>(count));
    static thread_local int depth;
    callers.when_inside = [&](size_t policy) {
      if (++depth == 1) all_inside.arrive_and_wait();
      if (depth == 1) callers.call((policy + 1) % count);
      --depth;
    };
    std::vector<std::function<void()>> calls;
    for (size_t i = 0; i < count; ++i) calls.emplace_back([&, i] { depth = 0, callers.call(i); });
    const std::vector<std::string> errors = errors_of(calls);
    REQUIRE(errors.size() == 1);
    CHECK_MESSAGE(tells(errors[0], "would wait for each other for ever"), errors[0]);
    for (size_t i = 0; i < count; ++i)
      CHECK_MESSAGE(tells(errors[0], "policy 'p" + std::to_string(i) + "'"), errors[0]);
  }
}

TEST_CASE("a thread that waits for a state key is part of a ring") {
  Callers callers(2, /*with_state=*/true);
  std::barrier both_inside(2);
  static thread_local int depth;
  callers.when_inside = [&](size_t policy) {
    if (++depth == 1) {
      both_inside.arrive_and_wait();
      callers.call(1 - policy, {.state_key = "one"});
    }
    --depth;
  };
  const auto errors = errors_of({[&] { depth = 0, callers.call(0, {.state_key = "one"}); },
                                 [&] { depth = 0, callers.call(1, {.state_key = "one"}); }});
  REQUIRE(errors.size() == 1);
  CHECK_MESSAGE(tells(errors[0], "policy 'p0' with the state key 'one'"), errors[0]);
  CHECK_MESSAGE(tells(errors[0], "policy 'p1' with the state key 'one'"), errors[0]);
}

TEST_CASE("a reload in a call, on one thread, and a reload that asks for that policy, on another") {
  Callers callers(2);
  callers.when_inside = [](size_t) {};
  callers.call(0), callers.call(1);
  std::barrier both_inside(2);
  std::atomic<bool> in_call{true}, at_load{true};
  callers.when_inside = [&](size_t policy) {
    if (policy != 1 || !in_call.exchange(false)) return;
    both_inside.arrive_and_wait();
    callers.policies[0].unpin();  // waits for the reload
  };
  callers.runtime().define("at_load", [&](const Tensors& given) {
    if (!at_load.exchange(false)) return given;
    both_inside.arrive_and_wait();
    callers.call(1);  // waits for the call
    return given;
  });
  const Policy more = callers.policies[0];
  const auto errors = errors_of({[&] { callers.call(1); },
                                 [&] {
                                   more.replace(
                                       "at_load(torch.ones({1}))\nreturn policy{name = 'p0', inputs = {'z'}, "
                                       "outputs = {'z'}, run = function(z) return z end}");
                                 }});
  const auto failure = more.version().last_error;
  const std::string all = (errors.empty() ? "" : errors[0]) + (failure ? failure->message : "");
  CHECK_MESSAGE(tells(all, "would wait for each other for ever"), all);
  CHECK_MESSAGE(tells(all, "the reload of policy 'p0'"), all);
  CHECK_MESSAGE(tells(all, "policy 'p1'"), all);
}

TEST_CASE("a call inside a call waits on its thread no longer than the outer one may take") {
  Callers callers(2);
  std::barrier inside(2), over(2);
  callers.when_inside = [&](size_t policy) {
    if (policy == 1) return callers.call(0);  // has no deadline of its own
    inside.arrive_and_wait();
    over.arrive_and_wait();
  };
  const auto errors = errors_of({[&] { callers.call(0); },
                                 [&] {
                                   inside.arrive_and_wait();
                                   const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
                                   try {
                                     callers.call(1, {.deadline = soon});
                                   } catch (const triage::Error&) {
                                     over.arrive_and_wait();
                                     throw;
                                   }
                                   over.arrive_and_wait();
                                 }});
  REQUIRE(errors.size() == 1);
  CHECK_MESSAGE(tells(errors[0], "while another call was running the script of policy 'p0'"), errors[0]);
}

TEST_CASE("policies that call each other at random, from several threads, come to an end") {
  constexpr size_t count = 4;
  Callers callers(count);
  static thread_local std::mt19937 random;
  static thread_local int depth;
  callers.when_inside = [&](size_t) {
    if (depth == 3) return;
    ++depth;
    try {
      if (random() % 3) callers.call(random() % count);
    } catch (const triage::Error&) {
      --depth;
      throw;
    }
    --depth;
  };
  std::atomic<uint64_t> rings{0}, others{0};
  std::vector<std::function<void()>> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      random.seed(seed);
      depth = 0;
      for (int i = 0; i < 40; ++i) try {
          callers.call(random() % count);
        } catch (const triage::Error& error) {
          const bool expected =
              tells(error.what(), "would wait for each other") || tells(error.what(), "cannot call itself");
          ++(expected ? rings : others);
        }
    });
  errors_of(threads);
  CHECK(rings > 0);
  CHECK(others == 0);
}
