#include "runtime/backends/aot/aot_eager.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "runtime/backends/aot/program.h"
#include "runtime/backends/call_inputs.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/unmasked_rows.h"
#include "runtime/compat/autocast.h"
#include "runtime/given/host_call.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/evaluation/statistics.h"
#include "runtime/graph/memory.h"
#include "runtime/graph/output_names.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"

namespace triage {
namespace {

using aot::Tensors;
using graph::Graph;
using graph::Value;

/// The graph as a function of everything that may change: inputs, then variables. Its outputs are those that it
/// computes, each once.
struct FunctionalGraph {
  Graph graph;
  std::vector<at::Tensor> variables;
  std::vector<bool> read_as_number;       // one for each input
  std::optional<UnmaskedRows> not_joint;  // why it is left to `eager`
};

class FunctionMaker {
 public:
  explicit FunctionMaker(const Graph& graph) : graph_(graph), function_{Graph(graph.name()), {}, {}, {}} {}

  FunctionalGraph run(const std::vector<const Value*>& outputs) {
    for (const auto& input : graph_.inputs()) graph::copy_input(function_.graph, input, copies_);
    for (const auto& constant : graph_.constants()) {
      if (!constant.variable) continue;
      graph::copy_input(function_.graph, {constant.value, graph::InputKind::tensor}, copies_);
      function_.variables.push_back(constant.tensor);
    }
    for (const auto& constant : graph_.constants())
      if (!constant.variable) graph::copy_constant(function_.graph, constant, copies_);
    function_.read_as_number.resize(function_.graph.inputs().size());
    for (const auto& node : graph_.nodes()) add(*node);
    std::vector<Value*> results;
    for (const Value* output : outputs) results.push_back(copies_.at(output));
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs.size(); ++i) names.push_back(name_of(outputs[i], i));
    function_.graph.set_outputs(std::move(results), std::move(names));
    return std::move(function_);
  }

 private:
  void add(const graph::Node& node) {
    const graph::Node* twin = graph::copy_node(function_.graph, node, copies_);
    const auto& arguments = node.op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool number = graph::type_of(arguments[i]).kind != graph::Kind::tensor;
      graph::Operand operand = twin->operands[i];
      graph::for_each_use(operand, [&](Value* value) {
        if (number) note_number(value, node);
      });
    }
    note_sizes(*twin);
  }

  void note_number(const Value* value, const graph::Node& reader) {
    if (is_input(value) || is_made_of_sizes(value)) return hold(value);
    refuse({fmt::format("{} is computed and then read as a number by `{}`", graph::describe(*value),
                        graph::op_name(reader.op)),
            reader.source});
  }

  bool is_input(const Value* value) const {
    const auto& inputs = function_.graph.inputs();
    return std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.value == value; });
  }

  /// Whether sizes, numbers that the host gives and constants decide what `value` is: one layout has one.
  bool is_made_of_sizes(const Value* value) const {
    if (value->producer) return of_sizes_.count(value) != 0;
    return is_param(value) || function_.graph.constant_of(value);
  }

  /// Nodes come in their order: what this one reads is known.
  void note_sizes(const graph::Node& node) {
    bool all = !graph::is_random(node.op) && !graph::is_uninitialized(node.op);
    if (all && node.op.operator_name().name != graph::kSize)
      graph::for_each_use(node, [&](const Value* operand) { all = all && is_made_of_sizes(operand); });
    if (all) of_sizes_.insert(node.results.begin(), node.results.end());
  }

  bool is_param(const Value* value) const {
    const auto& inputs = function_.graph.inputs();
    return std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) {
      return input.value == value && input.kind == graph::InputKind::param;
    });
  }

  /// The numbers that the host gives for `value` become part of the layout, as its sizes are.
  void hold(const Value* asked) {
    const auto& inputs = function_.graph.inputs();
    std::vector<const Value*> left{asked};
    while (!left.empty()) {
      const Value* value = left.back();
      left.pop_back();
      if (!held_.insert(value).second) continue;
      for (size_t i = 0; !value->producer && i < inputs.size(); ++i)
        if (inputs[i].value == value) function_.read_as_number[i] = true;
      if (!value->producer || value->producer->op.operator_name().name == graph::kSize) continue;
      graph::for_each_use(*value->producer, [&](const Value* operand) { left.push_back(operand); });
    }
  }

  void refuse(UnmaskedRows why) {
    if (!function_.not_joint) function_.not_joint = std::move(why);
  }

  std::string name_of(const Value* output, size_t index) const {
    const auto& names = graph_.output_names();
    for (size_t i = 0; i < names.size(); ++i)
      if (graph_.outputs()[i] == output) return names[i];
    return graph::output_name({}, index);
  }

  const Graph& graph_;
  FunctionalGraph function_;
  graph::Copies copies_;
  std::unordered_set<const Value*> of_sizes_, held_;
};

class JointExecutable final : public Executable {
 public:
  JointExecutable(const Graph& graph, const std::vector<at::Tensor>& examples, const std::string& backend,
                  const Backend& half)
      : eager_(compile_eager(graph, examples)), num_inputs_(graph.inputs().size()) {
    std::vector<const Value*> made;
    for (const Value* output : graph.outputs()) {
      if (!output->producer) {
        outputs_.push_back(std::nullopt);  // an input or a constant
        continue;
      }
      const auto known = std::find(made.begin(), made.end(), output);
      outputs_.push_back(static_cast<size_t>(known - made.begin()));
      if (known == made.end()) made.push_back(output);
    }
    for (const Value* output : graph.outputs()) has_loose_ |= graph.constant_of(output) != nullptr;
    for (size_t i = 0; i < graph.outputs().size(); ++i)
      for (size_t j = 0; j < num_inputs_; ++j)
        if (graph.outputs()[i] == graph.inputs()[j].value) passed_.push_back({i, j});
    FunctionalGraph function = FunctionMaker(graph).run(made);
    variables_ = std::move(function.variables);
    not_joint_ = std::move(function.not_joint);
    if (has_loose_ && !not_joint_)
      not_joint_ = UnmaskedRows{"an output is a tensor from outside of the graph, unchanged"};
    if (made.empty() && !not_joint_) not_joint_ = UnmaskedRows{"it computes nothing"};
    Tensors primals(examples);
    primals.insert(primals.end(), variables_.begin(), variables_.end());
    std::vector<bool> samples = CallInputs::current().value_or(std::vector<bool>(num_inputs_, true));
    samples.resize(num_inputs_);
    samples.resize(primals.size());  // variables hold none
    program_ = std::make_shared<aot::Program>(std::move(function.graph), std::move(samples),
                                              std::move(function.read_as_number), backend, half, primals);
    answers_capture_ = !not_joint_ && wants_gradients(examples);
  }

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override {
    const CallContext inside{call.deadline};
    if (inputs.size() != num_inputs_ || !wants_gradients(inputs)) return eager_->run(inputs, outputs, inside);
    const Tensors primals = with_variables(inputs);
    const aot::InputLayout* layout = layout_of(primals);
    if (!layout || layout->is_plain()) return eager_->run(inputs, outputs, inside);
    Tensors made;
    aot::run_joint(program_, *layout, primals, made, inside);
    for (const auto& output : outputs_) outputs.push_back(output ? made[*output] : at::Tensor());
    for (const auto& [output, input] : passed_) outputs[output] = inputs[input];
  }

  bool answers_capture() const override { return answers_capture_; }
  size_t spared_calls() const override { return not_joint_ ? 0 : Executable::spared_calls(); }  // for its gradients
  void never_fall_back() override { program_->never_fall_back(); }
  void require_masked_rows() override { program_->require_masked_rows(); }
  std::optional<UnmaskedRows> unmasked_rows(at::ArrayRef<at::Tensor> inputs) const override {
    if (!wants_gradients(inputs)) return std::nullopt;
    const Tensors primals = with_variables(inputs);
    if (auto why = why_not(primals)) return why;
    const aot::InputLayout* layout = program_->layout_of(primals);
    if (!layout) return UnmaskedRows{"it was called with too many kinds of inputs"};
    return program_->unmasked_rows(*layout, primals);
  }
  void finish_compiling() const override { program_->finish_compiling(); }
  LoopTiers loops() const override { return program_->loops(); }
  size_t bytes() const override { return sizeof(*this) + eager_->bytes() + program_->bytes(); }

 private:
  bool wants_gradients(at::ArrayRef<at::Tensor> inputs) const {
    const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
    if (!c10::GradMode::is_enabled() || excluded.has(c10::DispatchKey::AutogradFunctionality)) return false;
    const auto wants = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
    return std::any_of(inputs.begin(), inputs.end(), wants) || std::any_of(variables_.begin(), variables_.end(), wants);
  }

  Tensors with_variables(at::ArrayRef<at::Tensor> inputs) const {
    Tensors primals(inputs.begin(), inputs.end());
    primals.insert(primals.end(), variables_.begin(), variables_.end());
    return primals;
  }

  /// Why the call is for `eager`.
  std::optional<UnmaskedRows> why_not(const Tensors& primals) const {
    if (not_joint_) return not_joint_;
    if (compat::autocast_state()) return UnmaskedRows{"autocast is on"};
    if (!std::all_of(primals.begin(), primals.end(), aot::is_ordinary))
      return UnmaskedRows{"an input is no dense tensor, or has forward-mode gradients"};
    return std::nullopt;
  }

  /// Null where the call is for `eager`.
  const aot::InputLayout* layout_of(const Tensors& primals) const {
    const auto why = why_not(primals);
    if (!why) return program_->layout_of(primals);
    not_joint_ ? program_->fail(*why) : program_->hand_over(*why);
    return nullptr;
  }

  std::unique_ptr<Executable> eager_;
  std::shared_ptr<aot::Program> program_;
  std::vector<at::Tensor> variables_;
  std::vector<std::optional<size_t>> outputs_;     // index among what the program computes
  std::vector<std::pair<size_t, size_t>> passed_;  // output, and the input that it is
  std::optional<UnmaskedRows> not_joint_;
  size_t num_inputs_;
  bool has_loose_ = false, answers_capture_ = false;
};

}  // namespace

std::unique_ptr<Executable> compile_joint(const Graph& graph, const std::vector<at::Tensor>& examples,
                                          const std::string& name, const Backend& half) {
  // What the host computes, and what it depends on, shows in no graph: autograd goes back through the calls themselves.
  if (const graph::Node* host = given::find_host_call(graph))
    return left_to_eager(graph, examples, name, {"it calls a function of the host", host->source});
  // To record a joint graph is to run the function, and each run would move the statistics.
  if (const graph::Node* norm = graph::find_statistics(graph))
    return left_to_eager(graph, examples, name, {"a normalization writes its running statistics", norm->source});
  return std::make_unique<JointExecutable>(graph, examples, name, half);
}

std::unique_ptr<Executable> compile_aot_eager(const Graph& graph, const std::vector<at::Tensor>& examples) {
  return compile_joint(graph, examples, "aot_eager", compile_eager);
}

}  // namespace triage
