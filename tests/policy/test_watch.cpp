#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

namespace fs = std::filesystem;
using fake::eventually;
using triage::Policy;
using triage::Runtime;
using triage::Watch;
using triage::WatchEvent;
using triage::WatchOptions;
using triage::test::first;
using Kind = triage::WatchEvent::Kind;

namespace {

bool becomes(const Policy& policy, float value) {
  return eventually([&] { return first(policy) == value; });
}

/// What a Watch told, in order.
class Events {
 public:
  std::function<void(const WatchEvent&)> listener() {
    return [this](const WatchEvent& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
    };
  }
  std::vector<WatchEvent> of(Kind kind) const {
    std::lock_guard lock(mutex_);
    std::vector<WatchEvent> found;
    for (const WatchEvent& event : events_)
      if (event.kind == kind) found.push_back(event);
    return found;
  }
  bool come(Kind kind, size_t count = 1) const {
    return eventually([&] { return of(kind).size() >= count; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<WatchEvent> events_;
};

/// A policy `add 1` in a watched folder.
struct Watched {
  explicit Watched(std::chrono::milliseconds poll = {}) {
    fake::write(folder / "p.fake", "add 1");
    policy = runtime.load(folder / "p.fake");
    watch =
        runtime.watch(folder.path(),
                      {.debounce = std::chrono::milliseconds(5), .poll_interval = poll, .on_event = events.listener()});
    watch.rescan();  // the look that a watch begins with is over
  }
  fake::Folder folder;
  Events events;
  Runtime runtime;
  Policy policy;
  Watch watch;
};

constexpr std::chrono::milliseconds kernel{0}, polling{5};

}  // namespace

TEST_CASE("a watch survives whatever its listener throws (threads)") {
  fake::Folder folder;
  fake::write(folder / "p.fake", "add 1");
  Runtime runtime;
  const Policy policy = runtime.load(folder / "p.fake");
  std::atomic<int> calls{0};
  Watch watch =
      runtime.watch(folder.path(), {.debounce = std::chrono::milliseconds(5), .on_event = [&](const WatchEvent&) {
                                      if (++calls % 2) throw 1;
                                      throw std::runtime_error("no");
                                    }});
  for (int version = 2; version < 5; ++version) {
    fake::write(folder / "p.fake", "add " + std::to_string(version));
    watch.rescan();
    CHECK(policy.version().number == version);
  }
  CHECK(calls > 1);
}

TEST_CASE("a policy follows its file: rewritten, renamed over, broken, mended") {
  for (const auto poll : {kernel, polling}) {
    CAPTURE(poll.count());
    Watched it(poll);
    fake::write(it.folder / "p.fake", "add 2");
    CHECK(becomes(it.policy, 2));
    fake::rename_save(it.folder / "p.fake", "add 3");
    CHECK(becomes(it.policy, 3));
    fs::rename(it.folder / "p.fake", it.folder / "p.fake~");  // as some editors save: the old file is kept as a backup
    fake::write(it.folder / "p.fake", "add 4");
    CHECK(becomes(it.policy, 4));
    REQUIRE(it.events.come(Kind::reloaded, 3));
    CHECK(it.events.of(Kind::reloaded).back().path == (it.folder / "p.fake").string());

    fake::rename_save(it.folder / "p.fake", "add 5\nbroken here");
    const auto here = [](const WatchEvent& event) { return event.message.find("here") != std::string::npos; };
    REQUIRE(
        eventually([&] { return !it.events.of(Kind::refused).empty() && here(it.events.of(Kind::refused).back()); }));
    const WatchEvent refused = it.events.of(Kind::refused).back();
    CHECK(refused.source.line == 2);
    CHECK(refused.version == it.policy.version().number);
    CHECK(first(it.policy) == 4);
    fake::rename_save(it.folder / "p.fake", "add 6");
    CHECK(becomes(it.policy, 6));
    CHECK_FALSE(it.policy.version().last_error.has_value());
  }
}

TEST_CASE("a file that is deleted leaves its policy live, and may come back") {
  for (const auto poll : {kernel, polling}) {
    CAPTURE(poll.count());
    Watched it(poll);
    fs::remove(it.folder / "p.fake");
    REQUIRE(it.events.come(Kind::deleted));
    CHECK(it.policy.version().last_error->message.find("deleted") != std::string::npos);
    CHECK(first(it.policy) == 1);
    fake::rename_save(it.folder / "p.fake", "add 1");
    REQUIRE(it.events.come(Kind::restored));
    CHECK_FALSE(it.policy.version().last_error.has_value());
    fs::remove(it.folder / "p.fake");
    REQUIRE(it.events.come(Kind::deleted, 2));
    fake::write(it.folder / "p.fake", "add 2");
    CHECK(becomes(it.policy, 2));
  }
}

TEST_CASE("a broken file that becomes what is live again is told of") {
  Watched it;
  fake::rename_save(it.folder / "p.fake", "broken here");
  REQUIRE(it.events.come(Kind::refused));
  fake::rename_save(it.folder / "p.fake", "add 1");
  REQUIRE(it.events.come(Kind::restored));
  CHECK(it.policy.version().number == 1);
  CHECK_FALSE(it.policy.version().last_error.has_value());
}

TEST_CASE("a file that is being written is left alone, whatever else happens") {
  Watched it;
  it.watch = it.runtime.watch(it.folder.path(), {.debounce = std::chrono::hours(1), .on_event = it.events.listener()});
  it.watch.rescan();
  fake::write(it.folder / "p.fake", "add 2");
  fake::write(it.folder / "new.fake", "add 1");
  const Policy other = it.runtime.load_source("add 1", "other.fake");  // makes the watch look
  REQUIRE(it.events.come(Kind::added));
  CHECK(it.policy.version().number == 1);
  it.watch.rescan();  // asked outright
  CHECK(first(it.policy) == 2);
}

TEST_CASE("a write in several pieces ends in the whole file, and the old version serves meanwhile") {
  Watched it;
  const std::string text = "add 1\nmul 3\nadd 1";
  FILE* file = std::fopen((it.folder / "p.fake").c_str(), "w");
  for (const char c : text) {
    std::fputc(c, file);
    std::fflush(file);
    CHECK(first(it.policy) == 1);
  }
  std::fclose(file);
  CHECK(becomes(it.policy, 4));
}

TEST_CASE("links that are swapped as a whole, as Kubernetes does") {
  for (const auto poll : {kernel, polling}) {
    CAPTURE(poll.count());
    fake::Folder folder;
    fs::create_directory(folder / "..one");
    fs::create_directory(folder / "..two");
    fake::write(folder / "..one/p.fake", "add 1");
    fake::write(folder / "..two/p.fake", "add 2");
    fs::create_directory_symlink("..one", folder / "..data");
    fs::create_symlink("..data/p.fake", folder / "p.fake");
    Runtime runtime;
    const Policy policy = runtime.load(folder / "p.fake");
    const Watch watch = runtime.watch(folder.path(), {.debounce = std::chrono::milliseconds(5), .poll_interval = poll});
    CHECK(first(policy) == 1);
    fs::create_directory_symlink("..two", folder / "..data_tmp");
    fs::rename(folder / "..data_tmp", folder / "..data");
    fs::remove_all(folder / "..one");
    CHECK(becomes(policy, 2));
    fake::write(folder / "..two/p.fake", "add 3");  // edited behind the link
    CHECK(becomes(policy, 3));
  }
}

TEST_CASE("the directory itself is replaced, lost, and found again") {
  for (const auto poll : {kernel, polling}) {
    CAPTURE(poll.count());
    fake::Folder folder;
    Events events;
    fs::create_directories(folder / "policies");
    fake::write(folder / "policies/p.fake", "add 1");
    Runtime runtime;
    const Policy policy = runtime.load(folder / "policies/p.fake");
    const Watch watch =
        runtime.watch(folder / "policies",
                      {.debounce = std::chrono::milliseconds(5), .poll_interval = poll, .on_event = events.listener()});

    fs::create_directories(folder / "next");
    fake::write(folder / "next/p.fake", "add 2");
    fs::rename(folder / "policies", folder / "old");
    fs::rename(folder / "next", folder / "policies");
    CHECK(becomes(policy, 2));
    fake::write(folder / "policies/p.fake", "add 3");
    CHECK(becomes(policy, 3));

    fs::remove_all(folder / "policies");
    REQUIRE(events.come(Kind::lost));
    CHECK(first(policy) == 3);
    fs::create_directories(folder / "policies");
    fake::write(folder / "policies/p.fake", "add 4");
    CHECK(becomes(policy, 4));
    REQUIRE(events.come(Kind::found));

    for (int i = 5; i < 10; ++i) {  // the new directory may get the inode number of the old one
      fs::remove_all(folder / "policies");
      fs::create_directories(folder / "policies");
      fake::write(folder / "policies/p.fake", fmt::format("add {}", i));
      CHECK(becomes(policy, static_cast<float>(i)));
    }
  }
}

TEST_CASE("1,000 fast edits end in the last one") {
  Watched it;
  for (int i = 1; i <= 1000; ++i) {
    const std::string text = i % 7 == 0 ? "broken in between" : fmt::format("add {}", i);
    if (i % 2) {
      fake::write(it.folder / "p.fake", text);
    } else {
      fake::rename_save(it.folder / "p.fake", text);
    }
    if (i % 50 == 0) first(it.policy);
  }
  CHECK(becomes(it.policy, 1000));
  CHECK_FALSE(it.policy.version().last_error.has_value());
  CHECK(it.policy.version().number <= 1001);
}

TEST_CASE("many changes at once are not a reload each") {
  Watched it;
  it.watch =
      it.runtime.watch(it.folder.path(), {.debounce = std::chrono::seconds(3), .on_event = it.events.listener()});
  it.watch.rescan();
  for (int i = 2; i <= 20; ++i) fake::write(it.folder / "p.fake", fmt::format("add {}", i));
  CHECK(becomes(it.policy, 20));
  CHECK(it.policy.version().number < 6);  // 2, unless this machine stood still for seconds
}

TEST_CASE("the queue of events overflows, and nothing is missed") {
  // While the watching thread is kept busy, more happens than the queue of the kernel holds.
  std::atomic<bool> go_on{false};
  Events events;
  const auto listen = events.listener();
  Watched it;
  it.watch = it.runtime.watch(it.folder.path(),
                              {.debounce = std::chrono::milliseconds(1), .on_event = [&](const WatchEvent& event) {
                                 listen(event);
                                 while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                               }});
  struct LetGo {  // also when a check below fails: the watch waits for its thread
    std::atomic<bool>& flag;
    ~LetGo() { flag = true; }
  } const let_go{go_on};
  fake::rename_save(it.folder / "p.fake", "add 2");  // whole at once: the first event is that of the new version
  REQUIRE(events.come(Kind::reloaded));
  for (int i = 0; i < 20'000; ++i) {
    const std::string name = fmt::format("x{}", i % 2);
    ::close(::creat((it.folder / name).c_str(), 0600));
  }
  fake::rename_save(it.folder / "p.fake", "add 3");
  go_on = true;
  CHECK(becomes(it.policy, 3));
}

TEST_CASE("new files are told of once, and not loaded by themselves") {
  for (const auto poll : {kernel, polling}) {
    CAPTURE(poll.count());
    Watched it(poll);
    fake::write(it.folder / ".p.fake.swp", "add 1");
    fake::write(it.folder / ".hidden.fake", "add 1");
    fake::write(it.folder / "notes.txt", "no policy");
    fake::write(it.folder / "new.fake", "add 7");
    REQUIRE(it.events.come(Kind::added));
    it.watch.rescan();
    it.watch.rescan();
    REQUIRE(it.events.of(Kind::added).size() == 1);
    CHECK(it.events.of(Kind::added)[0].path == (it.folder / "new.fake").string());
    CHECK(it.runtime.policies().size() == 1);
    const Policy loaded = it.runtime.load(it.folder / "new.fake");  // and follows its file from here on
    fake::write(it.folder / "new.fake", "add 8");
    CHECK(becomes(loaded, 8));
  }
}

TEST_CASE("what changed before the watch began is taken up; what changes after it ended is not") {
  fake::Folder folder;
  fake::write(folder / "p.fake", "add 1");
  Runtime runtime;
  const Policy policy = runtime.load(folder / "p.fake");
  fake::write(folder / "p.fake", "add 2");
  Watch watch = runtime.watch(folder.path());
  CHECK(becomes(policy, 2));
  watch.stop();
  CHECK_FALSE(watch);
  fake::write(folder / "p.fake", "add 3");
  CHECK(policy.version().number == 2);
  Watch again = runtime.watch(folder.path());
  again.rescan();
  CHECK(first(policy) == 3);
}

TEST_CASE("several watches, relative paths, and a trailing slash") {
  fake::Folder folder;
  fs::create_directory(folder / "sub");
  fake::write(folder / "sub/p.fake", "add 1");
  Runtime runtime;
  const Policy policy = runtime.load(folder / "sub/../sub/p.fake");
  const Watch one = runtime.watch((folder / "sub").string() + "/");
  Watch two = runtime.watch(fs::relative(folder / "sub"), {.poll_interval = polling});
  fake::write(folder / "sub/p.fake", "add 2");
  CHECK(becomes(policy, 2));
  two.rescan();
  CHECK(policy.version().number == 2);
}

TEST_CASE("a pinned policy stays, a broken version is not tried again without cause") {
  Watched it;
  it.policy.pin(1);
  fake::write(it.folder / "p.fake", "add 2");
  it.watch.rescan();
  CHECK(first(it.policy) == 1);
  CHECK(it.policy.unpin() == triage::Reload::swapped);
  CHECK(first(it.policy) == 2);
  fake::rename_save(it.folder / "p.fake", "broken here");
  REQUIRE(it.events.come(Kind::refused));
  it.watch.rescan();
  it.watch.rescan();
  CHECK(it.events.of(Kind::refused).size() == 1);
  CHECK(it.policy.reload() == triage::Reload::refused);
}

TEST_CASE("a watch ends at once, from its own callback too, and may outlive the runtime") {
  fake::Folder folder;
  fake::write(folder / "p.fake", "add 1");
  for (int i = 0; i < 50; ++i) {
    Runtime runtime;
    const Policy policy = runtime.load(folder / "p.fake");
    const Watch watch = runtime.watch(folder.path(), {.debounce = std::chrono::hours(1)});
  }
  {
    Policy policy;
    Watch watch;
    {
      Runtime runtime;
      policy = runtime.load(folder / "p.fake");
      watch = runtime.watch(folder.path(), {.debounce = std::chrono::milliseconds(5)});
    }
    fake::write(folder / "p.fake", "add 2");
    CHECK(becomes(policy, 2));
  }
  std::atomic<bool> stopped{false};
  Runtime runtime;
  const Policy policy = runtime.load(folder / "p.fake");
  Watch watch;
  std::mutex ready;
  std::unique_lock lock(ready);
  watch = runtime.watch(folder.path(), {.debounce = std::chrono::milliseconds(1), .on_event = [&](const WatchEvent&) {
                                          {
                                            std::lock_guard wait(ready);
                                            watch.stop();
                                          }
                                          stopped = true;
                                        }});
  lock.unlock();
  fake::write(folder / "p.fake", "add 3");
  CHECK(eventually([&] { return stopped.load(); }));
}

TEST_CASE("a callback that throws does not end the watch") {
  Watched it;
  it.watch = it.runtime.watch(it.folder.path(),
                              {.debounce = std::chrono::milliseconds(1),
                               .on_event = [](const WatchEvent&) { throw std::runtime_error("on purpose"); }});
  for (int i = 2; i < 5; ++i) {
    fake::rename_save(it.folder / "p.fake", fmt::format("add {}", i));
    CHECK(becomes(it.policy, static_cast<float>(i)));
  }
}

TEST_CASE("what cannot be watched is refused with a reason") {
  fake::Folder folder;
  Runtime runtime;
  CHECK(fake::message_of([&] { runtime.watch(folder / "none"); }).find("there is no such directory") !=
        std::string::npos);
  fake::write(folder / "p.fake", "add 1");
  CHECK(fake::message_of([&] { runtime.watch(folder / "p.fake"); }).find("it is not a directory") != std::string::npos);
  CHECK_THROWS_AS(Watch().rescan(), triage::InputError);
}

TEST_CASE("edits under load from four threads: no failed call") {
  Watched it;
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0}, torn{0};
  fake::write(it.folder / "q.fake", "pair 0");
  const Policy pair = it.runtime.load(it.folder / "q.fake");
  const at::Tensor z = at::rand({8, 4});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        try {
          const auto [sum, value] = pair.run<2>({z});
          if (!at::equal(sum, z + value)) ++torn;
        } catch (const std::exception&) {
          ++failed;
        }
      }
    });
  for (int i = 1; i <= 100; ++i) {
    fake::rename_save(it.folder / "q.fake", fmt::format("pair {}", i));
    if (i % 3 == 0) it.watch.rescan();
  }
  it.watch.rescan();
  stop = true;
  for (auto& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(torn == 0);
  CHECK(pair.run<2>({z})[1].flatten()[0].item<float>() == 100);
}
