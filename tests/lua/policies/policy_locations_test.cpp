// Names of locations that policies take and give back: who comes later finds names, and flags that a host keeps stay
// true.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <limits>
#include <map>
#include <string>
#include <thread>

#include "tests/logs.h"

using triage::ErrorLocation;
using triage::Policy;
using triage::Runtime;

namespace {

struct Fresh {
  Fresh() { ErrorLocation::reset(); }
  ~Fresh() { ErrorLocation::reset(); }
};

/// Names `count` places, and returns the flags of the last of them.
std::string naming(const std::string& prefix, int count) {
  return "return function(z) local f for i = 1, " + std::to_string(count) + " do f = flag_nan(z, '" + prefix +
         ".' .. i) end return z, f end";
}

at::Tensor bad_batch() {
  at::Tensor z = at::ones({2, 3});
  z[1][0] = std::numeric_limits<float>::quiet_NaN();
  return z;
}

std::string name_in(const at::Tensor& f) {
  const auto errors = triage::flags::unpack(f, 1);
  return errors.empty() ? "(no error)" : errors[0].location_name;
}

/// Versions are destroyed in the background.
bool eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 2000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return done();
}

bool nobody_holds_names() {
  return eventually([] { return ErrorLocation::usage().held == 0; });
}

}  // namespace

TEST_CASE("T16: policies that come and go give back their names, but for those in flags that they returned") {
  const Fresh fresh;
  std::map<std::string, at::Tensor> kept;
  for (int i = 0; i < 12; ++i) {
    const std::string prefix = "policy" + std::to_string(i);
    const auto outputs = Runtime().load_source(naming(prefix, 200), "gone.lua").run({bad_batch()});
    kept.emplace(prefix + ".200", outputs[1]);
  }
  REQUIRE(nobody_holds_names());
  const Policy late = Runtime().load_source(naming("late", 250), "late.lua");
  CHECK(name_in(late.run({bad_batch()})[1]) == "late.250");
  for (const auto& [name, f] : kept) CHECK(name_in(f) == name);
  const triage::LocationUsage usage = ErrorLocation::usage();
  CHECK(usage.kept == 12);
  CHECK(usage.unnamed == 0);
  CHECK(usage.reused == 0);
}

TEST_CASE("T16: reloads that rename locations give back the names of versions that are gone") {
  const Fresh fresh;
  const Policy policy = Runtime().load_source(naming("version0", 60), "policy.lua");
  const at::Tensor first = policy.run({bad_batch()})[1];
  for (int i = 1; i <= 25; ++i) {  // up to ten versions are there at once
    const std::string prefix = "version" + std::to_string(i);
    REQUIRE(policy.replace(naming(prefix, 60)) == triage::Reload::swapped);
    CHECK(name_in(policy.run({bad_batch()})[1]) == prefix + ".60");
  }
  CHECK(name_in(first) == "version0.60");
}

TEST_CASE("T16: where flags leave unseen, names last") {
  const Fresh fresh;
  const char* const ways[] = {
      "return function(z) local f = flag_nan(z, 'unseen') return z, err.get_first_location(f) end",
      "return function(z) return z, torch.tensor(ErrorLocation.register('unseen')):to(torch.float32) end",
      "return function(z) local f = flag_nan(z, 'unseen') return z, f:view({-1}) end",
      ("return policy{inputs = {'z'}, outputs = {'z'}, state = {f = {dtype = torch.int64, shape = {'N', 4}}},"
       " run = function(z, s) return z, {f = flag_nan(z, 'unseen')} end}"),
  };
  for (const char* const way : ways) {
    CAPTURE(std::string(way));
    ErrorLocation::reset();
    Runtime().load_source(way, "policy.lua").run({bad_batch()});
    REQUIRE(nobody_holds_names());
    CHECK(ErrorLocation::usage().kept == 1);
  }
  triage::RuntimeOptions options;
  options.count_flags = false;
  ErrorLocation::reset();
  Runtime(options).load_source(naming("uncounted", 3), "policy.lua").run({bad_batch()});
  REQUIRE(nobody_holds_names());
  CHECK(ErrorLocation::usage().kept == 3);
  {
    ErrorLocation::reset();
    const Policy policy = Runtime().load_source(naming("graph", 3), "policy.lua");
    policy.run({at::ones({2, 3})});
    REQUIRE(policy.graphs().size() == 1);
  }
  REQUIRE(nobody_holds_names());
  CHECK(ErrorLocation::usage().kept == 3);
}

TEST_CASE("T16: the metrics say who holds the ids, and how many names found none") {
  const Fresh fresh;
  Runtime runtime;
  const Policy policy = runtime.load_source(naming("measured", 5), "policy.lua");
  policy.run({bad_batch()});
  ErrorLocation::register_path("of.the.host");
  const std::string text = triage::metrics_text(runtime);
  for (const char* line :
       {"triage_locations{held_by=\"host\"} 1", "triage_locations{held_by=\"policies\"} 5",
        "triage_locations{held_by=\"free\"} 1017", "triage_unnamed_locations_total{result=\"prefix\"} 0"})
    CHECK(text.find(line) != std::string::npos);
}
