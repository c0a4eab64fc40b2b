#include "programs.h"
#include "runtime/diagnose/bits.h"
#include "tests/logs.h"
#include "tests/other_device.h"

#include <triage/backend.h>
#include <triage/triage.h>

#include <stdexcept>

namespace triage::parity {
namespace {

Policy load(const Program& program, const std::string& backend, bool trusted = false) {
  RuntimeOptions options;
  options.backend = backend;
  options.trusted = trusted;
  options.fullgraph = !program.breaks;
  options.log = triage::test::no_log();  // programs that break say so on every load
  return Runtime(options).load_source(program.source, "programs.lua");
}

Tensors run_recording(const Program& program, const Tensors& given, const Tensors&) {
  return load(program, "eager").run(given);
}

/// Captured on one batch size, run on another: the graph must hold for both.
Tensors run_compiled(const Program& program, const std::string& backend, const Tensors& given, const Tensors& warm_up) {
  const Policy policy = load(program, backend);
  policy.prepare(warm_up);
  Tensors results = policy.run(given);
  if (policy.graphs().size() != (program.breaks ? 0 : 1))
    throw std::logic_error(program.name + ": " + std::to_string(policy.graphs().size()) +
                           " graphs for two batch sizes");
  return results;
}

using Change = graph::Graph (*)(const graph::Graph&);

/// The graph that was captured, changed, and run by the interpreter.
Tensors run_changed(const Program& program, Change change, const Tensors& given, const Tensors& warm_up) {
  const Policy policy = load(program, "eager");
  policy.run(warm_up);
  const graph::Graph changed = change(*policy.graphs().at(0).graph);
  graph::verify(changed);
  Tensors results;
  find_backend("eager")(changed, given)->run(given, results);
  return results;
}

Tensors each(const Tensors& tensors, at::Tensor (*change)(const at::Tensor&)) {
  Tensors results;
  for (const at::Tensor& tensor : tensors) results.push_back(change(tensor));
  return results;
}

/// On a device where operations on flags are composites. Policies may use the one that stands in for a GPU if they are
/// trusted.
Tensors run_elsewhere(const Program& program, const std::string& backend, const Tensors& given,
                      const Tensors* warm_up) {
  const Policy policy = load(program, backend, /*trusted=*/!triage::test::is_real_device());
  if (warm_up) policy.run(each(*warm_up, triage::test::to_other));
  return each(policy.run(each(given, triage::test::to_other)), triage::test::from_other);
}

Tensors run_script_elsewhere(const Program& program, const Tensors& given, const Tensors& /*warm_up*/) {
  return run_elsewhere(program, "eager", given, nullptr);
}

Tensors run_captured_elsewhere(const Program& program, const std::string& backend, const Tensors& given,
                               const Tensors& warm_up) {
  Tensors captured = run_elsewhere(program, backend, given, &warm_up);
  if (triage::test::is_real_device()) {  // it rounds in its own way, and captured as in a script
    const Tensors script = run_elsewhere(program, backend, given, nullptr);
    for (size_t i = 0; i < script.size(); ++i)
      if (!diagnose::same_bits(script[i], captured.at(i)))
        throw std::logic_error("captured, result " + std::to_string(i) + " differs from the script's there");
  }
  return captured;
}

graph::Graph reread(const graph::Graph& graph) { return graph::parse(graph::print(graph)); }

graph::Graph plain_aten(const graph::Graph& graph) {
  graph::Graph plain = graph::decompose(graph);
  for (const auto& node : plain.nodes())
    if (node->op.operator_name().name.rfind("triage::", 0) == 0)
      throw std::logic_error("decompose left " + node->op.operator_name().name);
  return plain;
}

}  // namespace

std::vector<Mode> modes() {
  std::vector<Mode> list = {
      {"the call that records", false, true, run_recording},
      {"printed and parsed", true, true,
       [](const Program& p, const Tensors& given, const Tensors& warm_up) {
         return run_changed(p, reread, given, warm_up);
       }},
      {"decomposed to plain ATen", true, true,
       [](const Program& p, const Tensors& given, const Tensors& warm_up) {
         return run_changed(p, plain_aten, given, warm_up);
       }},
  };
  const bool exact = !triage::test::is_real_device();
  list.push_back({"a script on a device without kernels", false, exact, run_script_elsewhere});
  for (const char* backend : {"eager", "fused"})
    list.push_back({std::string("captured on a device without kernels, backend ") + backend, false, exact,
                    [backend](const Program& p, const Tensors& given, const Tensors& warm_up) {
                      return run_captured_elsewhere(p, backend, given, warm_up);
                    }});
  for (const std::string& backend : list_backends())
    list.push_back({"backend " + backend, false, backend != "fused",
                    [backend](const Program& p, const Tensors& given, const Tensors& warm_up) {
                      return run_compiled(p, backend, given, warm_up);
                    }});
  return list;
}

}  // namespace triage::parity
