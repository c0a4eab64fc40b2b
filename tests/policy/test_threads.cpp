#include "runtime/policy/versions/epochs.h"
#include "runtime/policy/versions/reclaimer.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/runtime.h>

#include <thread>

using triage::Policy;
using triage::Reload;
using triage::Runtime;

namespace {

/// Runs `body` on `count` threads that call policies, until `stop`.
class Callers {
 public:
  Callers(int count, std::function<void()> body) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, body] {
        fake::is_caller = true;
        while (!stop_) body();
      });
  }
  ~Callers() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("1,000 reloads under load from four threads: no failed call, each result wholly of one version") {
  const int destroyed_before = fake::destroyed_by_caller;
  Runtime runtime;
  const Policy policy = runtime.load_source("pair 0", "p.fake");
  const at::Tensor z = at::rand({8, 4});
  policy.prepare({z});
  std::atomic<int> calls{0}, failed{0}, torn{0};
  {
    Callers callers(4, [&, policy] {
      ++calls;
      try {
        const auto [sum, value] = policy.run<2>({z});
        if (!at::equal(sum, z + value)) ++torn;
      } catch (const std::exception&) {
        ++failed;
      }
    });
    for (int i = 1; i <= 1000; ++i) {
      REQUIRE(policy.replace("pair " + std::to_string(i)) == Reload::swapped);
      if (i % 100 == 0) {
        const int seen = calls;
        CHECK(fake::eventually([&] { return calls > seen + 10; }));
      }
    }
  }
  CHECK(failed == 0);
  CHECK(torn == 0);
  CHECK(fake::destroyed_by_caller == destroyed_before);
}

TEST_CASE("rollbacks, pins, params and questions while threads call") {
  Runtime runtime;
  const Policy policy = runtime.load_source("param p 0.0\nadd_param p", "p.fake");
  const at::Tensor z = at::zeros({4});
  REQUIRE(policy.replace("param p 0.0\nadd_param p\nmul 2") == Reload::swapped);
  std::atomic<int> wrong{0}, calls{0};
  {
    Callers callers(3, [&, policy] {
      ++calls;
      const float value = policy.run({z})[0][0].item<float>();
      if (value != 0.0f && value != 1.0f && value != 2.0f) ++wrong;
    });
    for (int i = 0; i < 300; ++i) {
      policy.rollback(1 + i % 2);
      policy.set_param("p", i % 2);
      policy.pin(2 - i % 2);
      CHECK(policy.versions().size() == 2);
      CHECK_FALSE(policy.signature().inputs.empty());
      policy.graphs();
      policy.unpin();
    }
    const int seen = calls;
    CHECK(fake::eventually([&] { return calls > seen + 10; }));
  }
  CHECK(wrong == 0);
}

TEST_CASE("handles come and go on many threads") {
  const int before = fake::alive;
  {
    Runtime runtime;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&runtime] {
        fake::is_caller = true;
        for (int i = 0; i < 100; ++i) {
          const Policy policy = runtime.load_source("add 1", "p.fake");
          const Policy copy = policy;
          copy.run({at::zeros({2})});
          runtime.policies();
        }
      });
    for (auto& thread : threads) thread.join();
  }
  CHECK(fake::alive == before);
  CHECK(fake::destroyed_by_caller == 0);
}

TEST_CASE("a policy that a call of another thread is inside of is not freed before that call ends") {
  const int before = fake::alive;
  Runtime runtime({.keep_versions = 1, .trial_calls = 0});
  std::atomic<bool> inside{false}, leave{false};
  runtime.define("wait", [&](const std::vector<at::Tensor>& in) {
    inside = true;
    while (!leave) std::this_thread::yield();
    return in;
  });
  const Policy policy = runtime.load_source("host wait\nadd 1", "p.fake");
  std::thread caller([&] { CHECK(policy.run({at::zeros({1})})[0].item<float>() == 1.0f); });
  CHECK(fake::eventually([&] { return inside.load(); }));
  CHECK(policy.replace("add 2") == Reload::swapped);
  CHECK(policy.run({at::zeros({1})})[0].item<float>() == 2.0f);  // nobody waits for the slow call
  CHECK(policy.replace("add 3") == Reload::swapped);
  CHECK(fake::alive == before + 3);  // who left in between is not told apart: all wait for the slow call
  leave = true;
  caller.join();
  CHECK(fake::eventually([&] { return fake::alive == before + 1; }));
}

TEST_CASE("epochs: a steady stream of reading threads does not keep the old object alive") {
  auto epochs = std::make_shared<triage::policy::Epochs>();
  std::atomic<int> calls{0};
  triage::policy::Reclaimer reclaimer;
  Callers readers(4, [&] {
    const triage::policy::Epochs::Reading outer(*epochs);
    const triage::policy::Epochs::Reading nested(*epochs);
    ++calls;
  });
  for (int i = 0; i < 50; ++i) {
    std::weak_ptr<void> watched;
    {
      auto garbage = std::make_shared<int>(i);
      watched = garbage;
      reclaimer.retire(triage::policy::Reclaimer::garbage(epochs, std::move(garbage)));
    }
    CHECK(fake::eventually([&] { return watched.expired(); }));
  }
}

TEST_CASE("epochs: no reading thread ever sees a freed object") {
  struct Object {
    explicit Object(int number) : value(number), same(number) {}
    ~Object() { value = same = -1; }
    std::atomic<int> value, same;
  };
  auto epochs = std::make_shared<triage::policy::Epochs>();
  std::atomic<Object*> live{new Object(0)};
  std::atomic<int> bad{0};
  {
    triage::policy::Reclaimer reclaimer;
    Callers readers(4, [&] {
      const triage::policy::Epochs::Reading reading(*epochs);
      const Object* object = live.load(std::memory_order_seq_cst);
      const int value = object->value;
      if (value < 0 || object->same != value) ++bad;
    });
    for (int i = 1; i <= 2000; ++i) {
      std::shared_ptr<Object> old(live.exchange(new Object(i), std::memory_order_seq_cst));
      reclaimer.retire(triage::policy::Reclaimer::garbage(epochs, std::move(old)));
    }
  }
  CHECK(bad == 0);
  delete live.load();
}
