// Names of locations come and go with their owners. Whatever happens, a flag that left never reads as another name, and
// a new name finds an id as long as any may be had.
#include "runtime/location/owner.h"

#include <rapidcheck.h>
#include <triage/log.h>

#include <doctest/doctest.h>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using triage::ErrorLocation;
using triage::LocationOwner;
using triage::LocationUsage;

namespace {

constexpr int64_t most = ErrorLocation::MAX_LOCATION_ID;

std::vector<std::string>& caught() {
  static auto& warnings = *new std::vector<std::string>;
  return warnings;
}

/// A registry of its own, and what it warns of.
struct Fresh {
  Fresh() {
    ErrorLocation::reset();
    caught().clear();
    triage::set_log([](const triage::LogRecord& record) { caught().emplace_back(record.text); });
  }
  ~Fresh() {
    triage::set_log({});
    ErrorLocation::reset();
  }
};

void fill(LocationOwner& owner, const std::string& prefix, int64_t count) {
  for (int64_t i = 0; i < count; ++i) CHECK(owner.register_path(prefix + std::to_string(i)) != 0);
}

/// The registry as a host sees it: who is there, what each was given, and which flags are stored somewhere.
class Model {
 public:
  Model() {
    for (int64_t i = *rc::gen::inRange<int64_t>(most - 30, most); i > 0; --i)
      ErrorLocation::register_path("host" + std::to_string(i));
  }

  void step() {
    const int what = *rc::gen::inRange(0, 100);
    if (owners_.empty() || what < 15) {
      owners_.push_back({std::make_unique<LocationOwner>("policy"), {}});
    } else if (what < 60) {
      name(pick());
    } else if (what < 75) {
      store(pick());
    } else if (what < 80) {
      pick().self->keep();
    } else if (what < 82) {
      stored_.clear();
      ErrorLocation::forget_gone();
    } else {
      owners_.erase(owners_.begin() +
                    *rc::gen::inRange<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(owners_.size())));
    }
    check();
  }

 private:
  struct Owner {
    std::unique_ptr<LocationOwner> self;
    std::map<std::string, int64_t> names;
  };

  Owner& pick() { return owners_[*rc::gen::inRange<size_t>(0, owners_.size())]; }

  void name(Owner& owner) {
    const std::string path = "n" + std::to_string(*rc::gen::inRange(0, 200));
    const LocationUsage before = ErrorLocation::usage();
    const bool known = ErrorLocation::is_registered(path);
    const int64_t id = owner.self->register_path(path);
    RC_ASSERT(known || (id != 0) == (before.free + before.kept > 0));
    if (id == 0) return;
    if (!known && before.free > 0) RC_ASSERT(ErrorLocation::name(id) == path);
    RC_ASSERT(ErrorLocation::path(id) == path);
    owner.names[path] = id;
  }

  /// Somebody keeps a flag with a location of this owner.
  void store(Owner& owner) {
    if (owner.names.empty()) return;
    const auto& [path, id] = *owner.names.begin();
    triage::note_left(id);
    stored_.emplace_back(id, path);
  }

  void check() {
    for (const auto& [id, path] : stored_) {
      const std::string now = ErrorLocation::name(id);
      RC_ASSERT(now == path || now.rfind(path + " (earlier: ", 0) == 0 || now.find("(earlier: " + path) != now.npos ||
                now.find(", ...)") != now.npos);
    }
    for (const Owner& owner : owners_)
      for (const auto& [path, id] : owner.names) RC_ASSERT(ErrorLocation::path(id) == path);
    const LocationUsage usage = ErrorLocation::usage();
    RC_ASSERT(usage.lasting + usage.held + usage.kept + usage.free == most);
  }

  std::vector<Owner> owners_;
  std::vector<std::pair<int64_t, std::string>> stored_;
};

}  // namespace

TEST_CASE("T16: a flag that is stored never reads as another name, whoever comes and goes") {
  CHECK(rc::check([] {
    const Fresh fresh;
    Model model;
    for (int steps = *rc::gen::inRange(0, 200); steps > 0; --steps) model.step();
  }));
}

TEST_CASE("T16: names of which no flag left are given back with their last owner") {
  const Fresh fresh;
  for (int round = 0; round < 20; ++round) {
    LocationOwner owner("gone.lua");
    fill(owner, "round" + std::to_string(round) + ".", 500);
  }
  const auto first = std::make_unique<LocationOwner>("first.lua");
  auto second = std::make_unique<LocationOwner>("second.lua");
  const int64_t id = first->register_path("shared");
  CHECK(second->register_path("shared") == id);
  second.reset();
  for (int i = 0; i < 2000; ++i) LocationOwner("passing.lua").register_path("passing" + std::to_string(i));
  CHECK(ErrorLocation::name(id) == "shared");
  CHECK(caught().empty());
  CHECK(ErrorLocation::usage().unnamed == 0);
  CHECK(ErrorLocation::usage().held == 1);
}

TEST_CASE("T16: what the host registered or asked the id of lasts") {
  const Fresh fresh;
  auto owner = std::make_unique<LocationOwner>("policy.lua");
  const int64_t asked = owner->register_path("asked"), given = owner->register_path("given");
  CHECK(ErrorLocation::get("asked") == asked);
  CHECK(triage::Location("given").id == given);
  owner.reset();
  for (int i = 0; i < 2000; ++i) LocationOwner("passing.lua").register_path("passing" + std::to_string(i));
  CHECK(ErrorLocation::name(asked) == "asked");
  CHECK(ErrorLocation::name(given) == "given");
}

TEST_CASE("T16: ids of stored flags are another's only where no others are left, and then have both names") {
  const Fresh fresh;
  auto old = std::make_unique<LocationOwner>("old.lua");
  const int64_t id = old->register_path("old.place");
  triage::note_left(id);
  old.reset();
  const auto hog = std::make_unique<LocationOwner>("hog.lua");
  fill(*hog, "hog", most - 1);
  CHECK(ErrorLocation::name(id) == "old.place");
  CHECK(caught().empty());
  LocationOwner late("late.lua");
  CHECK(late.register_path("late.place") == id);
  CHECK(ErrorLocation::name(id) == "late.place (earlier: old.place)");
  CHECK(ErrorLocation::path(id) == "late.place");
  CHECK(late.register_path("hog7.below") == hog->register_path("hog7"));
  CHECK(late.register_path("nowhere") == 0);
  REQUIRE(caught().size() == 1);
  CHECK(caught()[0].find("All 1023 locations are taken: `late.place`") == 0);
  CHECK(caught()[0].find("hog.lua 1022") != std::string::npos);
  const LocationUsage usage = ErrorLocation::usage();
  CHECK(usage.unnamed == 2);
  CHECK(usage.reused == 1);
  REQUIRE(usage.owners.size() == 2);
  CHECK(usage.owners[0].name == "hog.lua");
  ErrorLocation::forget_gone();
  CHECK(ErrorLocation::name(id) == "late.place");
}

TEST_CASE("T16 T30: threads whose owners come and go agree on the names that they hold") {
  const Fresh fresh;
  std::vector<std::thread> pool;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    pool.emplace_back([&wrong, t] {
      for (int round = 0; round < 40; ++round) {
        LocationOwner owner("thread.lua");
        for (int i = 0; i < 100; ++i) {
          const std::string path = "p" + std::to_string((round * 31 + i * (t + 1)) % 700);
          const int64_t id = owner.register_path(path);
          if (id == 0 || ErrorLocation::path(id) != path) ++wrong;
          if (i % 50 == 0) triage::note_left(id);
        }
      }
    });
  }
  for (auto& thread : pool) thread.join();
  CHECK(wrong == 0);
}
