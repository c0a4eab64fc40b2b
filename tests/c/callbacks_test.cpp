// A callback of the host may free any handle, whichever call or thread of triage it runs in: what was freed is refused
// from then on, the call that is under way comes to its end, and nothing is destroyed twice or never.
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <unistd.h>

#include "host.h"

namespace triage::test {
namespace {

namespace fs = std::filesystem;

enum Frees : int { policy = 1, runtime = 2, watch = 4, all = 7 };

/// A host whose callbacks, the first time that one of them is called on purpose, free what they are told to.
struct Freeing {
  explicit Freeing(int given) : frees(given) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    save("return function(z) print('x') return z + 1 end");
    TriageRuntimeOptions options = {};
    options.size = sizeof options;
    options.log_user = options.print_user = this;
    options.log = [](const TriageLogRecord* record, void* user) {
      auto* self = static_cast<Freeing*>(user);
      if (self->in_log && record->level >= TRIAGE_LOG_INFO) self->free_now();
    };
    options.print = [](const char*, void* user) {
      auto* self = static_cast<Freeing*>(user);
      if (self->in_print) self->free_now();
    };
    check_ok(api().create_runtime(&options, &runtime_handle));
    check_ok(api().load_file(runtime_handle, (folder / "p.lua").c_str(), &policy_handle));
    TriageWatchOptions watch_options = {};
    watch_options.size = sizeof watch_options;
    watch_options.user = this;
    watch_options.debounce_ms = 1;
    watch_options.on_event = [](const TriageWatchEvent*, void* user) {
      auto* self = static_cast<Freeing*>(user);
      if (self->in_event) self->free_now();
    };
    check_ok(api().watch(runtime_handle, folder.c_str(), &watch_options, &watch_handle));
  }
  /// Frees the rest. What was freed says so by the status of the second time.
  void finish() const {
    const auto free_once = [&](int which, TriageStatus status) {
      const bool was_freed = freed && (frees & which);
      CHECK(status == (was_freed ? TRIAGE_ERROR_ARGUMENT : TRIAGE_OK));
      if (was_freed) CHECK(last_message().find("was freed") != std::string::npos);
    };
    free_once(watch, api().free_watch(watch_handle));
    free_once(policy, api().free_policy(policy_handle));
    free_once(runtime, api().free_runtime(runtime_handle));
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;

  void free_now() {
    if (freed.exchange(true)) return;
    if (frees & policy) statuses += api().free_policy(policy_handle);
    if (frees & runtime) statuses += api().free_runtime(runtime_handle);
    if (frees & watch) statuses += api().free_watch(watch_handle);
    if (frees & policy) refused = api().manual_seed(policy_handle, 1) == TRIAGE_ERROR_ARGUMENT;
    done = true;
  }
  void save(const std::string& source) const {
    std::ofstream(folder / "new") << source;
    fs::rename(folder / "new", folder / "p.lua");
  }
  TriageStatus run(DLManagedTensor* input) const {
    DLManagedTensor* outputs[1] = {};
    size_t count = 1;
    const TriageStatus status = api().run(policy_handle, &input, 1, nullptr, outputs, &count);
    if (status == TRIAGE_OK) CHECK(*static_cast<float*>(outputs[0]->dl_tensor.data) == 2);
    api().free_tensor(outputs[0]);
    return status;
  }
  void wait_until_done() const {
    for (int i = 0; i < 60000 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(done);
  }

  const int frees;
  const fs::path folder = fs::temp_directory_path() / ("triage-callbacks-" + std::to_string(::getpid()));
  TriageRuntime* runtime_handle = nullptr;
  TriagePolicy* policy_handle = nullptr;
  TriageWatch* watch_handle = nullptr;
  std::atomic<bool> in_log{false}, in_print{false}, in_event{false}, freed{false}, done{false};
  std::atomic<int> statuses{0};  // of the first frees: all are TRIAGE_OK
  std::atomic<bool> refused{true};
};

/// A callback, and the call in which it comes.
struct Case {
  const char* name;
  std::function<void(Freeing&)> make;
};

const Case cases[] = {
    {"print of a call",
     [](Freeing& host) {
       HostTensor z({1, 1}, {1, 2});
       host.in_print = true;
       check_ok(host.run(&z.managed));
     }},
    {"print of a preparation",
     [](Freeing& host) {
       HostTensor z({1, 1}, {1, 2});
       host.in_print = true;
       DLManagedTensor* inputs[] = {&z.managed};
       check_ok(api().prepare(host.policy_handle, inputs, 1, nullptr));
     }},
    {"log of a refusal",
     [](Freeing& host) {
       int32_t result = -1;
       host.in_log = true;
       check_ok(api().replace(host.policy_handle, "x(", 2, &result));
       CHECK(result == TRIAGE_RELOAD_REFUSED);
     }},
    {"log of a new version",
     [](Freeing& host) {
       const std::string source = "return function(z) return z + 1 end";
       int32_t result = -1;
       host.in_log = true;
       check_ok(api().replace(host.policy_handle, source.data(), source.size(), &result));
       CHECK(result == TRIAGE_RELOAD_SWAPPED);
     }},
    {"print of a load",
     [](Freeing& host) {
       const std::string source = "print('loading') return function(z) return z end";
       host.in_print = true;
       TriagePolicy* loaded = nullptr;
       check_ok(api().load_source(host.runtime_handle, source.data(), source.size(), nullptr, &loaded));
       check_ok(api().free_policy(loaded));
     }},
    {"deleter of an input",
     [](Freeing& host) {
       static Freeing* current;
       current = &host;
       HostTensor z({1, 1}, {1, 2});
       z.managed.deleter = [](DLManagedTensor*) { current->free_now(); };
       DLManagedTensor* inputs[] = {&z.managed,
                                    &z.managed};  // one too many: the call fails, and frees what it was given
       size_t count = 0;
       CHECK(api().run(host.policy_handle, inputs, 2, nullptr, nullptr, &count) == TRIAGE_ERROR_ARGUMENT);
       host.wait_until_done();
     }},
    {"log of a rescan",
     [](Freeing& host) {
       host.in_log = true;  // first: the watching thread may be the one that sees the change
       host.save("broken(");
       CHECK(api().rescan(host.watch_handle) != TRIAGE_ERROR_MEMORY);
       host.wait_until_done();
     }},
    {"log on the watching thread",
     [](Freeing& host) {
       host.in_log = true;
       host.save("broken(");
       host.wait_until_done();
     }},
    {"event on the watching thread", [](Freeing& host) {
       host.in_event = true;
       host.save("return function(z) return z + 2 end");
       host.wait_until_done();
     }}};

}  // namespace

TEST_CASE("a callback on any thread may free any handle") {
  for (const Case& one : cases)
    for (const int frees : {int{policy}, int{runtime}, int{watch}, int{all}}) {
      CAPTURE(std::string(one.name));
      CAPTURE(frees);
      auto& host = *new Freeing(frees);  // for good: what was freed elsewhere may be destroyed later, and call back
      one.make(host);
      host.finish();
      CHECK(host.freed);
      CHECK(host.statuses == 0);
      CHECK(host.refused);
    }
}

TEST_CASE("what a callback frees is destroyed when the call is over, and not before") {
  static TriagePolicy* freed;
  static HostTensor<>* kept;
  TriageRuntimeOptions options = {};
  options.size = sizeof options;
  options.log = [](const TriageLogRecord*, void*) {};
  options.print = [](const char*, void*) {
    check_ok(api().free_policy(freed));
    CHECK(kept->freed == 0);
  };
  TriageRuntime* runtime_handle = nullptr;
  check_ok(api().create_runtime(&options, &runtime_handle));
  const std::string source = "local all = {} return function(z) all[1] = z print('x') return z + all[1] end";
  check_ok(api().load_source(runtime_handle, source.data(), source.size(), nullptr, &freed));
  HostTensor z({1, 1}, {1, 2});
  z.count_frees();
  kept = &z;
  DLManagedTensor *inputs[] = {&z.managed}, *outputs[1];
  size_t count = 1;
  check_ok(api().run(freed, inputs, 1, nullptr, outputs, &count));
  CHECK(Output(outputs[0]).values() == std::vector<float>{2, 2});
  check_ok(api().free_runtime(runtime_handle));  // waits until its versions are freed
  CHECK(z.freed == 1);
}

TEST_CASE("a thread frees a policy while another thread is in a call of it") {
  struct Meeting {
    std::atomic<bool> inside{false}, go_on{false};
  } meeting;
  TriageRuntimeOptions options = {};
  options.print_user = &meeting;
  options.print = [](const char*, void* user) {
    auto& here = *static_cast<Meeting*>(user);
    here.inside = true;
    while (!here.go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  options.size = sizeof options;
  options.log = [](const TriageLogRecord*, void*) {};
  TriageRuntime* runtime_handle = nullptr;
  TriagePolicy* policy_handle = nullptr;
  check_ok(api().create_runtime(&options, &runtime_handle));
  const std::string source = "return function(z) print('x') return z + 1 end";
  check_ok(api().load_source(runtime_handle, source.data(), source.size(), nullptr, &policy_handle));
  HostTensor z({1, 1}, {1, 2});
  TriageStatus status = -1;
  float got = 0;
  std::thread caller([&] {
    DLManagedTensor *inputs[] = {&z.managed}, *outputs[1];
    size_t count = 1;
    status = api().run(policy_handle, inputs, 1, nullptr, outputs, &count);
    if (status == TRIAGE_OK) got = Output(outputs[0]).values()[0];
  });
  while (!meeting.inside) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  check_ok(api().free_policy(policy_handle));
  CHECK(api().manual_seed(policy_handle, 1) == TRIAGE_ERROR_ARGUMENT);
  meeting.go_on = true;
  caller.join();
  CHECK(status == TRIAGE_OK);
  CHECK(got == 2);
  check_ok(api().free_runtime(runtime_handle));
}

}  // namespace triage::test
