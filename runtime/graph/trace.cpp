#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <triage/graph.h>

#include <unordered_map>

#include "runtime/graph/argument_type.h"
#include "runtime/graph/describe.h"

// LibTorch tells an observer of every call that goes through the dispatcher, also of those that operators make inside
// themselves; only the outermost are recorded. Values are told apart by the identity of their tensors.

namespace triage::graph {
namespace {

struct Call : at::ObserverContext {
  std::optional<c10::OperatorHandle> op;  // set for calls to record
  std::vector<Operand> operands;
};

class Tracer {
 public:
  explicit Tracer(std::string name) : graph_(std::move(name)) {}

  at::Tensor add_input(const at::Tensor& tensor) {
    at::Tensor own = values_.count(tensor.unsafeGetTensorImpl()) ? at::alias(tensor) : tensor;
    bind(own, graph_.add_input("", InputKind::tensor, meta_of(own)));
    return own;
  }

  /// False where the observed function is no operator.
  std::unique_ptr<Call> begin(const at::RecordFunction& function) {
    auto name = function.operator_name();
    if (!name) return nullptr;
    auto call = std::make_unique<Call>();
    if (depth_++ == 0 && !error_) {
      try {
        auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name->name.c_str(), name->overload_name.c_str());
        if (asks_for_dtype(op)) return call;
        call->operands = operands_of(op, function.inputs());
        call->op = op;
      } catch (const std::exception& error) {  // LibTorch swallows what observers throw
        note(error.what());
      }
    }
    return call;
  }

  void end(const at::RecordFunction& function, Call& call) {
    --depth_;
    if (!call.op || error_) return;
    try {
      record(call, function.outputs());
    } catch (const std::exception& error) {
      note(error.what());
    }
  }

  Graph finish(const std::vector<at::Tensor>& outputs) {
    if (error_) throw GraphError(*error_);
    std::vector<Value*> values;
    for (const at::Tensor& output : outputs) values.push_back(value_of(output));
    graph_.set_outputs(std::move(values));
    verify(graph_);
    return std::move(graph_);
  }

 private:
  static TensorMeta meta_of(const at::Tensor& tensor) {
    return {tensor.scalar_type(), tensor.sizes().vec(), tensor.device()};
  }

  void note(const std::string& what) {
    if (!error_) error_ = fmt::format("cannot trace into graph `{}`: {}", graph_.name(), what);
  }

  void bind(const at::Tensor& tensor, Value* value) {
    alive_.push_back(tensor);  // so that its address is not used again
    values_.emplace(tensor.unsafeGetTensorImpl(), value);
  }

  Value* value_of(const at::Tensor& tensor) {
    auto found = values_.find(tensor.unsafeGetTensorImpl());
    if (found != values_.end()) return found->second;
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
    if (writes(op))
      throw GraphError(fmt::format("`{}` writes to an argument; use the form that returns a new tensor", op_name(op)));
    for (const auto& result : schema.returns())
      if (type_of(result).kind != Kind::tensor)
        throw GraphError(fmt::format("`{}` reads a value of a tensor, which a graph cannot hold", op_name(op)));
    if (arguments.size() != schema.arguments().size())
      throw GraphError(fmt::format("LibTorch did not show the arguments of `{}`", op_name(op)));
    std::vector<Operand> operands;
    for (size_t i = 0; i < arguments.size(); ++i)
      operands.push_back(operand_of(arguments[i], type_of(schema.arguments()[i])));
    return operands;
  }

  void record(Call& call, const std::vector<c10::IValue>& outputs) {
    std::vector<at::Tensor> results;
    for (const c10::IValue& output : outputs) {
      if (output.isTensor()) results.push_back(output.toTensor());
      if (output.isList())
        for (const c10::IValue& item : output.toListRef()) results.push_back(item.toTensor());
    }
    if (outputs.size() != call.op->schema().returns().size()) return;  // the operator threw
    Node* node = graph_.append(*call.op, std::move(call.operands), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].defined()) continue;
      node->results[i]->meta = meta_of(results[i]);
      bind(results[i], node->results[i]);  // a tensor handed back as it came keeps its first value
    }
  }

  Graph graph_;
  std::unordered_map<const c10::TensorImpl*, Value*> values_;
  std::vector<at::Tensor> alive_;
  int depth_ = 0;
  std::optional<std::string> error_;
};

thread_local Tracer* current = nullptr;

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  return current ? current->begin(function) : nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (current && context) current->end(function, *static_cast<Call*>(context));
}

/// Observes this thread. Traces may nest: the inner one takes over, with the observer of the outer.
class Observer {
 public:
  explicit Observer(Tracer& tracer) : previous_(current) {
    current = &tracer;
    if (!previous_)
      handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                               .needsInputs(true)
                                               .needsOutputs(true)
                                               .scopes({at::RecordScope::FUNCTION}));
  }
  ~Observer() {
    current = previous_;
    if (!previous_) at::removeCallback(handle_);
  }
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

 private:
  Tracer* previous_;
  at::CallbackHandle handle_ = 0;
  at::RecordFunctionGuard enabled_{true};
};

}  // namespace

Graph trace(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& fn,
            const std::vector<at::Tensor>& inputs, std::string name) {
  Tracer tracer(std::move(name));
  std::vector<at::Tensor> traced, outputs;
  for (const at::Tensor& input : inputs) traced.push_back(tracer.add_input(input));
  {
    Observer observer(tracer);
    outputs = fn(traced);
  }
  return tracer.finish(outputs);
}

}  // namespace triage::graph
