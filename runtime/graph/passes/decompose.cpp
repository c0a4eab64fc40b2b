#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/graph.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "runtime/flags/composites/composite.h"
#include "runtime/flags/composites/known_rows.h"
#include "runtime/given/host_call.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/evaluation/restride.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/operators/semantics.h"

namespace triage::graph {
namespace {

/// An operator of ours that is replaced. `guard_grad` stays: forward it is the identity, and no ATen operator has its
/// backward. Calls of the host stay: nobody knows what they compute.
bool is_ours(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  return name.rfind("triage::", 0) == 0 && name != "triage::guard_grad" && !given::is_host_call(node.op);
}

/// What is to stay.
struct Left {
  Numbers numbers;
  Choices choices;
};

bool goes(const Node& node, const Left& left) {
  return is_ours(node) && (left.numbers == Numbers::in_aten || !is_number_op(node.op)) &&
         (left.choices == Choices::in_aten || !is_choice(node));
}

bool any_goes(const Graph& graph, const Left& left) {
  for (const auto& node : graph.nodes())
    if (goes(*node, left)) return true;
  return false;
}

/// Makes up tensors for values, as far as their call's decomposition needs them: what it records depends on ranks,
/// dtypes and constants only.
class Examples {
 public:
  explicit Examples(const Graph& graph) : graph_(graph) {
    for (const auto& input : graph.inputs())
      if (input.kind == InputKind::param) params_[input.value] = true;
  }

  at::Tensor of(const Value* asked) {
    std::vector<const Value*> left{asked};
    while (!left.empty()) {
      const Value* const value = left.back();
      if (tensors_.count(value) || make_alone(value)) {
        left.pop_back();
        continue;
      }
      bool waits = false;
      for_each_use(*value->producer, [&](const Value* operand) {
        if (tensors_.count(operand)) return;
        left.push_back(operand);
        waits = true;
      });
      if (!waits) run(*value->producer, value);
    }
    return tensors_.at(asked);
  }

 private:
  /// False where the call that gives the value has to run.
  bool make_alone(const Value* value) {
    if (const at::Tensor* constant = graph_.constant_of(value)) {
      tensors_[value] = *constant;
      return true;
    }
    if (value->meta) {
      at::Tensor zeros =
          at::zeros(value->meta->sizes, at::TensorOptions().dtype(value->meta->dtype).device(value->meta->device));
      if (params_.count(value) && zeros.dim() == 0) zeros.unsafeGetTensorImpl()->set_wrapped_number(true);
      tensors_[value] = zeros;
      return true;
    }
    if (!value->producer)
      throw GraphError(
          fmt::format("cannot decompose graph `{}`: its input {} has no type; capture it, or write one such as "
                      "%z: \"f32[32, 512]\"",
                      graph_.name(), describe(*value)));
    return false;
  }

  void run(const Node& node, const Value* value) {
    const std::vector<at::Tensor> results = evaluate(node, [&](const Value* operand) { return tensors_.at(operand); });
    for (size_t i = 0; i < results.size() && i < node.results.size(); ++i)
      tensors_.emplace(node.results[i], results[i]);
    if (!tensors_.count(value)) throw GraphError(fmt::format("{} did not give {}", describe(node), describe(*value)));
  }

  const Graph& graph_;
  std::unordered_map<const Value*, at::Tensor> tensors_;
  std::unordered_map<const Value*, bool> params_;
};

// A number that comes from a value of the graph (a param) stands in the recorded calls as one of these, unlikely to be
// there for another reason, and is put back in its place afterwards.
constexpr double kFloatStandIn = 7.3890560989306495e-203;
constexpr int64_t kIntStandIn = 0x5eed'0f7a'1a6e'c0de;

constexpr int64_t kMostZeros = 1 << 20;  // of a constant, to be looked at

/// What is known of a value's rows (runtime/flags/composites/known_rows.h), with masks that are values of the new
/// graph.
struct RowFacts {
  std::vector<Value*> masks;
  std::vector<flags::RowTable::Row> rows;
};

class Decomposer {
 public:
  Decomposer(const Graph& graph, const Left& left) : graph_(graph), left_(left), examples_(graph), out_(graph.name()) {}

  Graph run() {
    for (const auto& input : graph_.inputs()) copy_input(out_, input, map_);
    for (const auto& constant : graph_.constants()) copy_constant(out_, constant, map_);
    for (const auto& node : graph_.nodes()) {
      if (!goes(*node, left_))
        copy_node(out_, *node, map_);
      else if (is_number_op(node->op))
        spell_out(*node);
      else
        inline_call(*node);
    }
    std::vector<Value*> outputs;
    for (const Value* output : graph_.outputs()) outputs.push_back(map_.at(output));
    out_.set_outputs(std::move(outputs), graph_.output_names());
    return std::move(out_);
  }

 private:
  void spell_out(const Node& node) {
    std::vector<Operand> operands = node.operands;
    for (auto& operand : operands) for_each_use(operand, [&](Value*& value) { value = map_.at(value); });
    Value* result = append_in_aten(out_, node, std::move(operands));
    if (result) map_[node.results.front()] = result;
  }

  /// One call of ours being replaced.
  struct ReplacedCall {
    const Node& node;
    std::vector<c10::IValue> arguments;  // as the composite takes them; tensors of the graph are filled in
    std::vector<const Value*> tensors;   // of the graph, in the order of the trace's inputs
    std::vector<size_t> positions;       // where they stand among the arguments
    std::vector<const RowFacts*> known;  // of these tensors; null where nothing is
    std::vector<Value*> masks;           // theirs, each once
    const Value* number = nullptr;       // read as a number, behind the stand-in
    bool number_used = false;

    size_t place_of(const Value* mask) const {
      return static_cast<size_t>(std::find(masks.begin(), masks.end(), mask) - masks.begin());
    }
  };

  [[noreturn]] void fail(const Node& node, const std::string& what) const {
    throw GraphError(fmt::format("cannot decompose {}: {}", describe(node), what), node.source);
  }

  ReplacedCall site_of(const Node& node) {
    ReplacedCall site{node, {}, {}, {}, {}, {}, nullptr, false};
    const auto& schema = node.op.schema().arguments();
    for (size_t i = 0; i < schema.size(); ++i) {
      ArgumentType type = type_of(schema[i]);
      const Operand& operand = node.operands[i];
      if (const c10::IValue* constant = operand.constant()) {
        site.arguments.push_back(boxed_constant(*constant, type));
      } else if (operand.list()) {
        fail(node, fmt::format("argument `{}` is a list of tensors", schema[i].name()));
      } else if (type.kind == Kind::tensor) {
        add_tensor(site, operand.value());
        site.positions.push_back(i);
        site.arguments.emplace_back();
      } else {
        site.arguments.push_back(stand_in(site, *operand.value()));
      }
    }
    return site;
  }

  void add_tensor(ReplacedCall& site, const Value* value) {
    const RowFacts* known = known_of(value);
    site.tensors.push_back(value);
    site.known.push_back(known);
    if (!known) return;
    for (Value* mask : known->masks)
      if (site.place_of(mask) == site.masks.size()) site.masks.push_back(mask);
  }

  /// Made by one of ours that was replaced, or zeros that serve as empty records. Nothing is known of inputs.
  const RowFacts* known_of(const Value* value) {
    if (const auto found = known_.find(value); found != known_.end()) return &found->second;
    const at::Tensor& example = examples_.of(value);
    if (example.dim() != 2 || example.size(1) == 0 || example.element_size() < 4 || !is_zeros(value)) return nullptr;
    const size_t slots = static_cast<size_t>(example.size(1)) * example.element_size() / sizeof(uint16_t);
    return &(known_[value] = {{}, {flags::RowTable::Row(slots)}});
  }

  bool is_zeros(const Value* value) const {
    if (value->producer) return operators::semantics_of(value->producer->op).has(operators::Semantics::zeros);
    const at::Tensor* constant = graph_.is_variable(value) ? nullptr : graph_.constant_of(value);
    if (!constant || constant->numel() > kMostZeros) return false;
    const at::Tensor bits = constant->contiguous().view(at::kByte);  // a negative zero is a slot
    return !at::any(bits).item<bool>();
  }

  c10::IValue stand_in(ReplacedCall& site, const Value& value) {
    if (site.number && site.number != &value) fail(site.node, "two of its numbers are tensors of the graph");
    site.number = &value;
    at::ScalarType dtype = examples_.of(&value).scalar_type();
    if (at::isFloatingType(dtype)) return kFloatStandIn;
    if (at::isIntegralType(dtype, false)) return kIntStandIn;
    fail(site.node,
         fmt::format("its number {} has dtype {}; expected a float or an integer", describe(value), dtype_name(dtype)));
  }

  struct RecordedBody {
    Graph body;  // its outputs: the results, then the masks of `results`
    std::vector<std::optional<flags::RowTable>> results;
  };

  static flags::RowTable table_of(const RowFacts& known, const ReplacedCall& site, at::ArrayRef<at::Tensor> masks) {
    flags::RowTable table{{}, known.rows};
    for (const Value* mask : known.masks) table.masks.push_back(masks[site.place_of(mask)]);
    return table;
  }

  static RecordedBody record(const ReplacedCall& site, const flags::Composite& composite,
                             const std::vector<at::Tensor>& inputs) {
    std::vector<std::optional<flags::RowTable>> known;
    const flags::KnownRows rows(flags::KnownRows::Writes::none);
    Graph body = trace(
        [&](const std::vector<at::Tensor>& tensors) {
          torch::jit::Stack stack = site.arguments;
          const auto masks = at::ArrayRef<at::Tensor>(tensors).slice(site.tensors.size());
          for (size_t i = 0; i < site.tensors.size(); ++i) {
            stack[site.positions[i]] = tensors[i];
            if (site.known[i]) flags::KnownRows::note(tensors[i], table_of(*site.known[i], site, masks));
          }
          composite(stack);
          std::vector<at::Tensor> results = flattened(stack), outputs = results;
          for (const at::Tensor& result : results) {
            const auto table = flags::KnownRows::of(result);
            known.push_back(table ? std::optional(*table) : std::nullopt);
            if (table) outputs.insert(outputs.end(), table->masks.begin(), table->masks.end());
          }
          return outputs;
        },
        inputs, op_name(site.node.op));
    return {std::move(body), std::move(known)};
  }

  /// Masks are (N, 1) bool, of as many rows as the tensor that they belong to.
  std::vector<at::Tensor> example_inputs(const ReplacedCall& site) {
    std::vector<at::Tensor> inputs;
    for (const Value* value : site.tensors) inputs.push_back(examples_.of(value));
    for (const Value* mask : site.masks)
      for (size_t i = 0; i < site.known.size(); ++i)
        if (site.known[i] &&
            std::find(site.known[i]->masks.begin(), site.known[i]->masks.end(), mask) != site.known[i]->masks.end()) {
          inputs.push_back(at::zeros({inputs[i].size(0), 1}, inputs[i].options().dtype(at::kBool)));
          break;
        }
    return inputs;
  }

  static const flags::Composite* composite_of(const Node& node) {
    static const flags::Composite& in_order = *new flags::Composite([](torch::jit::Stack& stack) {
      at::Tensor like = torch::jit::pop(stack).toTensor(), self = torch::jit::pop(stack).toTensor();
      stack.emplace_back(restride_in_aten(self, like));
    });
    const std::string name = op_name(node.op);
    return name == kRestride ? &in_order : flags::find_composite(name);
  }

  void inline_call(const Node& node) {
    const flags::Composite* composite = composite_of(node);
    if (!composite) fail(node, "the operator has no decomposition");
    ReplacedCall site = site_of(node);
    const auto [body, known] = record(site, *composite, example_inputs(site));
    if (known.size() != node.results.size())
      fail(node, fmt::format("its decomposition gives {} results", known.size()));

    std::unordered_map<const Value*, Value*> inner;
    for (size_t i = 0; i < site.tensors.size(); ++i) inner[body.inputs()[i].value] = map_.at(site.tensors[i]);
    for (size_t i = 0; i < site.masks.size(); ++i) inner[body.inputs()[site.tensors.size() + i].value] = site.masks[i];
    for (const auto& constant : body.constants()) inner[constant.value] = out_.add_constant(constant.tensor);
    for (const auto& call : body.nodes()) inline_node(site, *call, inner);
    if (site.number && !site.number_used)
      fail(node, fmt::format("its decomposition receives a changed number {}", describe(*site.number)));
    size_t next_mask = node.results.size();
    for (size_t i = 0; i < node.results.size(); ++i) {
      Value* result = inner.at(body.outputs()[i]);
      if (result->producer) copy_facts(*node.results[i], out_.edit(result));
      map_[node.results[i]] = result;
      if (!known[i]) continue;
      RowFacts& facts = known_[node.results[i]] = {{}, known[i]->rows};
      for (size_t mask = 0; mask < known[i]->masks.size(); ++mask)
        facts.masks.push_back(inner.at(body.outputs()[next_mask++]));
    }
  }

  void inline_node(ReplacedCall& site, const Node& call, std::unordered_map<const Value*, Value*>& inner) {
    std::vector<Operand> operands = call.operands;
    for (auto& operand : operands) {
      for_each_use(operand, [&](Value*& value) { value = inner.at(value); });
      const c10::IValue* constant = operand.constant();
      if (site.number && constant &&
          (same_constant(*constant, kFloatStandIn) || same_constant(*constant, kIntStandIn))) {
        operand = Operand(map_.at(site.number));
        site.number_used = true;
      }
    }
    Node* twin = out_.append(call.op, std::move(operands), call.results.size(), site.node.source);
    for (size_t i = 0; i < call.results.size(); ++i) {
      copy_facts(*call.results[i], out_.edit(twin->results[i]));
      inner[call.results[i]] = twin->results[i];
    }
  }

  const Graph& graph_;
  const Left left_;
  Examples examples_;
  Graph out_;
  Copies map_;
  std::unordered_map<const Value*, RowFacts> known_;  // of values of the graph
};

}  // namespace

Graph decompose(const Graph& graph) { return decompose(graph, Numbers::in_aten); }

Graph decompose(const Graph& graph, Numbers numbers, Choices choices) {
  const Left left{numbers, choices};
  // Where autograd or inference mode are on, the composites would record what belongs to them.
  at::NoGradGuard no_grad;
  verify(graph);
  Graph result = graph.clone();
  constexpr int kMaxDepth = 8;  // composites that call operators of ours
  for (int depth = 0; any_goes(result, left); ++depth) {
    if (depth == kMaxDepth)
      throw GraphError(fmt::format("cannot decompose graph `{}`: its decompositions form a cycle", graph.name()));
    result = Decomposer(result, left).run();
  }
  clean(result);
  return result;
}

}  // namespace triage::graph
