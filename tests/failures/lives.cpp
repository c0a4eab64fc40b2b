#include "runtime/policy/bundles/manifest.h"
#include "tests/failures/life.h"

#include <ATen/ATen.h>

namespace triage::test {
namespace {

namespace fs = std::filesystem;

constexpr int newest = 3;

/// Answers of one of the versions, whatever fails.
void run(Life& life, const char* name, const Policy& policy, const RunOptions& options = {}) {
  life.step(name, [&] {
    const std::vector<at::Tensor> outputs = policy.run({bad_batch()}, options);
    const Paused paused;
    life.check(version_of(outputs, newest) > 0, std::string(name) + ": the answer is of no version");
  });
}

/// What changes a version: it says so where it did, and only there. `version`: of what lives, as a text.
template <class Version, class Work>
void change(Life& life, const char* name, const Version& version, const Work& work) {
  const auto live = [&] {
    const Paused paused;
    return version();
  };
  const std::string before = live();
  std::optional<Reload> told;
  life.step(name, [&] { told = work(); });
  const Paused paused;
  const bool changed = version() != before;
  life.check(changed == (told == Reload::swapped),
             std::string(name) + (changed ? ": it changed, and said that it did not" : ": it said that it changed"));
}

auto hash_of(const Policy& policy) {
  return [&policy] { return policy.version().hash; };
}

int64_t calls_of(const Policy& policy, const std::string& key) {
  for (const KeyState& one : policy.state())
    if (one.key == key) return one.tensors.at(0).second.item<int64_t>();
  return 0;
}

}  // namespace

void live_alone(Life& life) {
  const fs::path file = life.path("p.lua");
  life.write("p.lua", repair_source(1));
  Policy policy;
  life.begin();
  life.step("loading", [&] { policy = life.runtime->load(file); });
  if (policy) {
    for (int i = 0; i < 3; ++i) run(life, "running", policy);
    life.write("p.lua", repair_source(2));
    change(life, "reloading", hash_of(policy), [&] { return policy.reload(); });
    for (int i = 0; i < 3; ++i) run(life, "running what was reloaded", policy);
    life.write("p.lua", repair_source(3, " broken("));
    change(life, "refusing", hash_of(policy), [&] { return policy.reload(); });
    run(life, "running after a refusal", policy);
    life.step("asking", [&] {
      policy.statistics();
      metrics_text(*life.runtime);
      policy.versions();
    });
    const bool was_first = [&] {
      const Paused paused;
      return policy.version().number == 1;
    }();
    if (!was_first)
      change(life, "going back", hash_of(policy), [&] {
        policy.rollback(1);
        return Reload::swapped;
      });
    life.step("setting params", [&] {
      policy.set_param("limit", 4.0);
      policy.set_param("bounds", std::vector<double>{-50.0, 50.0});
    });
    life.step("pinning", [&] { policy.pin(1); });
    run(life, "running what is pinned", policy);
    life.step("unpinning", [&] { policy.unpin(); });
    life.step("letting go of a copy", [&] { life.runtime->load_source(repair_source(1), "copy.lua"); });
  }
  life.end();
  if (!policy) policy = life.runtime->load(file);
  life.check(version_of(policy.run({bad_batch()}), newest) > 0, "it serves no version that there ever was");
  life.write("p.lua", repair_source(3));
  if (policy.unpin() != Reload::swapped && policy.version().last_error)  // what failed may have been the first time
    life.check("a good source is refused afterwards: " + policy.version().last_error->message);
  life.check(wrong(policy.run({bad_batch()}), 3));
  policy.run({bad_batch()});
  policy = {};
  life.write("p.lua", "broken(");
  life.check(version_of(life.restart().load(file).run({bad_batch()}), newest) > 0,
             "after a restart, it serves no version that there ever was");
}

void live_with_state(Life& life) {
  const fs::path file = life.path("p.lua"), kept = life.path("state.pt");
  life.write("p.lua", repair_source(1));
  Policy policy;
  int64_t answered = 0, saved = 0;
  const auto call = [&] {
    answered += life.step("running with state",
                          [&] { policy.run({bad_batch()}, {.on_error = OnError::raise, .state_key = "a"}); });
  };
  life.begin();
  life.step("loading", [&] { policy = life.runtime->load(file); });
  if (policy) {
    for (int i = 0; i < 3; ++i) call();
    run(life, "running with another key", policy, {.state_key = "b"});
    if (life.step("saving state", [&] { policy.save_state(kept); })) saved = answered;
    life.write("p.lua", repair_source(2));
    change(life, "reloading", hash_of(policy), [&] { return policy.reload(); });
    call();
    if (life.step("loading state", [&] { policy.load_state(kept); })) answered = saved;
    call();
    life.step("saving state again", [&] { policy.save_state(kept); });
    life.step("forgetting a key", [&] { policy.reset_state("b"); });
    call();
    life.step("setting state", [&] { policy.set_state(policy.state()); });
    call();
  }
  life.end();
  if (!policy) return;
  const int64_t found = calls_of(policy, "a");
  life.check(found == answered, "the state knows of " + std::to_string(found) + " calls, and " +
                                    std::to_string(answered) + " were answered");
  if (fs::exists(kept)) policy.load_state(kept);  // throws where it is damaged
  const int64_t before = calls_of(policy, "a");
  policy.run({bad_batch()}, {.state_key = "a"});
  life.check(calls_of(policy, "a") == before + 1, "state does not go on");
}

void live_in_a_bundle(Life& life) {
  const fs::path dir = life.path("pair");
  const auto pack = [&](int version, const char* more = "") {
    const Paused paused;
    life.write("pair/a.lua", repair_source(version));
    life.write("pair/b.lua", "local number = require \"number\"\n" + repair_source("number", more));
    life.write("pair/lib/number.lua", "return " + std::to_string(version) + ".0");
    policy::Manifest manifest = policy::list_folder(dir);
    manifest.name = "pair";
    manifest.version = std::to_string(version);
    life.write("pair/bundle.json", manifest.text());
  };
  Bundle bundle;
  const auto version = [&] {
    const BundleVersion live = bundle.version();
    std::string text = live.sha256;
    for (const auto& [name, number] : live.policies)
      if (bundle.policy(name).version().number != number) life.check("a policy is not that of the bundle's version");
    return text;
  };
  const auto both = [&](const char* name) {
    int of_a = 0, of_b = 0;
    const auto live = [&] {
      const Paused paused;
      return version();
    };
    const std::string before = live();
    const bool ended = life.step(name, [&] {
      const auto a = bundle.policy("a").run({bad_batch()}), b = bundle.policy("b").run({bad_batch()});
      const Paused paused;
      of_a = version_of(a, newest);
      of_b = version_of(b, newest);
    });
    const Paused paused;
    if (ended && version() != before) return;  // the second call failed, and took both back
    if (ended) life.check(of_a > 0 && of_a == of_b, std::string(name) + ": the policies answer with two versions");
  };
  pack(1);
  life.begin();
  life.step("loading a bundle", [&] { bundle = life.runtime->load_bundle(dir); });
  if (bundle) {
    for (int i = 0; i < 3; ++i) both("running a bundle");
    pack(2);
    change(life, "reloading a bundle", version, [&] { return bundle.reload(); });
    for (int i = 0; i < 3; ++i) both("running what was reloaded");
    pack(3, " broken(");
    change(life, "refusing a bundle", version, [&] { return bundle.reload(); });
    both("running after a refusal");
    life.step("asking", [&] {
      bundle.versions();
      metrics_text(*life.runtime);
    });
    life.step("going back", [&] { bundle.rollback(1); });
    both("running what was live before");
    life.step("pinning", [&] { bundle.pin(1); });
    life.step("unpinning", [&] { bundle.unpin(); });
  }
  life.end();
  pack(3);
  if (!bundle) {
    bundle = life.runtime->load_bundle(dir);
  } else if (bundle.unpin() != Reload::swapped) {  // what failed may have been the first time
    life.check("a good bundle is refused afterwards: " +
               bundle.version().last_error.value_or(LoadFailure{"no reason", {}, {}}).message);
  }
  for (const char* const name : {"a", "b"}) life.check(wrong(bundle.policy(name).run({bad_batch()}), 3));
  both("serving afterwards");
  life.check(life.runtime->policies().size() == 2, "the Runtime does not know the policies of the bundle");
  bundle = {};
  pack(1, " broken(");
  bundle = life.restart().load_bundle(dir);
  both("serving after a restart");
}

void live_with_candidates(Life& life) {
  Policy policy;
  life.begin();
  life.step("loading", [&] { policy = life.runtime->load_source(repair_source(1), "p.lua"); });
  if (policy) {
    run(life, "running", policy);
    life.step("starting a shadow", [&] { policy.shadow_source(repair_source(2), {.share = 1}); });
    for (int i = 0; i < 3; ++i) run(life, "running beside a shadow", policy);
    life.step("asking", [&] { static_cast<void>(policy.candidate()); });
    life.step("promoting", [&] { policy.promote(); });
    run(life, "running what was promoted", policy);
    CanaryOptions canary;
    canary.share = 1;
    canary.promote_after = 0;
    canary.on_end = [](const CandidateReport&) {};
    life.step("starting a canary that fails", [&] {
      policy.canary_source(repair_source("(z:sum():item() ~= z:sum():item()) and nil + 1 or 3.0", ""), canary);
    });
    for (int i = 0; i < 2; ++i) run(life, "running beside a canary that fails", policy);
    life.step("starting a canary", [&] { policy.canary_source(repair_source(3), canary); });
    for (int i = 0; i < 3; ++i) run(life, "running beside a canary", policy);
    life.step("ending a candidate", [&] { policy.end_candidate(); });
  }
  life.end();
  if (!policy) policy = life.runtime->load_source(repair_source(1), "p.lua");
  const auto report = policy.candidate();
  if (report && report->state == CandidateState::running) policy.end_candidate();
  const std::string other = repair_source(3, "\n");
  policy.shadow_source(other, {.share = 1});  // throws where something is left of another
  run(life, "serving afterwards", policy);
  policy.promote();
  life.check(wrong(policy.run({bad_batch()}), 3));
}

namespace {

void live_with_a_watch(Life& life, std::chrono::milliseconds poll_interval) {
  const fs::path file = life.path("w/p.lua");
  life.write("w/p.lua", repair_source(1));
  Policy policy;
  Watch watch;
  life.begin();
  life.step("loading", [&] { policy = life.runtime->load(file); });
  life.step("watching", [&] {
    watch = life.runtime->watch(file.parent_path(), {.debounce = std::chrono::milliseconds(1),
                                                     .poll_interval = poll_interval,
                                                     .on_event = [](const WatchEvent&) {}});
  });
  if (policy && watch) {
    run(life, "running", policy);
    life.write("w/p.lua", repair_source(2));
    life.step("following", [&] { watch.rescan(); });
    for (int i = 0; i < 2; ++i) run(life, "running", policy);
    life.write("w/p.lua", "broken(");
    life.step("refusing", [&] { watch.rescan(); });
    life.write("w/other.lua", repair_source(1));
    life.step("seeing a new file", [&] { watch.rescan(); });
    run(life, "running", policy);
  }
  life.end();
  if (!policy) policy = life.runtime->load(file);
  if (!watch) watch = life.runtime->watch(file.parent_path());
  life.write("w/p.lua", repair_source(3));
  watch.rescan();
  life.check(wrong(policy.run({bad_batch()}), 3));
}

}  // namespace

void live_watched(Life& life) { live_with_a_watch(life, std::chrono::milliseconds(2)); }

void live_followed(Life& life) { live_with_a_watch(life, std::chrono::milliseconds(0)); }

}  // namespace triage::test
