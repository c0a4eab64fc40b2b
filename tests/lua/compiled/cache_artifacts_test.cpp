// Bundles for a C++ host: what this process captured and compiled goes to a file, and comes back.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <string>

#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/files/checksum.h"
#include "tests/cli/folder.h"

using triage::Policy;
using triage::Runtime;

TEST_CASE("N01: a process saves the kinds of calls that its policies were captured for, and loads them") {
  const TemporaryFolder folder;
  const std::string source = "return function(z) return z * 2 + 1 -- for a bundle\n end";
  const std::string file = folder / "warm.bundle";
  Runtime runtime;
  const Policy policy = runtime.load_source(source);
  CHECK(policy.cache().graphs == 0);
  policy.run({at::ones({4, 8})});
  policy.run({at::ones({4, 8}, at::kDouble)});
  policy.run({at::ones({9, 8})});  // the graph of the first

  const triage::CacheInfo saved = triage::save_cache_artifacts(file);  // after calls of every kind that is to be warm
  CHECK(saved.policies >= 1);
  CHECK(saved.calls >= 2);
  CHECK(saved.left_out == 0);
  const triage::KernelManifest manifest = triage::read_kernel_manifest(file);
  const std::string hash = policy.version().hash;
  std::vector<std::string> inputs;
  for (const triage::KnownCall& call : manifest.calls)
    if (call.policy == hash) inputs.push_back(call.inputs.at(0));
  CHECK(inputs == std::vector<std::string>{"f32[4, 8]", "f64[4, 8]"});

  triage::load_cache_artifacts(file);  // in the next process, before it loads its policies
  const Policy again = runtime.load_source(source);
  CHECK(again.cache().graphs == 2);
  CHECK(again.run({at::ones({4, 8})})[0].equal(at::full({4, 8}, 3)));
  CHECK(again.cache().graphs == 2);
}

TEST_CASE("N01: a file that is no bundle is not loaded as one") {
  const TemporaryFolder folder;
  write_bytes(folder / "none.bundle", "triage cache bundle ");
  CHECK_THROWS_WITH_AS(triage::load_cache_artifacts(folder / "none.bundle"), doctest::Contains("its end is missing"),
                       triage::FileError);
  CHECK_THROWS_AS(triage::load_cache_artifacts(folder / "nowhere.bundle"), triage::FileError);
  CHECK_THROWS_WITH_AS(triage::save_cache_artifacts(folder / "nowhere/a.bundle"), doctest::Contains("does not exist"),
                       triage::FileError);
}

TEST_CASE("N01: policies have no bundles") {
  Runtime().load_source(
      "assert(triage.save_cache_artifacts == nil and triage.load_cache_artifacts == nil)\n"
      "return function(z) return z end");
}
