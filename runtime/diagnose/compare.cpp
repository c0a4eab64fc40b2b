#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <triage/compare.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>

#include "runtime/backends/eager.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/diagnose/judge.h"
#include "runtime/diagnose/program_run.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage {
namespace {

using diagnose::GraphProgram;
using diagnose::Judgement;
using diagnose::ProgramFailure;
using diagnose::ProgramResults;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Floats as integers in the order of the floats: neighbours differ by one, zeros of both signs are 0.
at::Tensor ordered(const at::Tensor& floats) {
  const at::ScalarType integers = floats.element_size() == 8   ? at::kLong
                                  : floats.element_size() == 4 ? at::kInt
                                                               : at::kShort;
  const at::Tensor bits = floats.contiguous().view(integers).to(at::kLong);
  const int64_t lowest = integers == at::kLong  ? std::numeric_limits<int64_t>::min()
                         : integers == at::kInt ? std::numeric_limits<int32_t>::min()
                                                : std::numeric_limits<int16_t>::min();
  return at::where(bits.lt(0), lowest - bits, bits);
}

/// For each element, in units in the last place.
at::Tensor units_apart(const at::Tensor& given, const at::Tensor& eager) {
  if (!given.is_floating_point()) return given.ne(eager).to(at::kDouble) * infinite;
  const at::Tensor a = ordered(given), b = ordered(eager);
  // Numbers of one sign are subtracted exactly; the difference of others may exceed an int64.
  const at::Tensor far = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
  const at::Tensor units = at::where(a.lt(0).eq(b.lt(0)), (a - b).abs().to(at::kDouble), far);
  const at::Tensor only_one_is_nan = given.isnan().ne(eager.isnan());
  return at::where(only_one_is_nan, at::full_like(units, infinite), units)
      .masked_fill(given.isnan() & eager.isnan(), 0);
}

/// In units in the last place of the largest finite number of `eager`: what cancels out leaves numbers whose own units
/// say nothing.
at::Tensor units_of_largest(const at::Tensor& given, const at::Tensor& eager) {
  const at::Tensor own = units_apart(given, eager);
  const at::Tensor finite = eager.isfinite() & given.isfinite();
  const at::Tensor exact = eager.to(at::kDouble).masked_fill(~finite, 0);
  const int digits = eager.scalar_type() == at::kDouble     ? 52
                     : eager.scalar_type() == at::kFloat    ? 23
                     : eager.scalar_type() == at::kBFloat16 ? 7
                                                            : 10;
  const double unit = std::ldexp(1.0, std::ilogb(exact.abs().max().item<double>()) - digits);
  if (!(unit > 0)) return own;  // all zeros
  return at::where(finite, (given.to(at::kDouble) - exact).abs() / unit, own);
}

struct LargestDifference {
  double units = 0;
  int64_t row = 0;
};

LargestDifference largest_difference(at::Tensor given, at::Tensor eager, bool gradient) {
  if (!given.defined() && !eager.defined()) return {};
  if (given.defined() != eager.defined() || given.scalar_type() != eager.scalar_type() ||
      given.sizes() != eager.sizes())
    return {infinite, 0};
  if (given.numel() == 0) return {};
  const int64_t rows = given.dim() ? given.size(0) : 1;
  if (given.is_complex())
    given = at::view_as_real(given.resolve_conj()), eager = at::view_as_real(eager.resolve_conj());
  // 0 * infinite of equal integers is NaN.
  given = given.resolve_neg(), eager = eager.resolve_neg();
  const bool of_largest = gradient && given.is_floating_point();
  const at::Tensor units =
      (of_largest ? units_of_largest(given, eager) : units_apart(given, eager)).nan_to_num(0, infinite).flatten();
  const auto element = units.argmax().item<int64_t>();
  return {units[element].item<double>(), element / (units.numel() / rows)};
}

ValueDifference difference_of(std::string value, const at::Tensor& given, const at::Tensor& eager,
                              const at::Tensor& float64, bool gradient) {
  ValueDifference found;
  found.value = std::move(value);
  const LargestDifference largest = largest_difference(given, eager, gradient);
  found.units = largest.units, found.row = largest.row;
  if (largest.units > 0) found.wrong = diagnose::wrong_numbers(given, eager, float64).value_or("");
  return found;
}

bool worse(const ValueDifference& a, const std::optional<ValueDifference>& b) {
  if (!b) return a.units > 0;
  return a.wrong.empty() == b->wrong.empty() ? a.units > b->units : b->wrong.empty();
}

std::string output_name(const graph::Graph& graph, size_t index) {
  const auto& names = graph.output_names();
  return "output " + (index < names.size() && !names[index].empty() ? names[index] : std::to_string(index));
}

/// The worst of all outputs and gradients; none where all are the same.
std::optional<ValueDifference> worst_difference(const graph::Graph& graph, const std::vector<at::Tensor>& inputs,
                                                const ProgramResults& given, const Judgement& judgement) {
  const ProgramResults &eager = judgement.eager(), &float64 = judgement.float64();
  std::optional<ValueDifference> worst;
  const auto add = [&](ValueDifference found) {
    if (worse(found, worst)) worst = std::move(found);
  };
  if (given.outputs.size() != eager.outputs.size()) {
    ValueDifference found;
    found.value = "number of outputs", found.units = infinite;
    found.wrong = fmt::format("is {}, and {} with eager", given.outputs.size(), eager.outputs.size());
    return found;
  }
  if (given.next_random != eager.next_random) {
    ValueDifference found;
    found.value = "number of random numbers", found.units = infinite;
    found.wrong = "is another one than with eager: what comes next draws other numbers";
    return found;
  }
  for (size_t i = 0; i < given.outputs.size(); ++i)
    add(difference_of(output_name(graph, i), given.outputs[i], eager.outputs[i], float64.outputs[i], false));
  for (size_t i = 0, gradient = 0; i < inputs.size() && gradient < given.gradients.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    add(difference_of("gradient of " + graph.inputs()[i].value->name, given.gradients[gradient],
                      eager.gradients[gradient], float64.gradients[gradient], true));
    ++gradient;
  }
  return worst;
}

/// A call of `backend`, or two: what compiles in the background serves the second.
std::optional<ValueDifference> compare_once(const GraphProgram& program, const std::vector<at::Tensor>& inputs,
                                            const Backend& backend) {
  const Judgement judgement(program, inputs);
  const at::AutoGradMode grad(program.backward);
  const std::unique_ptr<Executable> executable = compile_outputs(program.graph, inputs, backend, LentMemory());
  executable->never_fall_back();
  ProgramFailure::Stage stage{};
  std::optional<ValueDifference> worst;
  for (int call = 0; call < 2; ++call) {
    const ProgramResults given = call_program(program, *executable, inputs, stage);
    if (auto found = worst_difference(program.graph, inputs, given, judgement); found && worse(*found, worst))
      worst = std::move(found);
    executable->finish_compiling();
  }
  return worst;
}

/// The first node whose value differs, in a graph that ends there. With `wrong`: whose value is wrong.
std::optional<ValueDifference> first_node(const GraphProgram& program, const std::vector<at::Tensor>& inputs,
                                          const Backend& backend, bool wrong) {
  const auto& nodes = program.graph.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    GraphProgram part = program.clone();
    std::vector<graph::Value*> results;
    for (const graph::Value* result : part.graph.nodes()[i]->results)
      if (result) results.push_back(result);
    if (results.empty()) continue;
    part.graph.set_outputs(std::move(results));
    graph::eliminate_dead(part.graph);
    auto found = compare_once(part, inputs, backend);
    if (!found || (wrong && found->wrong.empty())) continue;
    found->value = graph::print(*nodes[i]);
    found->source = nodes[i]->source;
    return found;
  }
  return std::nullopt;
}

void compare_graph(const GraphProgram& program, const std::vector<at::Tensor>& inputs, const Backend& backend,
                   GraphComparison& comparison) {
  try {
    const auto found = compare_once(program, inputs, backend);
    if (!found || !worse(*found, comparison.result)) return;
    comparison.result = found;
    comparison.node = first_node(program, inputs, backend, !found->wrong.empty());
  } catch (const std::exception& error) {
    comparison.failure = messages::message_without_backtrace(error);
  }
}

/// A tensor that shares memory with `input` and is no part of its autograd graph.
at::Tensor leaf(const at::Tensor& input) {
  if (!input.requires_grad()) return input;
  return input.detach().requires_grad_(true);
}

std::string units_text(double units) {
  if (units == infinite) return "";
  return fmt::format("{:.{}g} {} in the last place", units, units < 1e6 ? 7 : 3, units == 1 ? "unit" : "units");
}

/// "by 3 units in the last place (row 5)"
std::string difference_text(const ValueDifference& difference) {
  if (!difference.wrong.empty()) return difference.wrong;
  return fmt::format("differs by at most {} (row {})", units_text(difference.units), difference.row);
}

/// `told` is what was said of the result.
std::string node_text(const ValueDifference& node, const std::string& told) {
  std::string text = fmt::format("first at {}", node.value);
  if (!node.source.file.empty()) text += fmt::format("\n      {}:{}", node.source.file, node.source.line);
  const std::string difference = difference_text(node);
  return difference == told ? text : text + "\n      " + difference;
}

}  // namespace

std::string text(const GraphComparison& comparison) {
  std::string text = fmt::format("graph {} ({} {}), {}: ", comparison.graph, comparison.nodes,
                                 comparison.nodes == 1 ? "node" : "nodes", comparison.backend);
  if (!comparison.failure.empty()) return text + "FAILED: " + comparison.failure;
  if (!comparison.result) return text + "the same bits as eager";
  text += comparison.ok() ? "as exact as eager" : "WRONG";
  const std::string difference = difference_text(*comparison.result);
  text += fmt::format("\n    {} {}", comparison.result->value, difference);
  if (comparison.node) return text + "\n    " + node_text(*comparison.node, difference);
  return text + "\n    each node by itself is right; only the whole graph is not, so look at what it fuses or reuses";
}

struct BackendComparison::State {
  explicit State(std::vector<Compared> compared) : backends(std::move(compared)) {}

  GraphComparison entry(size_t index) {
    const std::lock_guard lock(mutex);
    return graphs[index];
  }
  void set_entry(size_t index, GraphComparison comparison) {
    const std::lock_guard lock(mutex);
    graphs[index] = std::move(comparison);
  }
  /// The place of the first.
  size_t add(std::vector<GraphComparison> entries) {
    const std::lock_guard lock(mutex);
    graphs.insert(graphs.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
    return graphs.size() - entries.size();
  }

  const std::vector<Compared> backends;
  std::mutex mutex;  // of `graphs`
  std::vector<GraphComparison> graphs;
};

namespace {

/// Answers as `eager` does.
template <typename State>
class ComparingExecutable final : public Executable {
 public:
  ComparingExecutable(const graph::Graph& graph, const std::vector<at::Tensor>& examples, std::shared_ptr<State> state)
      : graph_(graph.clone()), eager_(compile_eager(graph, examples)), state_(std::move(state)) {}

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override {
    compare(inputs);
    eager_->run(inputs, outputs, call);
  }
  bool answers_capture() const override { return true; }  // so that the first call is compared

 private:
  void compare(at::ArrayRef<at::Tensor> inputs) const {
    GraphProgram program;
    program.graph = graph_.clone();
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs) {
      leaves.push_back(leaf(input));
      program.backward |= input.requires_grad();
    }
    program.backward &= at::GradMode::is_enabled();
    const size_t first = first_entry();
    for (size_t i = 0; i < state_->backends.size(); ++i) {
      GraphComparison comparison = state_->entry(first + i);
      compare_graph(program, leaves, state_->backends[i].backend, comparison);
      state_->set_entry(first + i, std::move(comparison));
    }
  }

  /// Made in the first call: a graph that was never called is not compared.
  size_t first_entry() const {
    std::call_once(called_, [&] {
      std::vector<GraphComparison> entries;
      for (const auto& compared : state_->backends) {
        GraphComparison& made = entries.emplace_back();
        made.graph = graph_.name(), made.backend = compared.name, made.nodes = graph_.nodes().size();
      }
      first_ = state_->add(std::move(entries));
    });
    return first_;
  }

  graph::Graph graph_;
  std::unique_ptr<Executable> eager_;
  std::shared_ptr<State> state_;
  mutable std::once_flag called_;
  mutable size_t first_ = 0;  // place of its entries
};

}  // namespace

BackendComparison::BackendComparison(std::vector<Compared> backends)
    : state_(std::make_shared<State>(std::move(backends))) {}

Backend BackendComparison::backend() const {
  return [state = state_](const graph::Graph& graph, const std::vector<at::Tensor>& examples) {
    return std::make_unique<ComparingExecutable<State>>(graph, examples, state);
  };
}

std::vector<GraphComparison> BackendComparison::graphs() const {
  const std::lock_guard lock(state_->mutex);
  return state_->graphs;
}

}  // namespace triage
