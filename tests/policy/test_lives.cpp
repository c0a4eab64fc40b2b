// Random lives of a policy and of a bundle: whatever operators, hosts and calls do, policies are what the model says.
//
// TRIAGE_LIVES=10000 lives so many of each kind, TRIAGE_LIVES_SEED=7 begins with that seed instead of 2.
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
  kind.options = {trials[setting[0] % 4], reverts[setting[1] % 4], kept[setting[2] % 4], ways[setting[3] % 3],
                  setting[3] / 3 % 4 == 3};
  return kind;
}

/// What went wrong in a life; empty: nothing.
std::string live(const Kind& kind, const Steps& steps) {
  const fake::Folder folder, cache;
  Host host(folder, cache, kind.options, kind.is_bundle, kind.count);
  try {
    Life life(kind, &host);
    for (const Step& step : steps) {
      try {
        life.take(step);
      } catch (const std::exception& error) {
        return "after " + life.history() + "\nthrown: " + error.what();
      } catch (const Life::Different& different) {
        return "after " + life.history() + "\n" + different.text;
      }
    }
  } catch (const Life::Different& different) {
    return "at the start: " + different.text;
  }
  return {};
}

/// Of a process that lives, and is killed; another one starts with what it left, or with other files.
std::string live_and_die(const Kind& kind, const Steps& steps, uint8_t moment, uint8_t later) {
  const fake::Folder folder, cache;
  Host host(folder, cache, kind.options, kind.is_bundle, kind.count);
  const Killed killed = kill(kind, host, cache.path(), steps, moment);
  if (!killed.failure.empty()) return "after " + killed.history + "\n" + killed.failure;
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
      if (difference.empty() && host.trouble().empty()) return {};
      differences += difference + "\n";
    } catch (const Life::Different& different) {
      differences += different.text + "\n";
    }
  }
  return "after " + killed.history + "\nneither as before the arrow nor as after it:\n" + differences;
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

/// What goes wrong in the shortest life that is left when steps are taken out: half of them at once, at last single
/// ones.
template <class WhatGoesWrong>
std::string shortest(Steps steps, std::string wrong, const WhatGoesWrong& what_goes_wrong) {
  for (size_t count = steps.size() / 2; count > 0; count /= 2) {
    for (size_t begin = 0; begin < steps.size();) {
      Steps fewer = steps;
      fewer.erase(fewer.begin() + begin, fewer.begin() + std::min(begin + count, steps.size()));
      std::string still = what_goes_wrong(fewer);
      if (still.empty()) {
        begin += count;
      } else {
        steps = std::move(fewer);
        wrong = std::move(still);
      }
    }
  }
  return wrong;
}

/// `kind_of_life` draws what a life depends on, and returns what goes wrong with given steps.
template <class KindOfLife>
bool holds(const char* of, const KindOfLife& kind_of_life) {
  rc::detail::TestParams params;
  params.maxSuccess = static_cast<int>(from_environment("TRIAGE_LIVES", 100));
  params.disableShrinking = true;
  params.seed = from_environment("TRIAGE_LIVES_SEED", 2);  // a gate that fails by chance says nothing of the change
  const auto property = [&] {
    const auto what_goes_wrong = kind_of_life();
    const Steps steps = *any_size<Steps>();
    std::string wrong = what_goes_wrong(steps);
    if (!wrong.empty()) RC_FAIL(shortest(steps, std::move(wrong), what_goes_wrong));
  };
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
    const auto kind = lives::kind_of(*lives::any_size<lives::Setting>(), /*is_bundle=*/false);
    return [=](const lives::Steps& steps) { return lives::live(kind, steps); };
  }));
}

TEST_CASE("random lives of a bundle, likewise") {
  CHECK(lives::holds("a bundle", [] {
    const auto kind = lives::kind_of(*lives::any_size<lives::Setting>(), /*is_bundle=*/true);
    return [=](const lives::Steps& steps) { return lives::live(kind, steps); };
  }));
}

TEST_CASE("a process that is killed at an arrow leaves what was before it or what is after it") {
  CHECK(lives::holds("killed", [] {
    const auto setting = *lives::any_size<lives::Setting>();
    const auto moments = *lives::any_size<std::array<uint8_t, 2>>();
    const auto kind = lives::kind_of(setting, /*is_bundle=*/setting[3] & 128);
    return [=](const lives::Steps& steps) { return lives::live_and_die(kind, steps, moments[0], moments[1]); };
  }));
}
