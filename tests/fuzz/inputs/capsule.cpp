#include "runtime/capsule/capsule.h"
#include "runtime/files/disk.h"
#include "runtime/files/json.h"
#include "runtime/policy/replay.h"
#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"

#include <ATen/ATen.h>
#include <triage/capsule.h>

#include <cmath>

namespace triage::fuzz {
namespace {

constexpr const char* source = R"(
local calls = 0
return policy {
  inputs = {"z"}, outputs = {"z", "f"}, params = {limit = 3.0, on = true},
  run = function(z, p)
    calls = calls + 1
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z", {fallback = 1.0})
    return torch.clamp(z + torch.rand({3}) * 0.0, -100.0, 100.0) + p.limit * 0.0, f
  end,
})";
constexpr const char* with_state = R"(
return policy {
  inputs = {"z"}, state = {last = {shape = {"N", 3}, dtype = torch.float32, init = 0}},
  run = function(z, s)
    local f = flag_nan_and_inf(z, "z")
    return torch.where(torch.isnan(z), s.last, z), f, {last = z}
  end,
})";

at::Tensor spoiled_batch() {
  at::Tensor z = at::ones({2, 3});
  z[1][2] = std::nan("");
  return z;
}

capsule::Capsule recorded(const char* policy) {
  RuntimeOptions options;
  options.log = [](const LogRecord&) {};
  options.backend = "eager";
  Runtime runtime(options);
  const TemporaryFolder folder;
  record(runtime.load_source(policy, "seed.lua"), {spoiled_batch()}, {folder / "seed.pt"});
  return capsule::load(folder / "seed.pt");
}

/// Of all seeds: numbers of tensors in an input mean these.
const std::vector<at::Tensor>& memories() {
  static const std::vector<at::Tensor> all = [] {
    std::vector<at::Tensor> found = recorded(source).memories;
    for (const at::Tensor& memory : recorded(with_state).memories) found.push_back(memory);
    return found;
  }();
  return all;
}

}  // namespace

void read_capsule(std::string_view json) {
  try {
    files::check_json(json, "its text");
  } catch (const files::Malformed&) {
    return;  // load makes a FileError of it
  }
  capsule::Capsule capsule{capsule::Json::parse(json), {}};
  for (const at::Tensor& memory : memories()) capsule.memories.push_back(memory.clone());
  policy::replay(capsule, "input.pt", {});
}

std::vector<std::string> capsule_seeds() {
  std::vector<std::string> all;
  for (const char* const policy : {source, with_state}) all.push_back(recorded(policy).facts.dump(1));
  return all;
}

}  // namespace triage::fuzz
