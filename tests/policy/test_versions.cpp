#include "tests/logs.h"
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <doctest/doctest.h>
#include <triage/runtime.h>

#include <array>
#include <atomic>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

using triage::Policy;
using triage::Reload;
using triage::Runtime;
using triage::test::first;
using triage::test::says;

namespace {

std::string refusal(const Policy& policy, const std::string& source) {
  REQUIRE(policy.replace(source) == Reload::refused);
  REQUIRE(policy.version().last_error.has_value());
  return policy.version().last_error->message;
}

}  // namespace

TEST_CASE("a reload makes a new version, and the same bytes do not") {
  fake::Folder folder;
  Runtime runtime;
  fake::write(folder / "p.fake", "add 1");
  const Policy policy = runtime.load(folder / "p.fake");
  const triage::VersionInfo one = policy.version();
  CHECK(one.number == 1);
  CHECK(one.live);
  CHECK(one.path == (folder / "p.fake").string());
  CHECK(one.hash.size() == 16);
  CHECK(policy.reload() == Reload::unchanged);
  fake::write(folder / "p.fake", "add 2");
  CHECK(policy.reload() == Reload::swapped);
  CHECK(policy.version().number == 2);
  CHECK(policy.version().hash != one.hash);
  CHECK(policy.version().since >= one.since);
  CHECK(first(policy) == 2.0f);
}

TEST_CASE("a broken source leaves the old version live, and status says what and where") {
  fake::Folder folder;
  Runtime runtime;
  fake::write(folder / "p.fake", "add 1");
  const Policy policy = runtime.load(folder / "p.fake");
  fake::write(folder / "p.fake", "add 2\n\nbroken on purpose");
  CHECK(policy.reload() == Reload::refused);
  const triage::VersionInfo info = policy.version();
  CHECK(info.number == 1);
  REQUIRE(info.last_error.has_value());
  CHECK(says(info.last_error->message, "on purpose"));
  CHECK(info.last_error->source.line == 3);
  CHECK(says(info.last_error->source.file, "p.fake"));
  CHECK(first(policy) == 1.0f);

  fake::write(folder / "p.fake", "");  // a write that was cut off
  CHECK(policy.reload() == Reload::refused);
  CHECK(says(policy.version().last_error->message, "empty"));

  fake::write(folder / "p.fake", "add 1");  // back to what is live: all is well again
  CHECK(policy.reload() == Reload::unchanged);
  CHECK_FALSE(policy.version().last_error.has_value());
}

TEST_CASE("a reload that changes the contract is refused") {
  Runtime runtime;
  const Policy policy = runtime.load_source("inputs z f\noutputs z f\nparam limit 2.0\nadd 1", "p.fake");
  CHECK(says(refusal(policy, "inputs z\noutputs z f\nparam limit 2.0"), "the inputs from (z, f) to (z)"));
  CHECK(says(refusal(policy, "inputs f z\noutputs z f\nparam limit 2.0"), "the inputs from (z, f) to (f, z)"));
  CHECK(says(refusal(policy, "inputs z f\noutputs z g\nparam limit 2.0"), "the outputs from (z, f) to (z, g)"));
  CHECK(says(refusal(policy, "inputs z f\nparam limit 2.0"), "the outputs from (z, f) to unnamed ones"));
  CHECK(says(refusal(policy, "inputs z f\noutputs z f\nadd 1"), "'limit' is gone"));
  CHECK(
      says(refusal(policy, "inputs z f\noutputs z f\nint_param limit 2"), "param 'limit' from a number to an integer"));
  CHECK(policy.version().number == 1);
  CHECK(policy.replace("inputs z f\noutputs z f\nparam limit 2.0\nparam more 1.0\nadd 3") == Reload::swapped);
  CHECK(policy.version().number == 2);
}

TEST_CASE("outputs without names are compared as far as they have been seen") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  CHECK(first(policy) == 1.0f);
  CHECK(says(refusal(policy, "pair 1"), "the outputs from (out0) to (out0, out1)"));
  CHECK(policy.replace("add 4") == Reload::swapped);

  const Policy two = runtime.load_source("flags", "two.fake");
  two.prepare({at::zeros({4, 2})});
  CHECK(says(refusal(two, "pair 1"), "the type of output 'out1' from flags to Float"));
}

TEST_CASE("a new version is captured for the shapes in use before it goes live, and refused when it fails on them") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  policy.prepare({at::zeros({4, 2})});
  policy.prepare({at::zeros({4, 2}, at::kDouble)});
  CHECK(policy.replace("add 2") == Reload::swapped);
  CHECK(policy.graphs().size() == 2);
  CHECK(says(refusal(policy, "add 3\nraise it"), "raised"));
  CHECK(first(policy) == 2.0f);
}

TEST_CASE("a version that fails its own tests does not go live") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  CHECK(says(refusal(policy, "add 2\ntest keeps_shape shape_changed"), "'keeps_shape': shape_changed"));
  CHECK(policy.replace("add 2\ntest keeps_shape") == Reload::swapped);
}

TEST_CASE("rollback goes back until the next change, pin whatever comes") {
  fake::Folder folder;
  Runtime runtime({.keep_versions = 3});
  fake::write(folder / "p.fake", "add 1");
  const Policy policy = runtime.load(folder / "p.fake");
  for (int i = 2; i <= 4; ++i) {
    fake::write(folder / "p.fake", "add " + std::to_string(i));
    REQUIRE(policy.reload() == Reload::swapped);
  }
  REQUIRE(policy.versions().size() == 3);
  CHECK(policy.versions().front().number == 2);
  CHECK(says(fake::message_of([&] { policy.rollback(1); }), "no version 1 to go back to; it keeps 2, 3, 4"));

  policy.rollback(2);
  CHECK(policy.version().number == 2);
  CHECK(first(policy) == 2.0f);
  CHECK(policy.versions()[0].live);
  fake::write(folder / "p.fake", "add 5");
  CHECK(policy.reload() == Reload::swapped);
  CHECK(first(policy) == 5.0f);

  policy.pin(4);
  CHECK(policy.version().pinned);
  fake::write(folder / "p.fake", "add 6");
  CHECK(policy.reload() == Reload::unchanged);
  CHECK(first(policy) == 4.0f);
  CHECK(policy.unpin() == Reload::swapped);
  CHECK(first(policy) == 6.0f);
  CHECK_FALSE(policy.version().pinned);
}

TEST_CASE("a deleted file leaves the last version live") {
  fake::Folder folder;
  Runtime runtime;
  fake::write(folder / "p.fake", "add 1");
  const Policy policy = runtime.load(folder / "p.fake");
  std::filesystem::remove(folder / "p.fake");
  CHECK(policy.reload() == Reload::refused);
  CHECK(says(policy.version().last_error->message, "was deleted"));
  CHECK(first(policy) == 1.0f);
  fake::write(folder / "p.fake", "add 1");
  CHECK(policy.reload() == Reload::unchanged);
  CHECK_FALSE(policy.version().last_error.has_value());
  std::filesystem::remove(folder / "p.fake");
  std::filesystem::create_directory(folder / "p.fake");
  CHECK(policy.reload() == Reload::refused);
  CHECK(says(policy.version().last_error->message, "it is a directory"));
  std::filesystem::remove(folder / "p.fake");
  fake::write(folder / "p.fake", "add 2");
  CHECK(policy.reload() == Reload::swapped);
}

TEST_CASE("the last good source survives a restart") {
  fake::Folder folder;
  const triage::RuntimeOptions options{.cache_dir = folder / "cache"};
  fake::write(folder / "p.fake", "add 1");
  {
    Runtime runtime(options);
    const Policy policy = runtime.load(folder / "p.fake");
    fake::write(folder / "p.fake", "add 2");
    CHECK(policy.reload() == Reload::swapped);
  }
  fake::write(folder / "p.fake", "broken on purpose");
  {
    Runtime runtime(options);
    const Policy policy = runtime.load(folder / "p.fake");
    CHECK(first(policy) == 2.0f);
    CHECK(says(policy.version().last_error->message, "on purpose"));
    fake::write(folder / "p.fake", "add 3");
    CHECK(policy.reload() == Reload::swapped);
    CHECK_FALSE(policy.version().last_error.has_value());
  }
  std::filesystem::remove(folder / "p.fake");
  CHECK(first(Runtime(options).load(folder / "p.fake")) == 3.0f);
  CHECK_THROWS_AS(Runtime().load(folder / "p.fake"), triage::FileError);
  for (const auto& item : std::filesystem::directory_iterator(folder / "cache/last_good"))
    CHECK(item.path().extension() == ".fake");

  const std::filesystem::path kept = folder / "cache/last_good";
  const auto only = [&] { return std::filesystem::directory_iterator(kept)->path(); };
  using std::filesystem::perms;
  const auto is_found = [&] {
    try {
      return first(Runtime(options).load(folder / "p.fake")) == 3.0f;
    } catch (const triage::FileError&) {
      return false;
    }
  };
  CHECK(is_found());
  for (const auto& path : {kept, only()}) {  // others could have written there
    std::filesystem::permissions(path, perms::group_write, std::filesystem::perm_options::add);
    CHECK_FALSE(is_found());
    std::filesystem::permissions(path, perms::group_write, std::filesystem::perm_options::remove);
    CHECK(is_found());
  }
  const std::filesystem::path good = only();
  std::string text = fake::read(good);
  fake::write(good, "add 4" + text.substr(5));  // not what was written
  CHECK_FALSE(is_found());
  fake::write(good, text);
  CHECK(is_found());
  std::filesystem::rename(good, folder / "elsewhere");
  std::filesystem::create_symlink(folder / "elsewhere", good);
  CHECK_FALSE(is_found());

  std::ofstream(folder / "blocked") << "a file where a folder is wanted";
  fake::write(folder / "p.fake", "add 1");
  CHECK(first(Runtime({.cache_dir = folder / "blocked"}).load(folder / "p.fake")) == 1.0f);  // a cache is never needed
}

TEST_CASE("the log that the host gives hears of versions, refusals and failures, and is not flooded") {
  std::ostringstream text;
  Runtime runtime({.log = triage::test::log_to(text)});
  const Policy policy = runtime.load_source("fail_unless_rows 4", "p.fake");
  for (int i = 0; i < 100; ++i) CHECK_THROWS(policy.run({at::zeros({3, 2})}));
  CHECK(policy.replace("broken on purpose") == Reload::refused);
  CHECK(policy.replace("add 1") == Reload::swapped);
  CHECK(says(text.str(), "version 1 failed (failure 64 of this version)"));
  CHECK_FALSE(says(text.str(), "failure 63"));
  CHECK(says(text.str(), "the new source was refused, version 1 stays live: p.fake:1:"));
  CHECK(says(text.str(), "version 2 is live"));
}

TEST_CASE("records of the log have fields, and none comes when the Runtime and its policies are gone") {
  struct Kept {
    triage::LogLevel level;
    std::map<std::string, std::string> fields;
  };
  std::vector<Kept> records;
  std::optional<Policy> policy;
  {
    Runtime runtime({.log = [&](const triage::LogRecord& record) {
      Kept& kept = records.emplace_back(Kept{record.level, {}});
      for (const auto& [name, value] : record.fields) kept.fields.emplace(name, value);
      throw std::runtime_error("a log that fails harms nobody");
    }});
    policy = runtime.load_source("add 1", "p.fake");
    CHECK(policy->replace("broken on\npurpose") == Reload::refused);
    CHECK(policy->replace("add 2") == Reload::swapped);
  }
  const auto of = [&](triage::LogLevel level) {
    for (const Kept& kept : records)
      if (kept.level == level) return kept.fields;
    return std::map<std::string, std::string>{};
  };
  const auto live = of(triage::LogLevel::info), refused = of(triage::LogLevel::error);
  CHECK(live.at("policy") == "p");
  CHECK(live.at("path") == "p.fake");
  CHECK(live.at("version") == "2");
  CHECK(says(refused.at("error"), "p.fake:1:"));
  const size_t before = records.size();
  CHECK(policy->replace("broken") == Reload::refused);
  CHECK(records.size() > before);  // a policy keeps its Runtime's log
  policy.reset();
  CHECK(fake::eventually([&] { return fake::alive == 0; }));
}

TEST_CASE("a log may call the runtime, from several threads, and end with its Runtime (threads)") {
  std::atomic<int> records{0};
  {
    std::array<Policy, 2> policies;
    Runtime runtime({.log = [&](const triage::LogRecord& record) {
      ++records;
      if (record.level != triage::LogLevel::error) return;
      for (Policy& policy : policies) policy.replace("add 7");  // waits for whoever changes that policy
      triage::set_log(triage::test::no_log());
    }});
    for (Policy& policy : policies) policy = runtime.load_source("add 1", "p.fake");
    std::vector<std::thread> threads;
    for (Policy& policy : policies)
      threads.emplace_back([&policy] {
        for (int i = 0; i < 50; ++i) policy.replace("broken " + std::to_string(i));
      });
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(records >= 100);
}

TEST_CASE(
    "what follows a version is captured as calls run it: without gradients where they have none, in inference mode") {
  Runtime runtime({.log = triage::test::no_log()});
  const Policy policy = runtime.load_source("add 1", "p.fake");
  float number = 1;
  using Mode = std::pair<bool, bool>;
  for (const Mode& mode : {Mode(true, false), {false, false}, {false, true}, {true, false}}) {
    const bool gradients = mode.first, inference = mode.second;
    CAPTURE(gradients);
    CAPTURE(inference);
    const c10::InferenceMode inference_mode(inference);
    const c10::AutoGradMode grad_mode(gradients);
    policy.run({at::zeros({2, 3})});
    std::thread([&] { policy.replace("add " + std::to_string(static_cast<int>(++number))); }).join();
    triage::RunInfo info;
    CHECK(policy.run({at::zeros({2, 3})}, {.info = &info})[0].equal(at::full({2, 3}, number)));
    CHECK(info.form == triage::CallForm::graph);
  }
}

TEST_CASE("a Runtime without a log of its own writes to that of the process") {
  std::ostringstream text;
  triage::set_log(triage::test::log_to(text));
  CHECK(Runtime().load_source("add 1", "p.fake").replace("broken on purpose") == Reload::refused);
  triage::set_log(triage::test::no_log());
  CHECK(Runtime().load_source("add 1", "other.fake").replace("broken on purpose") == Reload::refused);
  CHECK(says(text.str(), "the new source was refused, version 1 stays live: p.fake:1:"));
  CHECK_FALSE(says(text.str(), "other.fake"));
}

TEST_CASE("10,000 reloads leave nothing behind") {
  const int before = fake::alive;
  {
    Runtime runtime({.keep_versions = 4});
    const Policy policy = runtime.load_source("add 0", "p.fake");
    int swapped = 0;
    for (int i = 1; i <= 10'000; ++i) swapped += policy.replace("add " + std::to_string(i)) == Reload::swapped;
    CHECK(swapped == 10'000);
    CHECK(policy.version().number == 10'001);
    // Those that are kept, and the last that passed its trial: it stands in for the live one.
    CHECK(fake::eventually([&] { return fake::alive == before + 5; }));
  }
  CHECK(fake::alive == before);
}
