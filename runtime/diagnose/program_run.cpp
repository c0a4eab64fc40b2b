#include "runtime/diagnose/program_run.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "runtime/backends/eager.h"
#include "runtime/diagnose/judge.h"
#include "runtime/messages/debugging/repro_settings.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/random/sequence.h"

namespace triage::diagnose {
namespace {

using Stage = ProgramFailure::Stage;

bool differentiable(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

/// Gradients of inputs, for incoming gradients that depend on the seed and the sizes of the outputs only.
std::vector<at::Tensor> backward(const GraphProgram& program, const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> from, incoming, to;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(program.seed + 1);
  for (const at::Tensor& output : outputs) {
    if (!differentiable(output)) continue;
    from.push_back(output);
    const at::Tensor random = at::randn(output.sizes(), generator, at::TensorOptions(at::kDouble));
    incoming.push_back(random.to(at::kFloat).to(output.options()));
  }
  for (const at::Tensor& input : inputs)
    if (input.requires_grad()) to.push_back(input);
  if (from.empty() || to.empty()) return std::vector<at::Tensor>(to.size());
  return torch::autograd::grad(from, to, incoming, /*retain_graph=*/false, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

}  // namespace

ProgramResults call_program(const GraphProgram& program, const Executable& executable,
                            const std::vector<at::Tensor>& inputs, Stage& stage) {
  const at::AutoGradMode grad(program.backward);
  const random::Replay same_numbers(true, at::make_generator<at::CPUGeneratorImpl>(program.seed));
  ProgramResults results;
  stage = Stage::run;
  executable.run(inputs, results.outputs);
  results.next_random = random::draw_bits();
  if (program.backward) {
    stage = Stage::backward;
    results.gradients = backward(program, inputs, results.outputs);
  }
  for (at::Tensor& output : results.outputs)
    if (output.defined()) output = output.detach();
  return results;
}

Judgement::Judgement(const GraphProgram& program, const std::vector<at::Tensor>& inputs) {
  Stage stage = Stage::compile;
  eager_ = call_program(program, *compile_eager(program.graph, inputs), inputs, stage);
  judge_ = eager_;
  const bool draws = std::any_of(program.graph.nodes().begin(), program.graph.nodes().end(),
                                 [](const auto& node) { return graph::is_random(node->op); });
  if (draws) return;  // float64 draws other numbers
  try {
    GraphProgram judge = program.clone();
    judge.graph = in_float64(program.graph);
    const auto wide_inputs = inputs_in_float64(program.graph, inputs);
    judge_ = call_program(judge, *compile_eager(judge.graph, wide_inputs), wide_inputs, stage);
  } catch (const std::exception&) {  // an operator without float64
  }
}

std::optional<std::string> Judgement::wrong(const ProgramResults& given) const {
  if (const auto found = wrong(given.outputs, eager_.outputs, judge_.outputs, "output")) return found;
  if (given.next_random != eager_.next_random) return "it draws another number of random numbers than with eager";
  return wrong(given.gradients, eager_.gradients, judge_.gradients, "gradient");
}

std::optional<std::string> Judgement::wrong(const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& eager,
                                            const std::vector<at::Tensor>& judge, const char* what) {
  if (given.size() != eager.size())
    return fmt::format("there are {} {}s, and {} with eager", given.size(), what, eager.size());
  for (size_t i = 0; i < given.size(); ++i)
    if (const auto found = wrong_numbers(given[i], eager[i], judge[i])) return fmt::format("{} {} {}", what, i, *found);
  return std::nullopt;
}

std::string ProgramFailure::text() const {
  switch (stage) {
    case Stage::compile:
      return "cannot compile the graph: " + message;
    case Stage::run:
      return "fails when the graph runs: " + message;
    case Stage::backward:
      return "fails in the backward pass: " + message;
    case Stage::numbers:
      return "gives wrong numbers: " + message;
  }
  return message;
}

std::vector<at::Tensor> make_inputs(const GraphProgram& program) {
  std::vector<at::Tensor> inputs;
  for (const ProgramInput& input : program.inputs) inputs.push_back(input.make());
  return inputs;
}

ProgramOutcome run_program(const GraphProgram& program, const Backend& backend) {
  const messages::InRepro in_repro;
  Stage stage = Stage::compile;
  ProgramOutcome outcome;
  const std::vector<at::Tensor> inputs = make_inputs(program);
  try {
    const at::AutoGradMode grad(program.backward);
    const std::unique_ptr<Executable> executable = backend(program.graph, inputs);
    if (program.strict) executable->never_fall_back();
    std::optional<Judgement> judgement;
    for (int calls = 0; calls < 2; ++calls) {
      outcome.results = call_program(program, *executable, inputs, stage);
      executable->finish_compiling();
      if (program.check != ProgramCheck::numbers) continue;
      if (!judgement) judgement.emplace(program, inputs);
      if (const auto wrong = judgement->wrong(outcome.results)) {
        outcome.failure = {Stage::numbers, *wrong};
        return outcome;
      }
    }
  } catch (const std::exception& error) {
    outcome.failure = {stage, messages::message_without_backtrace(error)};
  }
  return outcome;
}

}  // namespace triage::diagnose
