#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <triage/api.h>
#include <triage/error.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

/// The IR: a straight-line sequence of dispatcher operator calls in SSA form. Every value is a tensor. A graph has no
/// control flow (branches are `triage::select` / `aten::where`) and no mutation (in-place operators are recorded as
/// their functional forms). One thread builds a Graph; a finished Graph is immutable and may be shared. Nothing that a
/// const Graph returns can change it; `clone` makes a copy that can be changed. (Constants are tensors: nobody may
/// write to them.)
namespace triage::graph {

struct Node;

/// Properties of a tensor at capture: for printing and for example inputs. Run-time code must not rely on them (the
/// batch size differs from call to call).
struct TensorMeta {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  c10::Device device = c10::kCPU;
};

/// The fields of a Value, as only its graph can change them (Graph::edit).
struct MutableValue {
  uint32_t id = 0;                 // unique in its graph; printed as %id if it has no name
  std::string name;                // inputs and constants; empty otherwise
  const Node* producer = nullptr;  // null for inputs and constants
  std::optional<TensorMeta> meta;
  bool is_flags = false;  // made by a flags operation: (N, num_words), bits and not numbers
};

/// An SSA value. Owned by its Graph; its address is stable.
using Value = const MutableValue;

/// An argument of a node, one for each argument of the operator's schema: a value of the graph, a constant, or a list
/// of either (Tensor[], Tensor?[]). A value may replace a Scalar, float or int of the schema (a policy's `params`): the
/// interpreter then reads the one-element tensor when the node runs.
struct Operand {
  std::variant<Value*, c10::IValue, std::vector<Operand>> data;
  Operand(Value* value) : data(value) {}                           // NOLINT(google-explicit-constructor)
  Operand(c10::IValue constant) : data(std::move(constant)) {}     // NOLINT(google-explicit-constructor)
  Operand(std::vector<Operand> items) : data(std::move(items)) {}  // NOLINT(google-explicit-constructor)
  TRIAGE_API Value* value() const;
  const c10::IValue* constant() const { return std::get_if<c10::IValue>(&data); }
  TRIAGE_API const std::vector<Operand>* list() const;
};

/// One call. Results are flattened: an operator that returns Tensor[] has one result for each element that it returned
/// at capture.
struct Node {
  c10::OperatorHandle op;
  std::vector<Operand> operands;
  std::vector<Value*> results;
  Source source;        // the script line that made it
  bool checks = false;  // kept by passes although its results are unused, because it may raise
};

/// Owns a node of a graph. A const NodePtr gives access to a const node only, unlike a const std::unique_ptr.
class NodePtr {
 public:
  NodePtr(std::unique_ptr<Node> node) : node_(std::move(node)) {}  // NOLINT(google-explicit-constructor)
  Node* get() noexcept { return node_.get(); }
  const Node* get() const noexcept { return node_.get(); }
  Node& operator*() { return *node_; }
  const Node& operator*() const { return *node_; }
  Node* operator->() { return node_.get(); }
  const Node* operator->() const { return node_.get(); }

 private:
  std::unique_ptr<Node> node_;
};

enum class InputKind : uint8_t { tensor, param };

struct Input {
  Value* value;
  InputKind kind;  // a param is a 0-dim wrapped number that the host may change per call
};

/// A tensor that the graph holds (`torch.tensor{...}`, a folded constant). The graph never writes to it. A `variable`
/// existed before the capture (a weight, an upvalue): others may write to it between two runs, and each run reads its
/// current value. So no pass computes with its value, or merges it with another tensor of the same value.
struct Constant {
  Value* value;
  at::Tensor tensor;
  bool variable = false;
};

class TRIAGE_API Graph {
 public:
  explicit Graph(std::string name = "graph");
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();
  /// A deep copy (constants share their storage).
  Graph clone() const;

  const std::string& name() const { return name_; }
  /// Whether the types of its values (Value::meta) come from a recorded run. Types of other graphs, for example a
  /// parsed text, are only declared: a backend that relies on types must compute them itself.
  bool has_recorded_types() const { return recorded_types_; }
  void set_recorded_types(bool recorded = true) { recorded_types_ = recorded; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<NodePtr>& nodes() const { return nodes_; }
  std::vector<NodePtr>& nodes() { return nodes_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  std::vector<Value*>& outputs() { return outputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }

  Value* add_input(std::string name, InputKind kind, std::optional<TensorMeta> meta = {});
  Value* add_constant(at::Tensor tensor, std::string name = {});
  Value* add_variable(at::Tensor tensor, std::string name = {});
  /// Appends a call with `num_results` fresh values. `operands` must match the schema's arguments one to one.
  Node* append(c10::OperatorHandle op, std::vector<Operand> operands, size_t num_results, Source source = {});
  /// A fresh value that belongs to this graph (for passes that insert nodes).
  Value* new_value();
  /// `value`, of this graph, to be changed. Its `id` must stay unique, and its `producer` right.
  MutableValue& edit(Value* value);
  void set_outputs(std::vector<Value*> outputs, std::vector<std::string> names = {});
  const at::Tensor* constant_of(Value* value) const;  // null if it is not a constant
  bool is_variable(Value* value) const;
  void drop_unused_constants();
  bool has_name(const std::string& name) const;  // of an input or a constant
  /// Sets the number of `value`, for the parser; later values get higher ones. Numbers must stay unique.
  void set_id(Value* value, uint32_t id);

 private:
  void push_constant(Constant constant);
  std::string unique_name(const std::string& stem);

  std::string name_;
  std::unique_ptr<std::deque<MutableValue>> values_;  // a deque itself allocates when it is moved
  std::vector<Input> inputs_;
  std::vector<Constant> constants_;
  std::unordered_map<const MutableValue*, size_t> constant_places_;  // index into constants_
  std::unordered_set<std::string> names_;                            // of inputs and constants
  std::unordered_map<std::string, size_t> next_numbers_;             // behind stems of names that were taken
  std::vector<NodePtr> nodes_;
  std::vector<Value*> outputs_;
  std::vector<std::string> output_names_;
  uint32_t next_id_ = 0;
  bool recorded_types_ = false;
};

/// Text of a graph: one line per node with its types and script line. `parse(print(g))` returns the same graph, and
/// printing that gives the same text. (It prints constants of up to 1,000 elements in full, with exact bits, and larger
/// ones only with their shape; `parse` rejects such a text with a message that says so.)
TRIAGE_API std::string print(const Graph& graph);
/// Parses trusted text: it checks no contracts, unlike ExportedProgram::load. Throws GraphError with line and column of
/// `text`.
TRIAGE_API Graph parse(const std::string& text);
/// Checks the invariants: operands match schemas, values are defined before use, names are unique, outputs exist.
/// Throws GraphError naming the node.
TRIAGE_API void verify(const Graph& graph);

/// Passes. Each preserves the results of the graph, bit for bit, and the order of random operators.
TRIAGE_API void fold_constants(Graph& graph);    // calls with constant operands only (never random ones)
TRIAGE_API void eliminate_common(Graph& graph);  // equal pure calls become one
TRIAGE_API void eliminate_dead(Graph& graph);    // calls nobody uses (never random operators or assertions)
TRIAGE_API void clean(Graph& graph);             // the three above, to a fixed point; then verify

/// The same computation in plain ATen: replaces every `triage::` call by its decomposition (`where`, shifts, masks).
/// The result works for every batch size that the graph works for. Needs `meta` of the inputs. Two kinds stay: calls of
/// the host (Runtime::define_module, pure functions), and in graphs of inputs that require grad `triage::guard_grad`,
/// which computes nothing, and whose backward keeps repaired rows out of gradients.
TRIAGE_API Graph decompose(const Graph& graph);

/// Records what `fn` does with `inputs` (any C++ code that calls dispatcher operators at the top level) as a graph.
TRIAGE_API Graph trace(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
                       const std::vector<at::Tensor>& inputs, std::string name = "traced");

/// Properties of operators beyond their schemas.
TRIAGE_API bool is_random(const c10::OperatorHandle& op);                     // draws from a generator
TRIAGE_API bool writes(const c10::OperatorHandle& op);                        // mutates an argument (in-place, out=)
TRIAGE_API bool returns_flags(const c10::OperatorHandle& op, size_t result);  // result `result` is a flags tensor
TRIAGE_API bool is_effect(const c10::OperatorHandle& op);  // must be kept although its result is unused (assertions)

}  // namespace triage::graph
