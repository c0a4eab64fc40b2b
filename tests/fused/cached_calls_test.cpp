// Kinds of calls in the cache folder, beside the kernels.
#include <doctest/doctest.h>
#include <runtime/backends/fused/kernel_cache/cached_calls.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/folder.h"
#include "tests/cli/variable.h"

namespace triage::fused {

TEST_CASE(
    "N01: the folder keeps the newest kinds of calls of a policy, once each, and of bundles for this version alone") {
  const TemporaryFolder folder;
  const Variable cache("TRIAGE_KERNEL_CACHE", folder / "cache");
  const auto call = [](const std::string& policy, size_t i) {
    return KnownCall{policy, {"f32[" + std::to_string(i) + "]"}};
  };
  keep_calls({call("one", 0)});
  CHECK(!std::filesystem::exists(folder / "cache"));  // no kernel was looked for
  KernelFiles().build_directory();
  for (size_t i = 0; i < most_known_calls + 3; ++i) keep_calls({call("one", i), call("two", 0)});
  std::vector<std::string> of_one;
  size_t of_two = 0;
  for (const KnownCall& kept : all_kept_calls()) {
    if (kept.policy == "one")
      of_one.push_back(kept.inputs[0]);
    else
      ++of_two;
  }
  CHECK(of_one.size() == most_known_calls);
  CHECK(of_one.front() == call("", most_known_calls + 2).inputs[0]);
  CHECK(of_two == 1);
  CHECK(calls_from_bundles("one").empty());  // nobody has loaded a bundle
  CHECK(KernelFiles().put({calls_file({call("one", 7)}, CallsFrom::a_bundle)}));
  REQUIRE(calls_from_bundles("one").size() == 1);
  CHECK(calls_from_bundles("one")[0].inputs == call("", 7).inputs);
  for (const auto& file : kept::files(kept::calls)) write_bytes(file.string(), read_bytes(file.string()) + "x");
  CHECK(all_kept_calls().empty());  // damaged
}

}  // namespace triage::fused
