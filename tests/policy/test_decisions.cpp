#include "runtime/policy/decisions/mask.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <triage/triage.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

using triage::Answered;
using triage::DecisionLog;
using triage::DecisionLogOptions;
using triage::OnError;
using triage::Policy;
using triage::Runtime;
using triage::RuntimeOptions;
using triage::test::batch;
using Json = nlohmann::json;

namespace {

namespace fs = std::filesystem;

constexpr const char* repairs = "outputs z f\nmul 2\nflags";

/// Collects lines.
class Lines {
 public:
  auto sink() {
    return [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      CHECK(line.find('\n') == std::string_view::npos);
      lines_.emplace_back(line);
    };
  }
  std::vector<Json> json() {
    const std::lock_guard lock(mutex_);
    std::vector<Json> parsed;
    for (const std::string& line : lines_) parsed.push_back(Json::parse(line));
    return parsed;
  }
  std::vector<std::string> text() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::shared_ptr<DecisionLog> log_of(DecisionLogOptions options) {
  options.events = false;  // test_decision_events.cpp is about these
  return std::make_shared<DecisionLog>(std::move(options));
}

RuntimeOptions with(std::shared_ptr<DecisionLog> log) {
  RuntimeOptions options;
  options.decisions = std::move(log);
  options.trial_calls = 0;
  options.failures_to_revert = 0;
  options.log = [](const triage::LogRecord&) {};
  return options;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::istringstream text(fake::read(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("a call with flagged samples gets a line that says who they are and what became of them") {
  Lines lines;
  const auto log = log_of({.on_line = lines.sink()});
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source(repairs, "p.fake");
  const std::vector<std::string> ids = {"user-1", "user-2", "user-3", "user-4"};
  policy.run({batch(4, 2)}, {.decision_id = "d-17", .trace_id = "t-1", .sample_ids = ids});
  policy.run({batch(4, 0)}, {.sample_ids = ids});  // nothing is wrong with it
  log->flush();
  const std::vector<Json> all = lines.json();
  REQUIRE(all.size() == 1);
  const Json& line = all[0];
  CHECK(std::regex_match(line["time"].get<std::string>(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)")));
  CHECK(line["decision_id"] == "d-17");
  CHECK(line["trace_id"] == "t-1");
  CHECK(line["policy"] == "p");
  CHECK(line["path"] == "p.fake");
  CHECK(line["version"] == 1);
  CHECK(line["hash"] == policy.version().hash);
  CHECK(line["answered"] == "live");
  CHECK(line["form"] == "capture");
  CHECK(line["duration_us"] > 0);
  CHECK(line["batch"] == 4);
  CHECK(line["flagged"] == 2);
  CHECK(line["repaired"] == 2);
  CHECK_FALSE(line.contains("failure"));
  CHECK_FALSE(line.contains("live_version"));
  CHECK_FALSE(line.contains("capsule"));
  REQUIRE(line["samples"].size() == 2);
  const Json& sample = line["samples"][1];
  CHECK(sample["sample"] == 1);
  CHECK(sample["sample_id"] == "user-2");
  CHECK(sample["done"] == "repaired");
  REQUIRE(sample["errors"].size() == 1);
  CHECK(sample["errors"][0]["code"] == "NAN");
  CHECK(sample["errors"][0]["severity"] == "CRITICAL");
  CHECK(sample["errors"][0]["location"].is_string());
  CHECK(log->counts().written == 1);
  CHECK(log->counts().dropped == 0);
  CHECK(log->counts().failed == 0);
}

TEST_CASE("a sample is kept where no output differs, and not compared where no output can be") {
  Lines lines;
  const auto log = log_of({.on_line = lines.sink()});
  Runtime runtime(with(log));
  runtime.load_source("outputs z f\nmul 1\nflags", "p.fake").run({batch(2, 1)});
  runtime.load_source("outputs z f\nmul 1\nflags", "p.fake").run({batch(2, 1)}, {.donate = {0}});
  runtime.load_source("outputs other f\nmul 1\nflags", "p.fake").run({batch(2, 1)});
  log->flush();
  const std::vector<Json> all = lines.json();
  REQUIRE(all.size() == 3);
  CHECK(all[0]["samples"][0]["done"] == "kept");
  CHECK(all[1]["samples"][0]["done"] == "not_compared");
  CHECK(all[2]["samples"][0]["done"] == "not_compared");
}

TEST_CASE("a call that the live version failed gets a line, whatever answers it") {
  Lines lines;
  const auto log = log_of({.on_line = lines.sink()});
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source("outputs z f\nmul 2\nflags", "p.fake");
  policy.run({batch(4, 0)});
  REQUIRE(policy.replace("outputs z f\nraise_above 3\nflags") == triage::Reload::swapped);
  CHECK_THROWS_AS(policy.run({batch(4, 0) * 5}), triage::PolicyError);
  policy.run({batch(4, 0) * 5}, {.on_error = OnError::last_good});
  policy.run({batch(4, 0) * 5}, {.on_error = OnError::pass_through});
  CHECK_THROWS_AS(policy.run({}), triage::InputError);
  CHECK_THROWS_AS(policy.run({at::Tensor()}), triage::InputError);
  log->flush();
  const std::vector<Json> all = lines.json();
  REQUIRE(all.size() == 5);
  CHECK(all[0]["answered"] == "failed");
  CHECK(all[0]["version"] == 2);
  CHECK(all[0]["failure"].get<std::string>().find("too large") != std::string::npos);
  CHECK(all[0]["failure_kind"] == "policy");
  CHECK(all[0]["flagged"] == 0);
  CHECK_FALSE(all[0].contains("samples"));
  CHECK(all[1]["answered"] == "last_good");
  CHECK(all[1]["version"] == 1);
  CHECK(all[1]["live_version"] == 2);
  CHECK(all[1]["failure"] == all[0]["failure"]);
  CHECK(all[2]["answered"] == "passed_through");
  CHECK(all[2]["version"] == 2);
  CHECK(all[2]["flagged"] == 4);
  CHECK(all[2]["repaired"] == 0);
  CHECK(all[2]["samples"][3]["done"] == "passed_through");
  CHECK(all[2]["samples"][3]["errors"][0]["code"] == "UNKNOWN");
  CHECK(all[3]["failure_kind"] == "input");
  CHECK(all[4]["batch"] == 0);
}

TEST_CASE("a call on trial that the version before answers gets a line") {
  Lines lines;
  const auto log = log_of({.on_line = lines.sink()});
  RuntimeOptions options = with(log);
  options.trial_calls = 10;
  options.trial_seconds = 0;
  Runtime runtime(options);
  const Policy policy = runtime.load_source("outputs z\nadd 1", "p.fake");
  policy.run({batch(2, 0)});
  REQUIRE(policy.replace("outputs z\nraise_above 3") == triage::Reload::swapped);
  policy.run({batch(2, 0) * 9});
  log->flush();
  REQUIRE(lines.json().size() == 1);
  CHECK(lines.json()[0]["answered"] == "previous");
  CHECK(lines.json()[0]["version"] == 1);
  CHECK(lines.json()[0]["live_version"] == 2);
}

TEST_CASE("the log counts and reads flags where statistics do not, and then only there") {
  Lines lines;
  const auto log = log_of({.on_line = lines.sink()});
  RuntimeOptions options = with(log);
  options.count_flags = false;
  Runtime runtime(options);
  const Policy policy = runtime.load_source(repairs, "p.fake");
  triage::RunInfo info;
  policy.run({batch(3, 1)}, {.info = &info});
  log->flush();
  CHECK(lines.json().size() == 1);
  CHECK(info.flagged == -1);
  CHECK(policy.statistics().total.samples == 0);
}

TEST_CASE(
    "at most so many samples are listed; the numbers are of all; names are only given where rows are the host's") {
  Lines lines;
  const auto log = log_of({.on_line = lines.sink(), .max_samples = 2});
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source(repairs, "p.fake");
  policy.run({batch(7, 5)});
  log->flush();
  const Json line = lines.json().at(0);
  CHECK(line["flagged"] == 5);
  CHECK(line["repaired"] == 5);
  REQUIRE(line["samples"].size() == 2);
  CHECK(line["samples"][1]["sample"] == 1);
  CHECK_FALSE(line["samples"][1].contains("sample_id"));
}

TEST_CASE("text of scripts and hosts stays inside its line, whatever it is") {
  Lines lines;
  const auto log = log_of({.on_line = lines.sink()});
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source("name a\"b\\c\noutputs z f\nmul 2\nflags", "p.fake");
  using namespace std::string_literals;
  const std::vector<std::string> hostile = {"\n{\"dropped\":9}", "\xff\xfe\xc0", "\0nul"s, "\xe2\x80\xae\x1b[2J",
                                            std::string(100'000, 'x')};
  for (const std::string& text : hostile) {
    const std::vector<std::string> ids = {text};
    policy.run({batch(1, 1)}, {.decision_id = text, .trace_id = text, .sample_ids = ids});
  }
  CHECK_THROWS(runtime.load_source("outputs z f\nraise \"},\x01\xff\nflags", "p.fake").run({batch(1, 0)}));
  log->flush();
  const std::vector<std::string> all = lines.text();
  REQUIRE(all.size() == hostile.size() + 1);
  for (const std::string& line : all) {
    CHECK(line.size() < 8192);
    for (const char c : line) CHECK((c >= 0x20 && c < 0x7F));
  }
  CHECK(Json::parse(all[0])["decision_id"] == hostile[0]);
  CHECK(Json::parse(all[0])["policy"] == "a\"b\\c");
  CHECK(Json::parse(all[1])["decision_id"] == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(Json::parse(all[2])["samples"][0]["sample_id"] == hostile[2]);
}

TEST_CASE("fields are left out and masked by name; equal values stay equal") {
  Lines plain, keyed;
  const std::vector<std::string> masks = {"sample_id", "decision_id"};
  const std::vector<std::string> ids = {"anna", "ben", "anna"};
  for (Lines* lines : {&plain, &keyed}) {
    const auto log = log_of({.on_line = lines->sink(),
                             .drop = {"path", "duration_us", "severity"},
                             .mask = masks,
                             .mask_key = lines == &keyed ? "secret" : ""});
    Runtime runtime(with(log));
    runtime.load_source(repairs, "p.fake").run({batch(3, 3)}, {.decision_id = "anna", .sample_ids = ids});
    log->flush();
    const std::string text = lines->text().at(0);
    CHECK(text.find("anna") == std::string::npos);
    const Json line = Json::parse(text);
    CHECK_FALSE(line.contains("path"));
    CHECK_FALSE(line.contains("duration_us"));
    CHECK_FALSE(line["samples"][0]["errors"][0].contains("severity"));
    CHECK(line["samples"][0]["sample_id"] == line["samples"][2]["sample_id"]);
    CHECK(line["samples"][0]["sample_id"] != line["samples"][1]["sample_id"]);
    CHECK(line["samples"][0]["sample_id"] == line["decision_id"]);
  }
  CHECK(plain.json()[0]["decision_id"] == triage::policy::masked("anna", ""));
  CHECK(plain.json()[0]["decision_id"] != keyed.json()[0]["decision_id"]);
}

TEST_CASE("masks are SHA-256 and HMAC-SHA256, as FIPS 180-4 and RFC 4231 give them") {
  using triage::policy::masked;
  CHECK(masked("", "") == "masked:e3b0c44298fc1c149afbf4c8996fb924");
  CHECK(masked("abc", "") == "masked:ba7816bf8f01cfea414140de5dae2223");
  CHECK(masked("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "") ==
        "masked:248d6a61d20638b8e5c026930c3e6039");
  CHECK(masked(std::string(1'000'000, 'a'), "") == "masked:cdc76e5c9914fb9281a1c7e284d73e67");
  CHECK(masked("Hi There", std::string(20, '\x0b')) == "masked:b0344c61d8db38535ca8afceaf0bf12b");
  CHECK(masked("what do ya want for nothing?", "Jefe") == "masked:5bdcc146bf60754e6a042426089575c7");
  CHECK(masked("Test Using Larger Than Block-Size Key - Hash Key First", std::string(131, '\xaa')) ==
        "masked:60e431591ee0b67f0d8a26aacbf5b77f");
}

TEST_CASE("options that are out of range are refused with what would be right") {
  const auto sink = [](std::string_view) {};
  const auto refused = [](const DecisionLogOptions& options) {
    return fake::message_of([&] { const DecisionLog log(options); });
  };
  CHECK(refused({}).find("neither `file` nor `on_line`") != std::string::npos);
  CHECK(refused({.on_line = sink, .clean_share = 1.5}).find("from 0 to 1, and is 1.5") != std::string::npos);
  CHECK(refused({.on_line = sink, .clean_share = std::nan("")}).find("clean_share") != std::string::npos);
  CHECK(refused({.on_line = sink, .queue_records = 0}).find("queue_records") != std::string::npos);
  CHECK(refused({.on_line = sink, .max_samples = 10'001}).find("max_samples") != std::string::npos);
  CHECK(refused({.on_line = sink, .drop = {"time"}}).find("no field \"time\" that can be dropped") !=
        std::string::npos);
  CHECK(refused({.on_line = sink, .mask = {"batch"}}).find("these can: decision_id") != std::string::npos);
  CHECK(refused({.on_line = sink, .mask = {"capsule"}}).find("capsule_dir") != std::string::npos);
  fake::Folder folder;
  CHECK(refused({.file = folder.path()}).find("a folder") != std::string::npos);
  CHECK(refused({.file = "/dev/null"}).find("regular file") != std::string::npos);
  fake::write(folder / "file", "");
  CHECK_THROWS_AS(DecisionLog({.file = folder / "file" / "below.jsonl"}), triage::FileError);
}

TEST_CASE("a share of clean calls is logged: the same decisions each time, and without names every nth") {
  const auto logged = [](double share, bool named) {
    Lines lines;
    const auto log = log_of({.on_line = lines.sink(), .clean_share = share, .queue_records = 1000});
    Runtime runtime(with(log));
    const Policy policy = runtime.load_source(repairs, "p.fake");
    for (int i = 0; i < 400; ++i)
      policy.run({batch(1, 0)}, {.decision_id = named ? "decision-" + std::to_string(i) : std::string()});
    log->flush();
    std::vector<std::string> ids;
    for (const Json& line : lines.json()) ids.push_back(line.value("decision_id", ""));
    return ids;
  };
  CHECK(logged(0, true).empty());
  CHECK(logged(1, true).size() == 400);
  CHECK(logged(0.25, false).size() == 100);
  const std::vector<std::string> some = logged(0.25, true);
  CHECK(some.size() > 60);
  CHECK(some.size() < 140);
  CHECK(some == logged(0.25, true));
}

TEST_CASE("a file is the user's alone, grows to its bound, and is rotated") {
  fake::Folder folder;
  const fs::path file = folder / "made" / "decisions.jsonl";
  {
    const auto log = log_of({.file = file, .max_file_bytes = 2000, .max_files = 2});
    Runtime runtime(with(log));
    const Policy policy = runtime.load_source(repairs, "p.fake");
    for (int i = 0; i < 40; ++i) policy.run({batch(2, 1)}, {.decision_id = std::to_string(i)});
    log->flush();
    CHECK(log->counts().written == 40);
  }
  std::vector<std::string> names;
  std::string last;
  for (const auto& entry : fs::directory_iterator(file.parent_path())) {
    struct stat status {};
    REQUIRE(::stat(entry.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(status.st_size <= 2000);
    names.push_back(entry.path().filename());
    for (const std::string& line : lines_of(entry.path())) CHECK(Json::accept(line));
  }
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"decisions.1.jsonl", "decisions.2.jsonl", "decisions.jsonl"});
  CHECK(Json::parse(lines_of(file).back())["decision_id"] == "39");
  struct stat status {};
  REQUIRE(::stat(file.parent_path().c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
}

TEST_CASE("a file is appended to, behind a line that a crash has torn") {
  fake::Folder folder;
  fake::write(folder / "d.jsonl", "{\"time\": \"20");
  {
    const auto log = log_of({.file = folder / "d.jsonl"});
    Runtime runtime(with(log));
    runtime.load_source(repairs, "p.fake").run({batch(1, 1)});
  }  // writes what waits
  const std::vector<std::string> lines = lines_of(folder / "d.jsonl");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "{\"time\": \"20");
  CHECK(Json::accept(lines[1]));
}

TEST_CASE("decisions that find the queue full are dropped, counted, and told of in a line") {
  Lines lines;
  std::mutex gate;
  std::atomic<bool> inside{false};
  std::unique_lock closed(gate);
  const auto log = log_of({.on_line =
                               [&, sink = lines.sink()](std::string_view line) {
                                 inside = true;
                                 const std::lock_guard wait(gate);
                                 sink(line);
                               },
                           .queue_records = 4});
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source(repairs, "p.fake");
  policy.run({batch(1, 1)});
  REQUIRE(fake::eventually([&] { return inside.load(); }));
  for (int i = 0; i < 10; ++i) policy.run({batch(1, 1)});  // does not wait
  CHECK(log->counts().dropped == 6);
  closed.unlock();
  log->flush();
  CHECK(log->counts().written == 5);
  const std::vector<Json> all = lines.json();
  REQUIRE(all.size() == 6);
  CHECK(all.back()["dropped"] == 6);
  CHECK(all.back()["since"] <= all.back()["time"]);
}

TEST_CASE("a sink that throws is counted, told once, and reaches no call") {
  std::vector<std::string> told;
  DecisionLogOptions options;
  options.on_line = [n = 0](std::string_view) mutable {
    if (++n % 2) throw std::runtime_error("no\nroom");
    throw 5;
  };
  options.log = [&](const triage::LogRecord& record) { told.emplace_back(record.text); };
  const auto log = log_of(std::move(options));
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source(repairs, "p.fake");
  for (int i = 0; i < 5; ++i) CHECK_NOTHROW(policy.run({batch(1, 1)}));
  log->flush();
  CHECK(log->counts().failed == 5);
  CHECK(log->counts().written == 0);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("`on_line` of the decision log threw: no\\nroom; calls go on") != std::string::npos);
}

TEST_CASE("a file that is deleted or moved is made again; one that cannot be is counted and told once") {
  fake::Folder folder;
  std::vector<std::string> told;
  DecisionLogOptions options;
  options.file = folder / "logs" / "d.jsonl";
  options.log = [&](const triage::LogRecord& record) { told.emplace_back(record.text); };
  const auto log = log_of(std::move(options));
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source(repairs, "p.fake");
  const auto decide = [&] {
    policy.run({batch(1, 1)});
    log->flush();
  };
  decide();
  fs::rename(folder / "logs" / "d.jsonl", folder / "logs" / "elsewhere.jsonl");
  decide();
  CHECK(lines_of(folder / "logs" / "d.jsonl").size() == 1);
  fs::remove_all(folder / "logs");
  decide();
  CHECK(lines_of(folder / "logs" / "d.jsonl").size() == 1);
  fs::remove_all(folder / "logs");
  fake::write(folder / "logs", "in its place");
  decide();
  decide();
  CHECK(log->counts().written == 3);
  CHECK(log->counts().failed == 2);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("the decision log cannot be written") != std::string::npos);
  fs::remove(folder / "logs");
  decide();
  CHECK(log->counts().written == 4);
}

TEST_CASE("a disk that is full fails decisions, not calls; later ones are whole lines again") {
  fake::Folder folder;
  DecisionLogOptions options;
  options.file = folder / "d.jsonl";
  options.log = [](const triage::LogRecord&) {};
  const auto log = log_of(std::move(options));
  Runtime runtime(with(log));
  const Policy policy = runtime.load_source(repairs, "p.fake");
  policy.run({batch(1, 1)});
  log->flush();
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ::getrlimit(RLIMIT_FSIZE, &usual);
  const rlimit full{static_cast<rlim_t>(fs::file_size(folder / "d.jsonl") + 20), usual.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full);
  policy.run({batch(1, 1)});
  log->flush();
  ::setrlimit(RLIMIT_FSIZE, &usual);
  std::signal(SIGXFSZ, before);
  CHECK(log->counts().failed == 1);
  policy.run({batch(1, 1)}, {.decision_id = "last"});
  log->flush();
  CHECK(log->counts().written == 2);
  const std::vector<std::string> lines = lines_of(folder / "d.jsonl");
  CHECK(Json::accept(lines.front()));
  REQUIRE(Json::accept(lines.back()));
  CHECK(Json::parse(lines.back())["decision_id"] == "last");
}

TEST_CASE("threads of several Runtimes share a log, and its counts are of all decisions") {
  fake::Folder folder;
  const auto log =
      log_of({.file = folder / "d.jsonl", .max_file_bytes = 20'000, .max_files = 1000, .queue_records = 64});
  constexpr int threads = 4, calls = 300;
  {
    Runtime first(with(log)), second(with(log));
    const Policy a = first.load_source(repairs, "a.fake"), b = second.load_source(repairs, "b.fake");
    std::vector<std::thread> callers;
    for (int t = 0; t < threads; ++t)
      callers.emplace_back([&, t] {
        for (int i = 0; i < calls; ++i) {
          const std::vector<std::string> ids = {std::to_string(t), std::to_string(i)};
          (t % 2 ? a : b).run({batch(2, 1)}, {.decision_id = ids[1], .sample_ids = ids});
          if (i % 100 == 0) log->flush();
        }
      });
    for (auto& caller : callers) caller.join();
  }
  log->flush();
  const triage::DecisionCounts counts = log->counts();
  CHECK(counts.written + counts.dropped == threads * calls);
  CHECK(counts.failed == 0);
  uint64_t written = 0, dropped = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    for (const std::string& line : lines_of(entry.path())) {
      const Json json = Json::parse(line);
      json.contains("dropped") ? dropped += json["dropped"].get<uint64_t>() : ++written;
    }
  CHECK(written == counts.written);
  CHECK(dropped == counts.dropped);
}

TEST_CASE("the host may let go of its log while calls of threads run, and of the last Runtime in on_line") {
  Lines lines;
  auto log = log_of({.on_line = lines.sink(), .queue_records = 100'000});
  auto runtime = std::make_unique<Runtime>(with(log));
  Policy policy = runtime->load_source(repairs, "p.fake");
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t)
    callers.emplace_back([policy] {
      for (int i = 0; i < 200; ++i) policy.run({batch(2, 1)});
    });
  log.reset();
  runtime.reset();
  policy = Policy();
  for (auto& caller : callers) caller.join();
  callers.clear();
  CHECK(fake::eventually([&] { return lines.text().size() == 600; }));

  struct Host {
    std::unique_ptr<Runtime> runtime;
    std::atomic<int> lines{0};
  };
  const auto host = std::make_shared<Host>();
  host->runtime = std::make_unique<Runtime>(with(log_of({.on_line = [host](std::string_view) {
    host->runtime.reset();
    ++host->lines;
  }})));
  host->runtime->load_source(repairs, "p.fake").run({batch(2, 1)});
  CHECK(fake::eventually([&] { return host->lines.load() == 1; }));
}

TEST_CASE("metrics have the counts of a Runtime's log, and nothing of one without") {
  const auto log = log_of({.on_line = [](std::string_view) {}});
  Runtime runtime(with(log)), without;
  runtime.load_source(repairs, "p.fake").run({batch(1, 1)});
  log->flush();
  const std::string text = metrics_text(runtime);
  CHECK(text.find("# TYPE triage_decisions_total counter\ntriage_decisions_total{result=\"written\"} 1\n"
                  "triage_decisions_total{result=\"dropped\"} 0\ntriage_decisions_total{result=\"failed\"} 0\n") !=
        std::string::npos);
  CHECK(metrics_text(without).find("decisions_total") == std::string::npos);
}
