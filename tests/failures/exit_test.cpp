// The end of a process with everything in the background: a Watch, calls on threads, the decision log.
// Whether it exits, forks or is killed: no hang, nothing half-written, and the next process finds what it needs.
#include "runtime/messages/logs/log.h"
#include "runtime/policy/bundles/manifest.h"
#include "tests/attacks/forked.h"
#include "tests/logs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <triage/triage.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string source(int version) {
  return "return policy {outputs = {'z', 'f'}, state = {calls = {shape = {}, dtype = torch.int64}}, run = function(z, "
         "s)\n"
         "local f = flag_nan(z, 'z') z, f = fix(z, f, 'z', {fallback = " +
         std::to_string(version) + ".0}) return z, f, {calls = s.calls + 1} end}";
}

class Folder {
 public:
  explicit Folder(const char* name) : path(fs::temp_directory_path() / (name + std::to_string(::getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path / "policies");
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  const fs::path path;
  fs::path policy() const { return path / "policies" / "p.lua"; }
  fs::path log() const { return path / "decisions.jsonl"; }
  fs::path state() const { return path / "state.pt"; }
  fs::path bundle() const { return path / "bundle"; }
  /// As editors do.
  void save(int version) const {
    std::ofstream(path / "new") << source(version);
    fs::rename(path / "new", policy());
  }
  /// A bundle of two policies, as `cp` does: each file may be seen half written, bundle.json last.
  void copy_bundle(int version) const {
    fs::create_directories(bundle());
    for (const char* const name : {"a.lua", "b.lua"}) std::ofstream(bundle() / name) << source(version);
    triage::policy::Manifest manifest = triage::policy::list_folder(bundle());
    manifest.name = "pair";
    manifest.version = std::to_string(version);
    std::ofstream(bundle() / "bundle.json") << manifest.text();
  }
};

at::Tensor batch() {
  at::Tensor z = at::ones({4, 8});
  z[1].fill_(NAN);
  return z;
}

/// All that a host may have, on the heap, as in a program that ends without a word to it.
struct Host {
  explicit Host(const Folder& folder) {
    triage::DecisionLogOptions log;
    log.file = folder.log();
    options.decisions = std::make_shared<triage::DecisionLog>(log);
    options.cache_dir = folder.path / "cache";
    options.log = triage::test::no_log();
    runtime = std::make_unique<triage::Runtime>(options);
    policy = runtime->load(folder.policy());
    watch = runtime->watch(folder.path / "policies", {.debounce = 1ms});
    for (int i = 0; i < 2; ++i)
      callers.emplace_back([this] {
        const at::Tensor z = batch();
        while (!stop) policy.run({z});
      });
  }
  void join() {
    stop = true;
    for (auto& caller : callers) caller.join();
  }
  triage::RuntimeOptions options;
  std::unique_ptr<triage::Runtime> runtime;
  triage::Policy policy;
  triage::Watch watch;
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
};

/// How many lines of the log are whole, and how many are not: only the last one may be cut.
std::pair<size_t, size_t> lines_of(const fs::path& log) {
  std::ifstream file(log);
  size_t whole = 0, cut = 0;
  for (std::string line; std::getline(file, line);) (nlohmann::json::accept(line) ? whole : cut) += 1;
  return {whole, cut};
}

float served(const triage::Policy& policy) { return policy.run({batch()})[0][1][0].item<float>(); }

/// What a new process makes of what is left: empty where it serves.
std::string restart(const Folder& folder, int newest) {
  triage::RuntimeOptions options;
  options.cache_dir = folder.path / "cache";
  options.log = triage::test::no_log();
  triage::Runtime runtime(options);
  std::ofstream(folder.policy()) << "broken(";  // so that what was kept has to serve
  const triage::Policy policy = runtime.load(folder.policy());
  if (fs::exists(folder.state())) policy.load_state(folder.state());  // throws where it is damaged
  const auto value = served(policy);
  if (!(value >= 1 && value <= static_cast<float>(newest))) return "it serves something else: " + std::to_string(value);
  if (!fs::exists(folder.bundle())) return "";
  std::ofstream(folder.bundle() / "a.lua") << "broken(";
  const triage::Bundle bundle = runtime.load_bundle(folder.bundle());
  const auto of_a = served(bundle.policy("a")), of_b = served(bundle.policy("b"));
  return of_a >= 1 && of_a == of_b ? "" : "a bundle serves two versions";
}

/// Runs `work` in another process, which may end as it likes within a minute. Its wait status.
int status_of(const std::function<void()>& work) {
  const pid_t process = ::fork();
  if (process == 0) {
    work();
    ::_exit(99);
  }
  for (int i = 0; i < 600; ++i) {
    int status = 0;
    if (::waitpid(process, &status, WNOHANG) == process) return status;
    std::this_thread::sleep_for(100ms);
  }
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
  return -1;
}

/// A policy that takes long to compile.
std::string long_source(int version) {
  std::string text = "return policy {outputs = {'y', 'f'}, run = function(z)\nlocal f, y = flag_nan(z, 'z'), z\n";
  for (int i = 0; i < 30; ++i)
    text += fmt::format(
        "f = push(f, err.VALUE_CLAMPED, 'z', {{where = (y > {}):any(-1)}})\n"
        "y = y:clamp(-{}, 100) * 1.5\nf = flag_nan(y, 'z', f)\n",
        i + version, 100 + i);
  return text + "return y, f end}";
}

/// Exits while a Watch captures and compiles a new version for the shapes in use, after `part` of the time that it
/// takes.
[[noreturn]] void exit_in_reload(const Folder& folder, double part) {
  const auto write = [&](int version) {
    std::ofstream(folder.path / "new") << long_source(version);
    fs::rename(folder.path / "new", folder.policy());
  };
  write(1);
  auto* const runtime = new triage::Runtime({.log = triage::test::no_log(), .cache_dir = folder.path / "cache"});
  auto* const policy = new triage::Policy(runtime->load(folder.policy()));
  auto* const watch = new triage::Watch(runtime->watch(folder.path / "policies", {.debounce = 1ms}));
  policy->run({batch()});  // the tables of the backend are made after the Watch: exit destroys the latest first
  const auto begin = std::chrono::steady_clock::now();
  write(2);
  watch->rescan();
  const auto time = std::chrono::steady_clock::now() - begin;
  write(3);
  std::this_thread::sleep_for(time * part);
  std::exit(7);
}

}  // namespace

/// First: what an earlier test made in this process would be there before the Watch.
TEST_CASE("a process exits at any moment of a reload that compiles") {
  const char* const asked = std::getenv("TRIAGE_EXITS");  // for a long run by hand
  const int rounds = asked ? std::atoi(asked) : 12;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const Folder folder("triage-reload-");
    const int status = status_of([&] { exit_in_reload(folder, 0.4 + 0.7 * round / rounds); });
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 7);
  }
}

/// LibTorch destroys its operators at exit: calls have to end before that.
TEST_CASE("a process with a Watch, a candidate and a decision log exits in the middle of it all") {
  const Folder folder("triage-exit-");
  folder.save(1);
  const int status = status_of([&] {
    auto* const host = new Host(folder);  // never destroyed
    host->policy.shadow_source(source(1) + "\n", {.share = 1});
    for (int version = 2; version < 8; ++version) {
      folder.save(version);
      std::this_thread::sleep_for(20ms);
    }
    folder.save(8);
    host->join();
    std::exit(7);
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(lines_of(folder.log()).second <= 1);
  CHECK(restart(folder, 9) == "");
}

TEST_CASE("a process that forks with threads in the background goes on, and so does the child") {
  const Folder folder("triage-fork-");
  folder.save(1);
  const triage::lua::testing::Ended ended = triage::lua::testing::in_fork(
      [&](const auto& say) -> std::string {
        Host host(folder);
        for (int i = 0; i < 5; ++i) {
          folder.save(2 + i);
          say("forking");
          const int status = status_of([&] {  // a child makes a Runtime of its own, and does not touch its parent's
            triage::Runtime own({.log = triage::test::no_log()});
            const auto outputs = own.load_source(source(9), "p.lua").run({batch()});
            ::_exit(outputs[0][1][0].item<float>() == 9 ? 0 : 1);
          });
          if (status != 0) return "a child ended with status " + std::to_string(status);
        }
        say("joining");
        host.join();
        return "";
      },
      120);
  CHECK_MESSAGE((ended.death.empty() && ended.text.empty()), ended.stage << ": " << ended.death << ended.text);
  CHECK(lines_of(folder.log()).second == 0);
}

TEST_CASE("a forked child logs, loads and runs, whatever its parent's threads were at") {
  const triage::lua::testing::Ended ended = triage::lua::testing::in_fork(
      [&](const auto& say) -> std::string {
        REQUIRE(std::freopen("/dev/null", "w", stderr));
        const auto once = [](int value) {
          triage::Runtime own;  // with the log of the process
          const triage::Policy policy = own.load_source(source(value), "p.lua");
          triage::messages::Logger().write(triage::LogLevel::warn, "a line");
          return served(policy) == static_cast<float>(value);
        };
        once(1);  // what is made once is there: a fork may not cut that in two
        std::atomic<bool> stop{false};
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; ++i)
          threads.emplace_back([&] {
            while (!stop) once(2);
          });
        threads.emplace_back([&] {
          while (!stop) triage::messages::Logger().write(triage::LogLevel::warn, "a line");
        });
        std::string wrong;
        for (int i = 0; i < 40 && wrong.empty(); ++i) {
          say("forking");
          const int status = status_of([&] {
            triage::set_log(triage::test::no_log());
            const bool good = once(9);
            triage::set_log(nullptr);
            ::_exit(good && once(9) ? 7 : 1);
          });
          if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) wrong = fmt::format("child {}: status {}", i, status);
        }
        stop = true;
        for (std::thread& thread : threads) thread.join();
        return wrong;
      },
      300);
  CHECK_MESSAGE((ended.death.empty() && ended.text.empty()), ended.stage << ": " << ended.death << ended.text);
}

namespace {

/// Everything that has a thread behind it.
struct Inherited {
  explicit Inherited(const Folder& folder) {
    triage::DecisionLogOptions to_file;
    to_file.file = folder.log();
    log = std::make_shared<triage::DecisionLog>(to_file);
    runtime = std::make_unique<triage::Runtime>(
        triage::RuntimeOptions{.log = triage::test::no_log(), .cache_dir = folder.path / "cache", .decisions = log});
    policy = runtime->load(folder.policy());
    watch = runtime->watch(folder.path / "policies", {.debounce = 1ms});
    policy.shadow_source(source(1) + "\n", {.share = 1});
    policy.run({batch()});
  }
  std::shared_ptr<triage::DecisionLog> log;
  std::unique_ptr<triage::Runtime> runtime;
  triage::Policy policy;
  triage::Watch watch;
};
std::unique_ptr<Inherited> inherited;  // destroyed by exit

/// Forks while a Watch reloads. Empty where the child ends as it should.
std::string ends(const Folder& folder, void (*child)()) {
  for (int i = 0; i < 4; ++i) {
    folder.save(2 + i);
    std::this_thread::sleep_for(i * 3ms);
    const int status = status_of(child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return "a child ended with status " + std::to_string(status);
  }
  return "";
}

struct Ending {
  const char* name;
  void (*child)();
};
constexpr Ending endings[] = {{"exit", [] { std::exit(7); }},
                              {"the end of each",
                               [] {
                                 inherited->watch.stop();
                                 inherited->watch = {};
                                 inherited->policy = {};
                                 inherited->runtime.reset();
                                 inherited->log->flush();
                                 inherited.reset();
                                 ::_exit(7);
                               }},
                              {"a Runtime beside it",
                               [] {
                                 triage::Runtime own({.log = triage::test::no_log()});
                                 if (own.load_source(source(9), "p.lua").run({batch()})[0][1][0].item<float>() != 9)
                                   ::_exit(1);
                                 std::exit(7);
                               }},
                              {"a look at the files", [] {
                                 try {
                                   inherited->watch.rescan();
                                 } catch (const triage::InputError&) {
                                   std::exit(7);
                                 }
                               }}};

}  // namespace

TEST_CASE("a forked child ends, although the threads behind what it inherited do not exist there") {
  for (const Ending& ending : endings) {
    CAPTURE(ending.name);
    const Folder folder("triage-inherited-");
    folder.save(1);
    const triage::lua::testing::Ended ended = triage::lua::testing::in_fork(
        [&](const auto& say) -> std::string {
          say("forking");
          inherited = std::make_unique<Inherited>(folder);
          const std::string wrong = ends(folder, ending.child);
          say("ending");
          inherited.reset();
          return wrong;
        },
        300);
    CHECK_MESSAGE((ended.death.empty() && ended.text.empty()), ended.stage << ": " << ended.death << ended.text);
  }
}

TEST_CASE(
    "a process that is killed at any moment of reloads, pins, logs and saved state leaves what the next one needs") {
  const char* const asked = std::getenv("TRIAGE_KILLS");  // for a long run by hand
  const int rounds = asked ? std::atoi(asked) : 12;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const Folder folder("triage-kill-");
    folder.save(1);
    folder.copy_bundle(1);
    const int status = status_of([&] {
      Host host(folder);
      const triage::Bundle bundle = host.runtime->load_bundle(folder.bundle());
      std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(40'000 + 13'711 * round % 300'000));
        ::kill(::getpid(), SIGKILL);
      });
      for (int version = 2;; ++version) {
        folder.save(version);
        host.policy.reload();
        host.policy.save_state(folder.state());
        const int number = host.policy.version().number;
        host.policy.pin(number);
        host.policy.unpin();
        folder.copy_bundle(version);
        bundle.reload();
      }
    });
    CHECK(WIFSIGNALED(status));
    CHECK(lines_of(folder.log()).second <= 1);
    CHECK(restart(folder, 1'000'000) == "");
  }
}
