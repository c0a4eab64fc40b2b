#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <triage/graph.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "runtime/flags/branches/gradients.h"
#include "runtime/flags/operators.h"
#include "runtime/graph/argument_type.h"
#include "runtime/graph/dynamic_shape.h"
#include "runtime/graph/evaluation/trace.h"
#include "runtime/graph/functional.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/describe.h"
#include "runtime/operators/semantics.h"

// LibTorch tells an observer of every call that goes through the dispatcher, also of those that operators make inside
// themselves; only the outermost are recorded, or, for primitives, the outermost of those that are not made of others.
// Values are told apart by the identity of their tensors. What autograd saved of a result comes back as another tensor
// on the same memory: primitives are told apart by their memory, too.

namespace triage::graph {
namespace {

struct TracedCall : at::ObserverContext {
  std::optional<c10::OperatorHandle> op;  // set for calls to record
  std::vector<Operand> operands;
};

/// What a tensor shows of its memory.
using View = std::tuple<const void*, int64_t, std::vector<int64_t>, std::vector<int64_t>, at::ScalarType>;

const void* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

View view_of(const at::Tensor& tensor) {
  return {storage_of(tensor), tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(),
          tensor.scalar_type()};
}

/// The operators of ours that have derivatives: they call themselves below autograd, and save what they compute beside.
bool is_differentiable_of_ours(const std::string& name) {
#define TRIAGE_NAME(name, function, schema) name,
  static const auto& names = *new std::vector<std::string_view>{TRIAGE_FLAGS_DIFFERENTIABLE(TRIAGE_NAME)};
#undef TRIAGE_NAME
  constexpr std::string_view ours = "triage::";
  if (name.rfind(ours, 0) != 0) return false;
  return std::find(names.begin(), names.end(), std::string_view(name).substr(ours.size())) != names.end();
}

/// An operator that calls others and has no derivative of its own.
bool is_made_of_others(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  if (op.hasKernelForDispatchKey(Key::CompositeImplicitAutograd))  // goes before a kernel for all of Autograd
    return !op.hasKernelForDispatchKey(Key::CPU) && !op.hasKernelForDispatchKey(Key::AutogradCPU);
  const bool below = c10::impl::tls_local_dispatch_key_set().excluded_.has(Key::AutogradFunctionality);
  return !below && is_differentiable_of_ours(op.operator_name().name);
}

/// What stands in the graph for an in-place operator. `bernoulli_` has a form that makes a contiguous tensor, and draws
/// the same numbers for one that is contiguous.
std::optional<c10::OperatorHandle> functional_form(const c10::OperatorHandle& op) {
  if (op.operator_name() == c10::OperatorName{"aten::bernoulli_", "float"})
    return c10::Dispatcher::singleton().findSchemaOrThrow("aten::bernoulli", "p");
  return functional_twin(op);
}

/// Gives its result the strides among its arguments, which are those of one tensor in memory.
bool sets_strides(const c10::OperatorHandle& op) { return op.operator_name().name.rfind("aten::as_strided", 0) == 0; }

/// What `reshape` calls of what it can view: a view in other sizes, with the strides that these have in the memory at
/// hand. Applied to other memory such strides would lead out of it.
bool is_view_with_strides(const c10::OperatorHandle& op, at::ArrayRef<const c10::IValue> arguments) {
  if (op.operator_name().name != "aten::_reshape_alias") return false;
  const at::Tensor& tensor = arguments[0].toTensor();
  const auto strides = at::detail::computeStride(tensor.sizes(), tensor.strides(), arguments[1].toIntVector());
  if (!strides || *strides != arguments[2].toIntVector())
    throw GraphError("`aten::_reshape_alias` has other strides than a view of these sizes");
  return true;
}

class Tracer {
 public:
  explicit Tracer(std::string name, bool primitives = false) : graph_(std::move(name)), primitives_(primitives) {}

  at::Tensor add_input(const at::Tensor& tensor) {
    at::Tensor own = values_.count(tensor.unsafeGetTensorImpl()) ? at::alias(tensor) : tensor;
    if (const void* storage = storage_of(own); storage && storages_.count(storage)) shared_inputs_.insert(storage);
    bind(own, graph_.add_input("", InputKind::tensor, meta_of(own)));
    return own;
  }

  void add_constant(const at::Tensor& tensor) {
    if (!values_.count(tensor.unsafeGetTensorImpl())) bind(tensor, graph_.add_constant(tensor));
  }

  void set_source(const Source& source, bool checks) {
    source_ = source;
    checks_ = checks;
  }

  /// False where the observed function is no operator.
  std::unique_ptr<TracedCall> begin(const at::RecordFunction& function) {
    auto name = function.operator_name();
    if (!name) return nullptr;
    auto call = std::make_unique<TracedCall>();
    if (depth_++ == 0 && !error_) {
      try {
        auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name->name.c_str(), name->overload_name.c_str());
        if (primitives_ && is_made_of_others(op)) {
          --depth_;
          return nullptr;
        }
        if (asks_for_dtype(op) ||
            (primitives_ && operators::semantics_of(op).has(operators::Semantics::reads_metadata)))
          return call;
        call->operands = operands_of(op, function.inputs());
        call->op = op;
        if (is_view_with_strides(op, function.inputs())) {
          call->op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::view", "");
          call->operands.pop_back();
        }
      } catch (const std::exception& error) {  // LibTorch swallows what observers throw
        note(error.what(), *name);
      }
    }
    return call;
  }

  void end(const at::RecordFunction& function, TracedCall& call) {
    --depth_;
    if (primitives_ && depth_ > 0) note_inner(function.outputs());
    if (!call.op || error_) return;
    try {
      record(call, function.outputs());
    } catch (const std::exception& error) {
      note(error.what(), call.op->operator_name());
    }
  }

  Graph finish(const std::vector<at::Tensor>& outputs) {
    if (error_) throw GraphError(*error_, error_source_);
    std::vector<Value*> values;
    for (const at::Tensor& output : outputs) values.push_back(value_of(output));
    graph_.set_outputs(std::move(values));
    if (primitives_) check_memory();
    verify(graph_);
    return std::move(graph_);
  }

 private:
  /// Memory that nobody was seen to fill: what did it is no part of the graph.
  void check_memory() {
    eliminate_dead(graph_);
    std::unordered_set<const Value*> unknown;
    for (auto& node : graph_.nodes()) {
      const bool fills = operators::semantics_of(node->op).has(operators::Semantics::form_of_first);
      for_each_use(*node, [&](Value*& value) {
        if (unknown.count(value) && !fills) throw GraphError("the graph reads memory that no recorded operator wrote");
      });
      if (is_uninitialized(node->op)) unknown.insert(node->results.begin(), node->results.end());
    }
    for (const Value* output : graph_.outputs())
      if (unknown.count(output)) throw GraphError("the graph reads memory that no recorded operator wrote");
  }

  static TensorMeta meta_of(const at::Tensor& tensor) {
    return {tensor.scalar_type(), tensor.sizes().vec(), tensor.device()};
  }

  /// The first thing that goes wrong, with the operator and its script line.
  void note(std::string what, const c10::OperatorName& op) {
    if (error_) return;
    if (what.find(op.name) == std::string::npos) what = fmt::format("in `{}`: {}", op.name, what);
    error_ = fmt::format("cannot trace into graph `{}`: {}", graph_.name(), what);
    error_source_ = source_;
  }

  void bind(const at::Tensor& tensor, Value* value) {
    alive_.push_back(tensor);  // so that its address is not used again
    values_.emplace(tensor.unsafeGetTensorImpl(), value);
    if (!primitives_ || !tensor.has_storage()) return;
    views_[view_of(tensor)] = value;
    storages_[storage_of(tensor)].insert(value);
    tensors_on_[storage_of(tensor)].push_back(tensor.unsafeGetTensorImpl());
  }

  /// Results of operators inside of others: where one turns up outside, the graph would have to compute it.
  void note_inner(const std::vector<c10::IValue>& outputs) {
    for (const c10::IValue& output : outputs)
      if (output.isTensor() && output.toTensor().defined() && output.toTensor().has_storage()) {
        alive_.push_back(output.toTensor());
        inner_.insert(storage_of(output.toTensor()));
      }
  }

  /// A tensor that is none of the values: another look at the memory of one, or a number that an operator wrote down.
  Value* value_of_unknown(const at::Tensor& tensor) {
    const void* storage = storage_of(tensor);
    if (storage && !shared_inputs_.count(storage))
      if (auto same = views_.find(view_of(tensor)); same != views_.end()) {
        bind(tensor, same->second);
        return same->second;
      }
    if (storages_.count(storage) || inner_.count(storage) || tensor.numel() != 1 || tensor.requires_grad())
      throw GraphError(fmt::format("an operator used a tensor of shape [{}] that no recorded operator returned",
                                   fmt::join(tensor.sizes(), ", ")));
    Value* value = graph_.add_constant(tensor.detach());
    bind(tensor, value);
    return value;
  }

  Value* value_of(const at::Tensor& tensor) {
    auto found = values_.find(tensor.unsafeGetTensorImpl());
    if (found != values_.end()) return found->second;
    if (primitives_) return value_of_unknown(tensor);
    Value* value = graph_.add_constant(tensor);
    bind(tensor, value);
    return value;
  }

  Operand tensor_operand(const c10::IValue& argument) {
    if (argument.isNone() || !argument.toTensor().defined()) return c10::IValue();
    const at::Tensor& tensor = argument.toTensor();
    bool number = tensor.unsafeGetTensorImpl()->is_wrapped_number() && !values_.count(tensor.unsafeGetTensorImpl());
    return number ? Operand(c10::IValue(tensor.item())) : Operand(value_of(tensor));
  }

  Operand operand_of(const c10::IValue& argument, const ArgumentType& type) {
    if (argument.isTensor()) return tensor_operand(argument);
    if (type.kind == Kind::generator) return c10::IValue();  // a run draws from where its thread draws (runtime/random)
    if (!argument.isList()) return argument;
    if (type.kind == Kind::tensor) {
      std::vector<Operand> items;
      for (const c10::IValue& item : argument.toListRef()) items.push_back(tensor_operand(item));
      return items;
    }
    c10::impl::GenericList items(type.element);
    for (const c10::IValue& item : argument.toListRef()) items.push_back(item);
    return c10::IValue(std::move(items));
  }

  /// `result_type`, `promote_types`: answers do not depend on values, and dtypes do not change from call to call.
  static bool asks_for_dtype(const c10::OperatorHandle& op) {
    const auto& results = op.schema().returns();
    return results.size() == 1 && type_of(results[0]).kind == Kind::dtype;
  }

  std::vector<Operand> operands_of(const c10::OperatorHandle& op, at::ArrayRef<const c10::IValue> arguments) {
    const auto& schema = op.schema();
    if (writes(op) && !(primitives_ && functional_form(op)))
      throw GraphError(fmt::format("`{}` writes to an argument; use the form that returns a new tensor", op_name(op)));
    for (const auto& result : schema.returns())
      if (type_of(result).kind != Kind::tensor)
        throw GraphError(fmt::format("`{}` reads a value of a tensor, which a graph cannot hold", op_name(op)));
    if (arguments.size() != schema.arguments().size())
      throw GraphError(fmt::format("LibTorch did not show the arguments of `{}`", op_name(op)));
    if (primitives_ && sets_strides(op))
      throw GraphError(fmt::format("`{}` depends on the memory layout of its argument", op_name(op)));
    if (primitives_ && gives_dynamic_shape(op, arguments))
      throw GraphError(fmt::format("`{}` gives a result whose shape depends on values", op_name(op)));
    std::vector<Operand> operands;
    for (size_t i = 0; i < arguments.size(); ++i)
      operands.push_back(operand_of(arguments[i], type_of(schema.arguments()[i])));
    return operands;
  }

  void record(TracedCall& call, const std::vector<c10::IValue>& outputs) {
    std::vector<at::Tensor> results;
    for (const c10::IValue& output : outputs) {
      if (output.isTensor()) results.push_back(output.toTensor());
      if (output.isList())
        for (const c10::IValue& item : output.toListRef()) results.push_back(item.toTensor());
    }
    if (outputs.size() != call.op->schema().returns().size()) return;  // the operator threw
    const bool written = writes(*call.op);
    if (written) check_own(call.operands.at(0).value(), results.at(0));
    if (written && is_random(*call.op) && !results.at(0).is_contiguous())
      throw GraphError(fmt::format("`{}` draws numbers for a tensor that is not contiguous", op_name(*call.op)));
    Node* node = graph_.append(written ? *functional_form(*call.op) : *call.op, std::move(call.operands),
                               results.size(), source_);
    node->checks = checks_;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined()) continue;
      graph_.edit(node->results[i]).meta = meta_of(results[i]);
      if (written) forget(results[i]);
      bind(results[i], node->results[i]);  // a tensor handed back as it came keeps its first value
    }
  }

  /// Memory that is written to must be the graph's own. Then the tensor stands for the new value from here on; other
  /// values on that memory (the product whose view `linear` adds the bias to) are forgotten, so that a later use of
  /// them is an error.
  void check_own(const Value* value, const at::Tensor& tensor) const {
    const auto found = storages_.find(storage_of(tensor));
    const auto made_here = [](const Value* known) { return known->producer != nullptr; };
    if (!value || found == storages_.end() || !std::all_of(found->second.begin(), found->second.end(), made_here))
      throw GraphError("an operator writes in place to memory that the graph was given");
  }

  void forget(const at::Tensor& tensor) {
    const void* const storage = storage_of(tensor);
    values_.erase(tensor.unsafeGetTensorImpl());
    for (const c10::TensorImpl* known : tensors_on_[storage]) values_.erase(known);  // all of them show the new value
    tensors_on_.erase(storage);
    storages_.erase(storage);
    auto view = views_.lower_bound({storage, std::numeric_limits<int64_t>::min(), {}, {}, at::ScalarType::Byte});
    while (view != views_.end() && std::get<0>(view->first) == storage) view = views_.erase(view);
  }

  Graph graph_;
  std::unordered_map<const c10::TensorImpl*, Value*> values_;
  std::vector<at::Tensor> alive_;
  bool primitives_;
  Source source_;
  bool checks_ = false;
  std::map<View, Value*> views_;
  std::unordered_map<const void*, std::unordered_set<const Value*>> storages_;       // values on each memory
  std::unordered_map<const void*, std::vector<const c10::TensorImpl*>> tensors_on_;  // and the tensors that are bound
  std::unordered_set<const void*> shared_inputs_, inner_;                            // memory
  int depth_ = 0;
  std::optional<std::string> error_;
  Source error_source_;
};

/// Of the thread, because LibTorch's observers are plain functions, called on the thread that they observe.
thread_local Tracer* current = nullptr;

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  return current ? current->begin(function) : nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (current && context) current->end(function, *static_cast<TracedCall*>(context));
}

/// Observes this thread. Traces may nest: the inner one takes over, with the observer of the outer.
class TracerScope {
 public:
  explicit TracerScope(Tracer& tracer) : previous_(current) {
    current = &tracer;
    if (!previous_)
      handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}));
  }
  ~TracerScope() {
    current = previous_;
    if (!previous_) at::removeCallback(handle_);
  }
  TracerScope(const TracerScope&) = delete;
  TracerScope& operator=(const TracerScope&) = delete;

 private:
  Tracer* previous_;
  at::CallbackHandle handle_ = 0;
  at::RecordFunctionGuard enabled_{true};
  flags::autograd::OfAllBranches for_all_values_;
};

}  // namespace

Graph trace(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
            const std::vector<at::Tensor>& inputs, std::string name) {
  Tracer tracer(std::move(name));
  std::vector<at::Tensor> traced, outputs;
  for (const at::Tensor& input : inputs) traced.push_back(tracer.add_input(input));
  {
    TracerScope observer(tracer);
    outputs = fn(traced);
  }
  return tracer.finish(outputs);
}

Graph trace_primitives(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
                       const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& constants,
                       std::string name) {
  Tracer tracer(std::move(name), true);
  std::vector<at::Tensor> traced, outputs;
  for (const at::Tensor& constant : constants) tracer.add_constant(constant);
  for (const at::Tensor& input : inputs) traced.push_back(tracer.add_input(input));
  {
    TracerScope observer(tracer);
    outputs = fn(traced);
  }
  return tracer.finish(outputs);
}

void set_trace_source(const Source& source, bool checks) {
  if (current) current->set_source(source, checks);
}

}  // namespace triage::graph
