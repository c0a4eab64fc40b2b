// A process to which the system gives no thread any more: it is told which limit it met and what still works, and that
// works.
#include "tests/attacks/forked.h"
#include "tests/failures/life.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <triage/triage.h>

#include <fstream>
#include <functional>

namespace triage::test {
namespace {

/// While it lives there are too few addresses left for the stack of a thread, which is so large that none of an earlier
/// thread does.
class FewAddresses {
 public:
  FewAddresses() {
    set_stack(size_t{1} << 30);
    ::getrlimit(RLIMIT_AS, &before_);
    long long pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(pages * 4096 + (6 << 20));
    ::setrlimit(RLIMIT_AS, &few);
  }
  ~FewAddresses() {
    ::setrlimit(RLIMIT_AS, &before_);
    set_stack(size_t{8} << 20);
  }
  FewAddresses(const FewAddresses&) = delete;
  FewAddresses& operator=(const FewAddresses&) = delete;

 private:
  static void set_stack(size_t bytes) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, bytes);
    ::pthread_setattr_default_np(&attributes);
    ::pthread_attr_destroy(&attributes);
  }
  rlimit before_{};
};

/// Empty if `work` throws a LimitError that names the limit, and says `what_works`.
std::string told(const char* what_works, const std::function<void()>& work) {
  try {
    work();
    return "it works without a thread";
  } catch (const LimitError& error) {
    const std::string message = error.what();
    for (const char* const part : {"no thread", "`ulimit -v` allows", what_works})
      if (message.find(part) == std::string::npos) return std::string("no \"") + part + "\" in: " + message;
    return "";
  } catch (const std::exception& error) {
    return std::string("it throws ") + error.what();
  }
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need addresses themselves
TEST_CASE("without a thread to be had, the message names the limit, and policies go on") {
  const lua::testing::Ended ended = lua::testing::in_fork(
      [](const lua::testing::Say& say) -> std::string {
        RuntimeOptions options;
        options.log = no_log();
        Runtime runtime(options);
        runtime.define("same", [](const std::vector<at::Tensor>& in) { return in; }, {.pure = true});
        runtime.define_tensor("nothing", at::zeros({8}));
        const Policy policy = runtime.load_source(repair_source(1), "p.lua");
        policy.run({bad_batch()});
        const auto all = [&]() -> std::string {
          DecisionLogOptions log;
          log.on_line = [](std::string_view) {};
          for (const std::string& problem :
               {told("those that the process has go on", [&] { Runtime other(options); }),
                told("Policy::reload looks at a file", [&] { runtime.watch("."); }),
                told("The live version goes on", [&] { policy.shadow_source(repair_source(2)); }),
                told("policies work without one", [&] { DecisionLog made(log); })})
            if (!problem.empty()) return problem;
          return wrong(policy.run({bad_batch()}), 1);
        };
        say("without threads");
        {
          const FewAddresses few;
          if (std::string problem = all(); !problem.empty()) return problem;
        }
        say("with threads again");
        runtime.watch(".").rescan();
        policy.shadow_source(repair_source(2));
        policy.end_candidate();
        Runtime other(options);
        return wrong(policy.run({bad_batch()}), 1);
      },
      20);
  CHECK_MESSAGE((ended.death.empty() && ended.text.empty()), ended.stage << ": " << ended.death << ended.text);
}
#endif

}  // namespace triage::test
