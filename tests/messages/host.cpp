// A host that gives its policies a function: the messages about the graph break (TB0005) at the call of the function,
// and about a policy that is captured again. `run` runs this.
#include <ATen/ops/ones.h>
#include <fmt/core.h>
#include <triage/runtime.h>

namespace {

triage::Runtime host(bool fullgraph) {
  triage::RuntimeOptions options;
  options.fullgraph = fullgraph;
  options.trusted = true;  // operators by contract take no sparse tensors
  options.log = [](const triage::LogRecord& record) {
    if (record.level > triage::LogLevel::debug) fmt::print("{}: {}\n", triage::to_string(record.level), record.text);
  };
  triage::Runtime runtime(std::move(options));
  runtime.define("look_up", [](const std::vector<at::Tensor>& tensors) { return tensors; });
  return runtime;
}

}  // namespace

int main() {
  const at::Tensor z = at::ones({3, 2});
  triage::Runtime several = host(false);
  const triage::Policy policy = several.load("host_function.lua");
  policy.run({z});
  policy.run({z});  // says nothing more
  fmt::print("\n## As an error, with fullgraph\n");
  triage::Runtime one = host(true);
  try {
    one.load("host_function.lua").run({z});
  } catch (const triage::GraphBreakError& error) {
    fmt::print("error: {}\n", error.what());
  }
  fmt::print("\n## A policy is captured again, and runs as a script\n");
  const triage::Policy doubled = several.load("doubled.lua");
  for (const at::Tensor& input : {z, at::ones({3}), z.to_sparse()}) doubled.run({input});
}
