#include <ATen/ATen.h>
#include <triage/runtime.h>

#include <cmath>
#include <filesystem>

#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"

namespace triage::fuzz {
namespace {

Runtime& runtime() {
  static Runtime made = [] {
    RuntimeOptions options;
    options.log = [](const LogRecord&) {};
    options.print = [](const std::string&) {};
    options.limits = {2'000'000, 1.0, 16u << 20, 64u << 20};
    return Runtime(options);
  }();
  return made;
}

at::Tensor batch(int64_t rows) {
  at::Tensor z = at::arange(rows * 4, at::kFloat).reshape({rows, 4});
  if (rows > 1) z[1][2] = std::nan("");
  return z;
}

std::string bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

/// A call, and what it must not change.
void run(const Policy& policy, size_t count, int64_t rows) {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < count; ++i) inputs.push_back(batch(rows));
  const std::string before = bytes_of(batch(rows));
  try {
    policy.run(inputs);
  } catch (const Error&) {
  }
  for (const at::Tensor& input : inputs)
    if (bytes_of(input) != before) throw Broken("a policy has written to an input of the host");
}

void stays_healthy() {
  static const Policy healthy = runtime().load_source(
      "return policy{run = function(z) local f = flag_nan_and_inf(z, 'z'); z, f = fix(z, f, 'z'); return z, f end}");
  if (at::isnan(healthy.run({batch(3)}).at(0)).any().item<bool>())
    throw Broken("a healthy policy of the same process no longer repairs");
}

}  // namespace

/// A script as a graph, for another batch, and without rows.
void load_policy(std::string_view source) {
  const Policy policy = runtime().load_source(source, "input.lua");
  const size_t count = policy.signature().inputs.size();
  for (const int64_t rows : {2, 2, 3, 0})
    if (count <= 8) run(policy, count, rows);
  stays_healthy();
}

std::vector<std::string> policy_seeds() {
  std::vector<std::string> all;
  for (const char* const folder : {"scripts/policies", "examples/patterns"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(triage::test::source_dir()) / folder)) {
      if (entry.path().extension() != ".lua") continue;
      all.push_back(read_bytes(entry.path().string()));
    }
  return all;
}

}  // namespace triage::fuzz
