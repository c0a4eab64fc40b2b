#include <ATen/ATen.h>
#include <triage/runtime.h>

#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"
#include "tests/fuzz/inputs/zip.h"

namespace triage::fuzz {
namespace {

Policy make() {
  static Runtime runtime = [] {
    RuntimeOptions options;
    options.log = [](const LogRecord&) {};
    return Runtime(options);
  }();
  return runtime.load_source(R"(
return policy {
  name = "counts", inputs = {"z"},
  state = {seen = {shape = {4}, dtype = torch.float32, init = 0}, n = {shape = {}, dtype = torch.int64, init = 0}},
  run = function(z, s) return z + s.seen, {seen = s.seen + 1.0, n = s.n + 1} end,
})");
}

}  // namespace

/// What is loaded is saved, and read back.
void load_state(std::string_view bytes) {
  static const Policy policy = make();
  const TemporaryFolder folder;
  const std::string path = write_bytes(folder / "state.pt", zip_of(bytes));
  policy.load_state(path);
  const size_t keys = policy.state().size();
  policy.save_state(path);
  policy.load_state(path);
  if (policy.state().size() != keys) throw Broken("a saved state has another number of keys than the state");
}

std::vector<std::string> state_seeds() {
  const Policy policy = make();
  const TemporaryFolder folder;
  std::vector<std::string> all;
  for (const char* const key : {"", "stream 1"}) {
    RunOptions options;
    options.state_key = key;
    policy.run({at::ones({2, 4})}, options);
    policy.save_state(folder / "state.pt");
    if (const auto pickle = pickle_in(read_bytes(folder / "state.pt"))) all.push_back(*pickle);
  }
  return all;
}

}  // namespace triage::fuzz
