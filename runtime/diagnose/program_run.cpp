#include "runtime/diagnose/program_run.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "runtime/backends/eager.h"
#include "runtime/graph/argument_type.h"
#include "runtime/graph/uses.h"
#include "runtime/random/sequence.h"

namespace triage::diagnose {
namespace {

using Stage = ProgramFailure::Stage;

std::string message_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch ? of_torch->what_without_backtrace() : error.what();
}

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

/// One call. `stage` follows what is done.
ProgramResults call(const GraphProgram& program, const Executable& executable, const std::vector<at::Tensor>& inputs,
                    Stage& stage) {
  const at::AutoGradMode grad(program.backward);
  const random::Replay same_numbers(true, at::make_generator<at::CPUGeneratorImpl>(program.seed));
  ProgramResults results;
  stage = Stage::run;
  executable.run(inputs, results.outputs);
  if (program.backward) {
    stage = Stage::backward;
    results.gradients = backward(program, inputs, results.outputs);
  }
  for (at::Tensor& output : results.outputs)
    if (output.defined()) output = output.detach();
  return results;
}

at::Tensor in_double(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (tensor.is_complex()) return tensor.to(at::kComplexDouble);
  return tensor.is_floating_point() ? tensor.to(at::kDouble) : tensor;
}

at::ScalarType wide(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) return at::kDouble;
  return at::isComplexType(dtype) ? at::kComplexDouble : dtype;
}

/// The same computation in float64.
GraphProgram judge_of(const GraphProgram& program) {
  GraphProgram judge = program.clone();
  judge.graph = graph::Graph(program.graph.name());
  graph::Graph& made = judge.graph;
  std::unordered_map<const graph::Value*, graph::Value*> copies;
  for (const auto& input : program.graph.inputs()) {
    copies[input.value] = made.add_input(input.value->name, input.kind);
    made.edit(copies[input.value]).is_flags = input.value->is_flags;
  }
  for (const auto& constant : program.graph.constants()) {
    const at::Tensor value = constant.value->is_flags ? constant.tensor : in_double(constant.tensor);
    if (constant.tensor.unsafeGetTensorImpl()->is_wrapped_number())
      value.unsafeGetTensorImpl()->set_wrapped_number(true);
    copies[constant.value] = made.add_constant(value, constant.value->name);
    made.edit(copies[constant.value]).is_flags = constant.value->is_flags;
  }
  for (const auto& node : program.graph.nodes()) {
    std::vector<graph::Operand> operands = node->operands;
    const auto& arguments = node->op.schema().arguments();
    for (size_t i = 0; i < operands.size(); ++i) {
      graph::for_each_use(operands[i], [&](graph::Value*& value) { value = copies.at(value); });
      const c10::IValue* constant = operands[i].constant();
      if (constant && constant->isInt() && graph::type_of(arguments[i]).kind == graph::Kind::dtype)
        operands[i] = graph::Operand(c10::IValue(static_cast<int64_t>(wide(constant->toScalarType()))));
    }
    const graph::Node* twin = made.append(node->op, std::move(operands), node->results.size(), node->source);
    for (size_t i = 0; i < node->results.size(); ++i) {
      copies[node->results[i]] = twin->results[i];
      made.edit(twin->results[i]).is_flags = node->results[i]->is_flags;
    }
  }
  std::vector<graph::Value*> outputs;
  for (const graph::Value* output : program.graph.outputs()) outputs.push_back(copies.at(output));
  made.set_outputs(std::move(outputs));
  return judge;
}

std::vector<at::Tensor> inputs_in_double(const GraphProgram& program, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> made;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool flags = program.graph.inputs()[i].value->is_flags;
    at::Tensor tensor = flags ? inputs[i] : in_double(inputs[i].detach());
    if (inputs[i].unsafeGetTensorImpl()->is_wrapped_number()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    if (!flags && inputs[i].requires_grad()) tensor = tensor.detach().requires_grad_(true);
    made.push_back(tensor);
  }
  return made;
}

std::string kind_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return fmt::format("{}[{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

std::string element_text(const at::Tensor& tensor, int64_t element) {
  const at::Tensor one = tensor.reshape({-1})[element];
  if (one.is_floating_point()) return fmt::format("{:.9g}", one.item<double>());
  return fmt::format("{}", one.item<int64_t>());
}

int64_t first_true(const at::Tensor& mask) { return mask.reshape({-1}).to(at::kByte).argmax().item<int64_t>(); }

std::string place_of(const at::Tensor& tensor, int64_t element) {
  if (tensor.dim() == 0) return "";
  return fmt::format(" at element {} (row {})", element,
                     element / std::max<int64_t>(1, tensor.numel() / tensor.size(0)));
}

/// What is wrong with `given`; nothing where it is as good as `eager`, times kErrorFactor.
std::optional<std::string> wrong_numbers(at::Tensor given, at::Tensor eager, at::Tensor judge) {
  if (given.defined() != eager.defined() ||
      (given.defined() && (given.scalar_type() != eager.scalar_type() || given.sizes() != eager.sizes())))
    return fmt::format("is {}, and {} with eager", kind_of(given), kind_of(eager));
  if (!given.defined() || given.numel() == 0) return std::nullopt;
  if (given.is_complex()) {
    given = at::view_as_real(given.resolve_conj()), eager = at::view_as_real(eager.resolve_conj());
    judge = at::view_as_real(judge.resolve_conj());
  }
  if (!given.is_floating_point()) {
    const at::Tensor differs = given.ne(eager);
    if (!differs.any().item<bool>()) return std::nullopt;
    const int64_t at = first_true(differs);
    return fmt::format("differs{}: {}, and {} with eager", place_of(given, at), element_text(given, at),
                       element_text(eager, at));
  }
  const at::Tensor g = given.to(at::kDouble), e = eager.to(at::kDouble);
  at::Tensor j = judge.defined() && judge.sizes() == e.sizes() ? judge.to(at::kDouble) : e;
  const at::Tensor places = g.isnan().ne(e.isnan()) | (g.isinf() & e.isfinite()) | (e.isinf() & g.isfinite()) |
                            (g.isinf() & e.isinf() & g.ne(e));
  if (places.any().item<bool>()) {
    const int64_t at = first_true(places);
    return fmt::format("has other NaN or Inf places, the first{}: {}, and {} with eager", place_of(given, at),
                       element_text(given, at), element_text(eager, at));
  }
  j = at::where(j.isfinite(), j, e);  // what only float64 can hold
  const double epsilon = given.scalar_type() == at::kDouble     ? std::numeric_limits<double>::epsilon()
                         : given.scalar_type() == at::kFloat    ? std::numeric_limits<float>::epsilon()
                         : given.scalar_type() == at::kBFloat16 ? 0x1p-7
                                                                : 0x1p-10;
  const at::Tensor finite = g.isfinite() & e.isfinite();
  const at::Tensor of_eager = at::where(finite, (e - j).abs(), at::zeros_like(j));
  const at::Tensor of_given = at::where(finite, (g - j).abs(), at::zeros_like(j));
  const double tiny = given.scalar_type() == at::kDouble ? 1e-300 : given.scalar_type() == at::kHalf ? 6e-8 : 1e-37;
  const at::Tensor allowed = (of_eager.max() + j.abs() * epsilon + tiny) * kErrorFactor;
  const at::Tensor wrong = of_given.gt(allowed);
  if (!wrong.any().item<bool>()) return std::nullopt;
  const int64_t at = at::where(wrong, of_given, at::zeros_like(j)).reshape({-1}).argmax().item<int64_t>();
  return fmt::format(
      "is wrong{}: {}; eager gives {} and float64 {}: off by {:.3g}, where {} times the error of eager allow {:.3g}",
      place_of(given, at), element_text(given, at), element_text(eager, at), element_text(j, at),
      of_given.reshape({-1})[at].item<double>(), kErrorFactor, allowed.reshape({-1})[at].item<double>());
}

class Judgement {
 public:
  Judgement(const GraphProgram& program, const std::vector<at::Tensor>& inputs) {
    Stage stage = Stage::compile;
    eager_ = call(program, *compile_eager(program.graph, inputs), inputs, stage);
    judge_ = eager_;
    const bool draws = std::any_of(program.graph.nodes().begin(), program.graph.nodes().end(),
                                   [](const auto& node) { return graph::is_random(node->op); });
    if (draws) return;  // float64 draws other numbers
    try {
      const GraphProgram judge = judge_of(program);
      const auto wide_inputs = inputs_in_double(program, inputs);
      judge_ = call(judge, *compile_eager(judge.graph, wide_inputs), wide_inputs, stage);
    } catch (const std::exception&) {  // an operator without float64
    }
  }

  std::optional<std::string> wrong(const ProgramResults& given) const {
    if (const auto found = wrong(given.outputs, eager_.outputs, judge_.outputs, "output")) return found;
    return wrong(given.gradients, eager_.gradients, judge_.gradients, "gradient");
  }

 private:
  static std::optional<std::string> wrong(const std::vector<at::Tensor>& given, const std::vector<at::Tensor>& eager,
                                          const std::vector<at::Tensor>& judge, const char* what) {
    if (given.size() != eager.size())
      return fmt::format("there are {} {}s, and {} with eager", given.size(), what, eager.size());
    for (size_t i = 0; i < given.size(); ++i)
      if (const auto found = wrong_numbers(given[i], eager[i], judge[i]))
        return fmt::format("{} {} {}", what, i, *found);
    return std::nullopt;
  }

  ProgramResults eager_, judge_;
};

}  // namespace

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
  Stage stage = Stage::compile;
  ProgramOutcome outcome;
  const std::vector<at::Tensor> inputs = make_inputs(program);
  try {
    const at::AutoGradMode grad(program.backward);
    const std::unique_ptr<Executable> executable = backend(program.graph, inputs);
    if (program.strict) executable->never_fall_back();
    std::optional<Judgement> judgement;
    for (int calls = 0; calls < 2; ++calls) {
      outcome.results = call(program, *executable, inputs, stage);
      if (program.compiler == CompilerMode::wait) executable->finish_compiling();
      if (program.check != ProgramCheck::numbers) continue;
      if (!judgement) judgement.emplace(program, inputs);
      if (const auto wrong = judgement->wrong(outcome.results)) {
        outcome.failure = {Stage::numbers, *wrong};
        return outcome;
      }
    }
  } catch (const std::exception& error) {
    outcome.failure = {stage, message_of(error)};
  }
  return outcome;
}

}  // namespace triage::diagnose
