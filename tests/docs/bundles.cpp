// The C++ of docs/bundles.md, which examples_test.cpp finds here: compiled, and run.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <filesystem>
#include <limits>
#include <string>

#include <unistd.h>

#include "runtime/policy/bundles/manifest.h"
#include "tests/cli/folder.h"

namespace {

namespace fs = std::filesystem;

std::string repairing(const std::string& name) {
  return "local fallback = require('fallback')\nreturn policy {name = '" + name + "', outputs = {'z', 'f'}, " +
         "run = function(z) return fix(z, flag_nan_and_inf(z, '" + name + "'), '" + name +
         "', {fallback = fallback.value}) end}";
}

/// Both policies, the module that they share, and bundle.json last.
void release(const fs::path& dir, const std::string& fallback, const std::string& version) {
  for (const std::string name : {"features", "scores"}) write_bytes(dir / (name + ".lua"), repairing(name));
  write_bytes(dir / "lib/fallback.lua", "return {value = " + fallback + "}");
  triage::policy::Manifest manifest = triage::policy::list_folder(dir);
  manifest.name = "fraud";
  manifest.version = version;
  write_bytes(dir / "bundle.json~", manifest.text());
  fs::rename(dir / "bundle.json~", dir / "bundle.json");
}

}  // namespace

TEST_CASE("the host of docs/bundles.md: a bundle with a module is followed, rolled back and pinned") {
  const fs::path folder = fs::temp_directory_path() / ("triage-bundles-" + std::to_string(::getpid()));
  const fs::path before = fs::current_path();
  fs::create_directories(folder / "bundles/fraud/lib");
  release(folder / "bundles/fraud", "0.0", "1");
  fs::current_path(folder);
  {
    triage::Runtime runtime;
    triage::Bundle fraud = runtime.load_bundle("bundles/fraud");
    const triage::Policy features = fraud.policy("features"), scores = fraud.policy("scores");
    const triage::Watch watch = runtime.watch("bundles/fraud");

    at::Tensor z = at::ones({4, 2});
    z[1][1] = std::numeric_limits<float>::quiet_NaN();
    const auto repair = [&](const triage::Policy& policy) { return policy.run<2>({z})[0][1][0].item<float>(); };
    const auto repaired = [&] {
      CHECK(repair(features) == repair(scores));
      return repair(features);
    };
    CHECK(repaired() == 0.0f);
    release("bundles/fraud", "0.5", "2");
    CHECK(fraud.reload() != triage::Reload::refused);  // the Watch may have been first
    CHECK(fraud.version().version == "2");
    CHECK(repaired() == 0.5f);
    CHECK((fraud.version().policies == std::vector<std::pair<std::string, int>>{{"features", 2}, {"scores", 2}}));

    fraud.rollback(1);  // all policies, until bundle.json changes
    fraud.pin(1);       // ... and keep them, whatever happens to the folder
    CHECK(repaired() == 0.0f);
    CHECK(fraud.version().pinned);
  }
  fs::current_path(before);
  fs::remove_all(folder);
}
