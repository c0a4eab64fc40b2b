// What a host does around its calls: versions, watches, logs, counts and state, through the C interface.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "host.h"

namespace triage::test {
namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("triage-c-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  /// By rename, as editors save.
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / "new") << text;
    fs::rename(path / "new", path / name);
  }
};

std::string times(int factor) {
  return "return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) return z * " + std::to_string(factor) +
         " end }";
}

TriageVersion live_version(const Host& host) {
  TriageVersion version{};
  version.size = sizeof version;
  check_ok(api().version(host.policy, &version));
  return version;
}

template <class Condition>
bool within_a_minute(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace

TEST_CASE("versions: replace, refuse, roll back, pin and unpin") {
  const Host host(times(2));
  HostTensor z({1}, {1});
  const auto answer = [&] { return host.run({&z.managed})[0].values()[0]; };
  CHECK(answer() == 2);
  CHECK(host.replace(times(2)) == TRIAGE_RELOAD_UNCHANGED);
  CHECK(host.replace(times(3)) == TRIAGE_RELOAD_SWAPPED);
  CHECK(answer() == 3);
  CHECK(host.replace("return function(") == TRIAGE_RELOAD_REFUSED);
  CHECK(answer() == 3);
  TriageVersion live = live_version(host);
  CHECK(live.number == 2);
  CHECK(live.live == 1);
  CHECK(live.on_trial == 1);
  CHECK(live.pinned + live.taken_back + live.candidate == 0);
  CHECK(std::string(live.hash).size() == 16);
  CHECK(live.since_ns > int64_t{1'600'000'000} * 1'000'000'000);
  CHECK(std::string(live.path) == "repair.lua");
  CHECK(std::string(live.last_error).find("repair.lua:1") != std::string::npos);
  CHECK(std::string(live.last_error_file) == "repair.lua");
  CHECK(live.last_error_line == 1);

  size_t count = 0;
  check_ok(api().versions(host.policy, nullptr, &count));
  CHECK(count == 2);
  TriageVersion versions[3] = {};
  versions[0].size = sizeof versions[0];
  count = 3;
  check_ok(api().versions(host.policy, versions, &count));
  REQUIRE(count == 2);
  CHECK(versions[0].number == 1);
  CHECK(versions[0].live == 0);
  CHECK(versions[1].number == 2);
  CHECK(versions[1].live == 1);
  CHECK(versions[1].size == sizeof versions[1]);
  CHECK(versions[2].size == 0);

  check_ok(api().rollback(host.policy, 1));
  CHECK(answer() == 2);
  check_ok(api().pin(host.policy, 2));
  CHECK(answer() == 3);
  CHECK(live_version(host).pinned == 1);
  int32_t result = -1;
  check_ok(api().unpin(host.policy, &result));
  CHECK(live_version(host).pinned == 0);
  CHECK(result >= TRIAGE_RELOAD_UNCHANGED);
}

TEST_CASE("a watch follows a file and tells of it; its callback may end it") {
  static std::mutex mutex;
  static std::vector<std::string> told;
  static TriageWatch* watch;
  static std::atomic<int> ended;
  told.clear();
  ended = -1;
  const Folder folder;
  folder.write("scale.lua", times(2));
  const Host host;
  TriagePolicy* policy = nullptr;
  check_ok(api().load_file(host.runtime, (folder.path / "scale.lua").c_str(), &policy));
  TriageWatchOptions options{};
  options.size = sizeof options;
  options.debounce_ms = 5;
  options.user = &told;
  options.on_event = [](const TriageWatchEvent* event, void* user) {
    const std::lock_guard lock(mutex);
    static_cast<std::vector<std::string>*>(user)->push_back(std::string(event->name) + " " +
                                                            std::to_string(event->version));
    if (event->kind == TRIAGE_WATCH_REFUSED) {
      told.back() += " line " + std::to_string(event->line) + " of " + fs::path(event->file).filename().string();
      ended = api().free_watch(watch);
    }
  };
  check_ok(api().watch(host.runtime, folder.path.c_str(), &options, &watch));
  const auto count_told = [] {
    const std::lock_guard lock(mutex);
    return told.size();
  };
  folder.write("scale.lua", times(3));
  check_ok(api().rescan(watch));
  CHECK(within_a_minute([&] { return count_told() == 1; }));
  int32_t result = -1;
  check_ok(api().reload(policy, &result));
  CHECK(result == TRIAGE_RELOAD_UNCHANGED);
  folder.write("scale.lua", "return function(\n\n");
  CHECK(within_a_minute([&] { return ended >= 0; }));
  CHECK(ended == TRIAGE_OK);
  CHECK(told == std::vector<std::string>{"reloaded 2", "refused 2 line 3 of scale.lua"});
  check_failed(api().rescan(watch), TRIAGE_ERROR_ARGUMENT, {"`watch` was freed"});
  check_ok(api().free_policy(policy));
}

TEST_CASE("a forked child frees what it inherits, and makes its own") {
  const Folder folder;
  folder.write("scale.lua", times(2));
  const Host host;
  TriagePolicy* policy = nullptr;
  TriageWatch* watch = nullptr;
  check_ok(api().load_file(host.runtime, (folder.path / "scale.lua").c_str(), &policy));
  check_ok(api().watch(host.runtime, folder.path.c_str(), nullptr, &watch));
  HostTensor z({1}, {1});
  host.warm_up(z.managed);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    const bool freed = api().free_watch(watch) == TRIAGE_OK && api().free_policy(policy) == TRIAGE_OK &&
                       api().free_policy(host.policy) == TRIAGE_OK && api().free_runtime(host.runtime) == TRIAGE_OK;
    const Host own(times(3));
    ::_exit(freed && own.run({&z.managed})[0].values()[0] == 3 ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(host.run({&z.managed}).size() == 2);  // the parent goes on
  check_ok(api().free_watch(watch));
  check_ok(api().free_policy(policy));
}

TEST_CASE("statistics, counts of flags, and metrics") {
  const Host host;
  constexpr auto nan = std::numeric_limits<float>::quiet_NaN();
  HostTensor z({nan, 1, 2, nan}, {4, 1});
  for (int i = 0; i < 5; ++i) host.run({&z.managed});
  host.misuse({nullptr}, {});  // counts nothing: it reached no policy
  size_t outputs = 0;
  CHECK(api().run(host.policy, nullptr, 0, nullptr, nullptr, &outputs) == TRIAGE_ERROR_INPUT);
  TriageStatistics statistics{};
  statistics.size = sizeof statistics;
  check_ok(api().statistics(host.policy, &statistics));
  CHECK(statistics.size == sizeof statistics);
  CHECK(statistics.calls == 6);
  CHECK(statistics.live == 5);
  CHECK(statistics.failed == 1);
  CHECK(statistics.input_failures == 1);
  CHECK(statistics.capture == 1);
  CHECK(statistics.graph == 4);
  CHECK(statistics.samples == 20);
  CHECK(statistics.flagged == 10);
  CHECK(statistics.repaired == 10);
  CHECK(statistics.reloads == 1);
  CHECK(statistics.time_ns > 0);
  CHECK(statistics.p50_ns > 0);
  CHECK(statistics.p50_ns <= statistics.p99_ns);
  TriageFlag counts[4];
  size_t count = 4;
  check_ok(api().flag_counts(host.policy, counts, &count));
  REQUIRE(count == 2);
  CHECK(counts[0].sample == -1);
  CHECK(counts[0].count == 10);
  CHECK(std::string(counts[0].code_name) == "NAN");
  CHECK(std::string(counts[0].location_name) == "logits");
  char* text = nullptr;
  check_ok(api().metrics_text(host.runtime, &text));
  CHECK(std::string(text).find("policy=\"repair\"") != std::string::npos);
  api().free_text(text);
}

TEST_CASE("logs reach the host: of a runtime, and of the process") {
  static std::vector<std::string> records;
  static const auto keep = [](const TriageLogRecord* record, void* user) {
    std::string text = std::to_string(record->level) + " " + static_cast<const char*>(user) + ": " + record->text;
    for (size_t i = 0; i < record->field_count; ++i)
      if (record->fields[i].name == std::string("version")) text += std::string(" [") + record->fields[i].value + "]";
    records.push_back(text);
  };
  records.clear();
  char name[] = "own", other[] = "process";
  {
    const Host host(times(2), {.log = keep, .log_user = name});
    host.replace(times(3));
  }
  REQUIRE(!records.empty());
  CHECK(records.back().find("1 own: policy 'repair': version 2 is live") == 0);
  CHECK(records.back().find("[2]") != std::string::npos);
  check_ok(api().set_log(keep, other));
  TriageRuntime* runtime = nullptr;
  TriagePolicy* policy = nullptr;
  check_ok(api().create_runtime(nullptr, &runtime));
  check_ok(api().load_source(runtime, times(2).data(), times(2).size(), nullptr, &policy));
  check_ok(api().replace(policy, times(4).data(), times(4).size(), nullptr));
  check_ok(api().set_log(nullptr, nullptr));
  CHECK(records.back().find("process: ") != std::string::npos);
  check_ok(api().free_runtime(runtime));
  check_ok(api().free_policy(policy));  // after its runtime
}

TEST_CASE("print, limits and the compiler are options") {
  static std::string printed;
  printed.clear();
  TriageRuntimeOptions options{};
  options.print = [](const char* text, void* user) { *static_cast<std::string*>(user) += text; };
  options.print_user = &printed;
  options.max_instructions = 100'000;
  options.backend = "eager";
  options.trial_calls = -1;
  const Host host(
      "return policy { inputs = { 'z' }, outputs = { 'z' },\n"
      "  run = function(z) print('ran') if z:size(0) == 3 then while true do end end return z * 2 end }",
      options);
  HostTensor z({1, 2}, {2}), three({1, 2, 3}, {3});
  host.run({&z.managed});
  CHECK(printed.find("ran") == 0);
  DLManagedTensor* inputs[] = {&three.managed};
  DLManagedTensor* output = nullptr;
  size_t count = 1;
  check_failed(api().run(host.policy, inputs, 1, nullptr, &output, &count), TRIAGE_ERROR_LIMIT, {"instructions"});
  host.replace("return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) return z * 5 end }");
  CHECK(live_version(host).on_trial == 0);
}

TEST_CASE("the gates of a reload are options") {
  const auto source = [](const char* body) {
    return std::string("return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) ") + body + " end }";
  };
  const std::string breaks = source("if z:sum():item() > 1e9 then return z end return z * 3");
  for (const int32_t gate :
       {TRIAGE_RELOAD_GATE_DEFAULT, TRIAGE_RELOAD_GATE_WARN, TRIAGE_RELOAD_GATE_REFUSE, TRIAGE_RELOAD_GATE_SHADOW}) {
    CAPTURE(gate);
    TriageRuntimeOptions options{};
    options.on_new_graph_breaks = gate;
    options.reload_latency_ratio = -1;
    const Host host(source("return z * 2"), options);
    HostTensor z({1, 2}, {2});
    host.run({&z.managed});
    const bool stops = gate >= TRIAGE_RELOAD_GATE_REFUSE;
    CHECK(host.replace(breaks) == (stops ? TRIAGE_RELOAD_REFUSED : TRIAGE_RELOAD_SWAPPED));
    CHECK(live_version(host).number == (stops ? 1 : 2));
  }
}

TEST_CASE("state: kept by key, saved, loaded and reset") {
  const std::string counting =
      "return policy { inputs = { 'z' }, outputs = { 'n' }, state = { n = { shape = { 1 } } },\n"
      "  run = function(z, s) local n = s.n + z return n, { n = n } end }";
  const Folder folder;
  const std::string file = (folder.path / "state.pt").string();
  const Host host(counting);
  HostTensor z({1}, {1});
  TriageRunOptions options{};
  options.size = sizeof options;
  options.state_key = "a";
  const auto next = [&] { return host.run({&z.managed}, &options)[0].values()[0]; };
  CHECK(next() == 1);
  CHECK(next() == 2);
  options.state_key = nullptr;
  CHECK(next() == 1);
  options.state_key = "a";
  check_ok(api().save_state(host.policy, file.c_str()));
  CHECK(next() == 3);
  check_ok(api().load_state(host.policy, file.c_str()));
  CHECK(next() == 3);
  check_ok(api().reset_state(host.policy, "a"));
  CHECK(next() == 1);
  check_ok(api().reset_state(host.policy, nullptr));
  CHECK(next() == 1);
}

TEST_CASE("random numbers of a policy follow its seed") {
  const Host host(
      "return policy { inputs = { 'z' }, outputs = { 'z' }, run = function(z) return z + torch.randn(2) end }");
  HostTensor z({0, 0}, {2});
  check_ok(api().manual_seed(host.policy, 7));
  const auto first = host.run({&z.managed})[0].values();
  check_ok(api().manual_seed(host.policy, 7));
  CHECK(host.run({&z.managed})[0].values() == first);
  check_ok(api().manual_seed(host.policy, 8));
  CHECK(host.run({&z.managed})[0].values() != first);
}

TEST_CASE("versions of the library and of LibTorch") {
  CHECK(std::string(api().library_version()).find('.') != std::string::npos);
  CHECK(std::string(api().torch_version()).find('.') != std::string::npos);
}

}  // namespace triage::test
