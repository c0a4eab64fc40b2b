// The host of docs/operations.md that saves the state of a policy.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <unistd.h>
#include <filesystem>
#include <functional>
#include <string>

namespace fs = std::filesystem;

namespace {

void serve_until_the_end(const triage::Policy& policy, const fs::path& file,
                         const std::function<void(const triage::Policy&)>& serve) {
  if (std::filesystem::exists(file)) policy.load_state(file);
  serve(policy);
  policy.save_state(file);
}

}  // namespace

TEST_CASE("a host whose policy goes on after a restart") {
  const fs::path file = fs::temp_directory_path() / ("triage-state-" + std::to_string(::getpid()) + ".pt");
  fs::remove(file);
  for (int start = 0; start < 3; ++start) {
    triage::Runtime runtime;
    const triage::Policy policy = runtime.load_source(
        "return policy { state = {n = {shape = {}}}, run = function(z, s) return z + s.n, {n = s.n + 1} end }");
    serve_until_the_end(policy, file, [&](const triage::Policy& served) {
      CHECK(served.run({at::zeros({2})})[0].equal(at::full({2}, static_cast<float>(2 * start))));
      served.run({at::zeros({2})});
    });
  }
  fs::remove(file);
}
