// Random lives of a policy and of a bundle: whatever operators, hosts and calls do, policies are what the model says.
//
// TRIAGE_LIVES=10000 lives so many of each kind, TRIAGE_LIVES_SEED=7 begins with that seed instead of 2,
// TRIAGE_LIVES_WHOLE=1 prints a life that went wrong as it is: making it short takes minutes.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <iostream>

#include "tests/policy/lives/killed.h"
#include "tests/policy/lives/life.h"

namespace lives {
namespace {

/// As the generator chooses: how a host has set up its Runtime.
using Setting = std::array<uint8_t, 4>;

Kind kind_of(const Setting& setting, bool is_bundle) {
  constexpr triage::OnError ways[] = {triage::OnError::raise, triage::OnError::pass_through,
                                      triage::OnError::last_good};
  constexpr size_t trials[] = {3, 1, 0, 5}, reverts[] = {2, 1, 0, 3}, kept[] = {8, 3, 2, 1};
  Kind kind;
  kind.is_bundle = is_bundle;
  kind.count = is_bundle ? 2 + setting[0] / 4 % 2 : 1;
  kind.options = {trials[setting[0] % 4], reverts[setting[1] % 4], kept[setting[2] % 4], ways[setting[3] % 3]};
  return kind;
}

void live(const Kind& kind, const Steps& steps) {
  const fake::Folder folder, cache;
  Host host(folder, cache, kind.options, kind.is_bundle, kind.count);
  std::string history;
  try {
    Life life(kind, &host);
    for (const Step& step : steps) {
      try {
        life.take(step);
      } catch (const std::exception& error) {
        RC_FAIL("after " + life.history() + "\nthrown: " + error.what());
      } catch (const Life::Different& different) {
        RC_FAIL("after " + life.history() + "\n" + different.text);
      }
    }
  } catch (const Life::Different& different) {
    RC_FAIL("at the start: " + different.text);
  }
}

/// A process lives, and is killed; another one starts with what it left, or with other files.
void live_and_die(const Kind& kind, const Steps& steps, uint8_t moment, uint8_t later) {
  const fake::Folder folder, cache;
  Host host(folder, cache, kind.options, kind.is_bundle, kind.count);
  const Killed killed = kill(kind, host, cache.path(), steps, moment);
  if (!killed.failure.empty()) RC_FAIL("after " + killed.history + "\n" + killed.failure);
  Disk disk = killed.after.disk;
  if (later % 4 == 1) disk = {};
  if (later % 4 == 2) disk.contents = Contents(kind.count, {1200, Defect::broken});
  host.save(disk);
  const bool is_started = host.start();
  std::string differences = host.trouble();
  for (Outside outside : {killed.before, killed.after}) {
    outside.disk = disk;
    try {
      const std::string difference = Life(kind, outside, host, is_started).difference();
      if (difference.empty() && host.trouble().empty()) return;
      differences += difference + "\n";
    } catch (const Life::Different& different) {
      differences += different.text + "\n";
    }
  }
  RC_FAIL("after " + killed.history + "\nneither as before the arrow nor as after it:\n" + differences);
}

/// Of every size from the first life on.
template <class T>
rc::Gen<T> any_size() {
  return rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<T>());
}

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Prints a life that went wrong, made as short as possible.
template <class Property>
bool holds(const char* of, const Property& property) {
  rc::detail::TestParams params;
  params.maxSuccess = static_cast<int>(from_environment("TRIAGE_LIVES", 100));
  params.disableShrinking = from_environment("TRIAGE_LIVES_WHOLE", 0) != 0;
  params.seed = from_environment("TRIAGE_LIVES_SEED", 2);  // a gate that fails by chance says nothing of the change
  const auto result = rc::detail::checkTestable(property, rc::detail::TestMetadata(), params);
  if (result.template is<rc::detail::SuccessResult>()) return true;
  std::cerr << of << ", TRIAGE_LIVES_SEED=" << params.seed << ":\n";
  rc::detail::printResultMessage(result, std::cerr);
  return false;
}

}  // namespace
}  // namespace lives

TEST_CASE("random lives of a policy: what a host sees follows from what was done, over restarts too") {
  CHECK(lives::holds("a policy", [] {
    const auto setting = *lives::any_size<lives::Setting>();
    lives::live(lives::kind_of(setting, /*is_bundle=*/false), *lives::any_size<lives::Steps>());
  }));
}

TEST_CASE("random lives of a bundle, likewise") {
  CHECK(lives::holds("a bundle", [] {
    const auto setting = *lives::any_size<lives::Setting>();
    lives::live(lives::kind_of(setting, /*is_bundle=*/true), *lives::any_size<lives::Steps>());
  }));
}

TEST_CASE("a process that is killed at an arrow leaves what was before it or what is after it") {
  CHECK(lives::holds("killed", [] {
    const auto setting = *lives::any_size<lives::Setting>();
    const auto moments = *lives::any_size<std::array<uint8_t, 2>>();
    lives::live_and_die(lives::kind_of(setting, /*is_bundle=*/setting[3] & 128), *lives::any_size<lives::Steps>(),
                        moments[0], moments[1]);
  }));
}
