#include "bindings/lua/testing/policy_tests.h"

#include "bindings/lua/engine/policies/lua_script.h"
#include "bindings/lua/testing/agreement.h"
#include "bindings/lua/testing/lua_text.h"
#include "bindings/lua/testing/verify_policy.h"
#include "runtime/backends/deadline.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/hidden_results.h"
#include "runtime/operators/logical_bytes.h"
#include "runtime/operators/untrusted.h"
#include "runtime/policy/versions/version.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <chrono>
#include <unordered_set>

namespace triage::lua {
namespace {

using capture::Compiled;

constexpr size_t many_graphs = 1000;  // tests may call with every kind of input
constexpr uint64_t seed = 0;          // of the random numbers of each run: plain and captured draw the same

/// Copies for one more run: a gradient of theirs is their own.
std::vector<at::Tensor> copies(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& input : inputs)
    result.push_back(input.detach().clone().set_requires_grad(input.requires_grad()));
  return result;
}

/// LibTorch's autograd asks nobody between its steps.
struct AskDeadline : torch::autograd::FunctionPreHook {
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    check_deadline();
    return gradients;
  }
};

void ask_in_steps_of(const std::vector<at::Tensor>& roots) {
  std::vector<torch::autograd::Node*> nodes;
  std::unordered_set<torch::autograd::Node*> seen;
  const auto add = [&](torch::autograd::Node* node) {
    if (node && seen.insert(node).second) nodes.push_back(node);
  };
  for (const at::Tensor& root : roots) add(root.grad_fn().get());
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i]->add_pre_hook(std::make_unique<AskDeadline>());
    for (const torch::autograd::Edge& edge : nodes[i]->next_edges()) add(edge.function.get());
  }
}

/// Of all float outputs summed up, with respect to the inputs that require grad; within the time of one call.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs,
                                     const Limits& limits) {
  std::vector<at::Tensor> roots, seeds, leaves;
  for (const at::Tensor& output : outputs)
    if (output.requires_grad()) roots.push_back(output), seeds.push_back(at::ones_like(output));
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) leaves.push_back(input);
  if (roots.empty() || leaves.empty()) return {};
  ask_in_steps_of(roots);
  const Deadline end(Deadline::in(limits.seconds));
  return torch::autograd::grad(roots, leaves, seeds, /*retain_graph=*/true, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

bool has_rows(const std::vector<at::Tensor>& inputs) {
  return !inputs.empty() && inputs[0].dim() > 0 && inputs[0].size(0) > 0;
}

/// As many rows as wanted, taken from the batch again and again; what does not have its length stays as it is.
std::vector<at::Tensor> resized(const std::vector<at::Tensor>& inputs, int64_t rows) {
  const int64_t batch = inputs[0].size(0);
  const at::Tensor index = at::arange(rows, at::kLong).remainder(batch);
  std::vector<at::Tensor> result;
  for (const at::Tensor& input : inputs) {
    const bool follows = input.dim() > 0 && input.size(0) == batch;
    result.push_back(follows ? input.detach().index_select(0, index.to(input.device())) : input.detach());
    result.back().set_requires_grad(input.requires_grad());
  }
  return result;
}

/// What a script prints is printed once, by the plain one.
ScriptOptions silent(ScriptOptions options) {
  options.print = [](const std::string&) {};
  return options;
}

/// The three interpreters of one policy, and its graphs.
class Tester {
 public:
  Tester(std::string_view source, const TestOptions& options)
      : options_(options),
        source_(source),
        plain_(source, options.script),
        captured_(std::make_shared<LuaScript>(source, silent(options.script)), compile_options()),
        coverage_(source, options.script.path),
        covered_(coverage_.source(), silent(options.script), [this](ScriptState& state) {
          covered_state_ = &state;
          coverage_.install(state);
        }) {}

  PolicyTests run() {
    PolicyTests report;
    report.policy = plain_.name();
    for (size_t i = 0; i < plain_.test_count(); ++i) report.tests.push_back(run_test(i));
    if (plain_.promises()) add_laws(report);
    report.rules = coverage_.taken();
    report.coverage_error = coverage_error_;
    report.graphs = captured_.entries().size();
    report.graph_breaks = captured_.graph_breaks();
    return report;
  }

 private:
  Compiled::Options compile_options() const {
    Compiled::Options options;
    options.backend = options_.backend;
    options.fullgraph = plain_.fullgraph();
    options.masked_rows = plain_.masked_rows();
    options.recompile_limit = many_graphs;
    return options;
  }

  TestResult run_test(size_t index) {
    TestResult result;
    result.name = plain_.test_name(index);
    result.line = plain_.test_line(index);
    const auto start = std::chrono::steady_clock::now();
    try {
      result.failure = failure_of(index);
    } catch (const Error& error) {
      result.failure = error.what();
      if (error.source().line > 0) result.line = error.source().line;
    } catch (const c10::Error& error) {
      result.failure = error.what_without_backtrace();
    } catch (const std::exception& error) {
      result.failure = error.what();
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

  void add_laws(PolicyTests& report) {
    PolicyUnderCheck policy{source_, silent(options_.script), {}};
    policy.runtime.backend = options_.backend;
    policy.runtime.limits = options_.script.limits;
    policy.runtime.print = policy.script.print;
    policy.runtime.log = [](const LogRecord&) {};
    policy.give = options_.give;
    policy.promises = *plain_.promises();
    policy.accumulation = plain_.accumulation();
    const auto start = std::chrono::steady_clock::now();
    const size_t before = report.tests.size();
    try {
      const Verification found =
          verify(std::move(policy), plain_.name(), plain_.signature(), examples_to_verify(plain_), {}, {});
      for (const LawResult& law : found.laws)
        if (law.verdict == LawResult::Verdict::held || law.verdict == LawResult::Verdict::broken)
          report.tests.push_back(test_of(law));
    } catch (const std::exception& error) {
      report.tests.push_back({"verify", error.what(), 0, 0});
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (size_t i = before; i < report.tests.size(); ++i)
      report.tests[i].seconds = seconds / static_cast<double>(report.tests.size() - before);
  }

  /// Fails with a line for each violation, and the smallest batch that shows it.
  TestResult test_of(const LawResult& law) const {
    TestResult result;
    result.name = fmt::format("verify: {}", to_string(law.law));
    for (const Violation& violation : law.violations) {
      const Source& where = violation.source;
      const std::string place = where.file.empty() ? "" : fmt::format(" in {}:{}", where.file, where.line);
      result.failure += fmt::format("{}{}{}{}", result.failure.empty() ? "" : "\n", violation.what,
                                    violation.op.empty() ? "" : ", by " + violation.op, place);
      for (const auto& [name, tensor] : violation.inputs)
        result.failure += fmt::format("\n  {} = {}", name, lua_text(tensor));
      if (result.line == 0 && where.file == options_.script.path) result.line = where.line;
    }
    return result;
  }

  std::string failure_of(size_t index) {
    at::manual_seed(seed);
    index_ = index;
    const std::vector<at::Tensor> inputs = plain_.test_arguments(index);
    check_sizes("`args` returned tensors", operators::logical_bytes(inputs));
    const std::vector<at::Tensor> kept = copies(inputs);
    const RunOutcome plain = run_plain(inputs);
    cover(index, kept);
    std::string failure = plain_.check_test(index, plain.outputs);
    if (failure.empty()) failure = disagreement(plain, kept);
    for (size_t i = 0; i < options_.batches.size() && failure.empty(); ++i) {
      if (!has_rows(kept)) break;
      failure = disagreement_on(kept, options_.batches[i]);
    }
    return failure;
  }

  /// Both ways of a test, and what compares them, copy what goes in and what comes out.
  void check_sizes(const std::string& what, double bytes) const {
    constexpr size_t part = 8;
    const size_t most = options_.script.limits.tensor_bytes / part;
    if (most == 0 || bytes <= static_cast<double>(most)) return;
    throw PolicyError(
        fmt::format("{} of {:.0f} MiB (an expanded tensor counts in full); a test may have {:.0f} MiB, an eighth of "
                    "the budget of tensor memory, because it compares copies; test with smaller tensors",
                    what, bytes / (1 << 20), static_cast<double>(most) / (1 << 20)));
  }

  std::string disagreement_on(const std::vector<at::Tensor>& kept, int64_t rows) {
    std::string failure;
    try {
      const double times = static_cast<double>(rows) / static_cast<double>(kept[0].size(0));
      check_sizes("the inputs would be tensors", operators::logical_bytes(kept) * std::max(1.0, times));
      const std::vector<at::Tensor> batch = resized(kept, rows);
      failure = disagreement(run_plain(copies(batch)), batch);
    } catch (const Error& error) {
      failure = error.what();
    } catch (const c10::Error& error) {
      failure = error.what_without_backtrace();
    }
    return failure.empty() ? "" : fmt::format("on a batch of {}: {}", rows, failure);
  }

  RunOutcome run_plain(const std::vector<at::Tensor>& inputs) {
    at::manual_seed(seed);
    RunOutcome outcome;
    {
      capture::ProtectInputs protect(inputs);
      outcome.outputs = plain_.call(inputs, values_for(inputs), std::nullopt);
    }
    outcome.flags = plain_.flags_outputs();
    check_sizes("it returned tensors", operators::logical_bytes(outcome.outputs));
    outcome.gradients = gradients_of(outcome.outputs, inputs, options_.script.limits);
    return outcome;
  }

  /// The first call may capture; the second runs what was captured.
  std::string disagreement(const RunOutcome& plain, const std::vector<at::Tensor>& inputs) {
    for (int call = 0; call < 2; ++call) {
      const std::vector<at::Tensor> own = copies(inputs);
      RunOutcome outcome;
      at::manual_seed(seed);
      const operators::Untrusted graphs(options_.script.trusted ? nullptr : &terms_);
      const bool runs_graph = call > 0;  // else the script, which has its own budget, and the compiler
      captured_.run(own, values_for(own), {runs_graph ? Deadline::in(options_.script.limits.seconds) : std::nullopt},
                    outcome.outputs);
      outcome.flags = captured_.flags_outputs();
      check_sizes("captured it returned tensors", operators::logical_bytes(outcome.outputs));
      outcome.gradients = gradients_of(outcome.outputs, own, options_.script.limits);
      finish_compiling(own);
      const std::string found = difference(plain, outcome, output_names(), /*exact=*/options_.backend != "fused");
      if (!found.empty())
        return found +
               (options_.backend == "fused" ? "; this is more than rounding" : "; both must give the same bits") +
               ". Does the policy depend on more than its inputs, such as triage.is_compiling() or a counter? `triage "
               "run POLICY --compare eager,fused` names the operation that differs.";
    }
    return "";
  }

  /// So that the next call runs the code that calls in production will run.
  void finish_compiling(const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> all = inputs;
    for (at::Tensor& value : values_for(inputs)) all.push_back(std::move(value));
    captured_.finish_compiling(all);
  }

  /// Of the outputs and the state; none where the outputs have no names.
  std::vector<std::string> output_names() const {
    std::vector<std::string> names = plain_.signature().outputs;
    for (const StateSpec& state : plain_.signature().state)
      if (!plain_.signature().outputs.empty()) names.push_back("state." + state.name);
    for (std::string& name : capture::hidden_names(plain_.signature())) names.push_back(std::move(name));
    return names;
  }

  /// Params and state of the test that runs.
  std::vector<at::Tensor> values_for(const std::vector<at::Tensor>& inputs) {
    return plain_.test_values(index_, inputs);
  }

  /// Counts what the rules take. The policy itself passed here as a plain script.
  void cover(size_t index, const std::vector<at::Tensor>& inputs) {
    at::manual_seed(seed);
    watch_silently([&] { covered_.test_arguments(index); });  // shows which rules only the tests use
    std::vector<at::Tensor> outputs;
    try {
      const std::vector<at::Tensor> own = copies(inputs);
      at::manual_seed(seed);
      coverage_.start(*covered_state_);
      outputs = covered_.call(own, values_for(own), std::nullopt);
      check_sizes("it returned tensors", operators::logical_bytes(outputs));
    } catch (const std::exception& error) {
      coverage_.abandon();
      coverage_error_ = error.what();
      return;
    }
    at::Tensor flags;
    for (size_t i = 0; i < covered_.flags_outputs().size(); ++i)
      if (covered_.flags_outputs()[i]) flags = outputs[i];
    coverage_.finish(flags, plain_.signature().codes);
    watch_silently([&] { covered_.check_test(index, outputs); });
  }

  /// Whether a test's own functions fail is told of the plain script.
  template <typename Action>
  static void watch_silently(const Action& action) {
    try {
      action();
    } catch (const std::exception&) {
      return;
    }
  }

  const TestOptions& options_;
  const std::string source_;
  const operators::Untrusted::Terms terms_{.bytes = static_cast<int64_t>(options_.script.limits.tensor_bytes)};
  LuaScript plain_;
  size_t index_ = 0;  // of the test that runs
  Compiled captured_;
  Coverage coverage_;
  std::string coverage_error_;
  ScriptState* covered_state_ = nullptr;
  LuaScript covered_;
};

}  // namespace

PolicyTests run_policy_tests(std::string_view source, const TestOptions& options) {
  return Tester(source, options).run();
}

}  // namespace triage::lua
