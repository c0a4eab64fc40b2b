#pragma once
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/error.h>
#include <triage/provenance.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

/// The graph of a TorchScript method with the calls of submodules inlined, so that every operation has one place in the
/// model (two layers of one class share their methods' graphs), and with observers in it. The model is not touched.
namespace triage::diagnose {

/// What observers in a graph report to. One for each call: it travels through the graph as an input of its own.
struct GraphObserver : torch::CustomClassHolder {
  /// `point` as it was given to `insert_observer`; from the thread that runs that part of the graph.
  virtual void observe(int64_t point, at::ArrayRef<c10::IValue> values) = 0;
};

struct ScriptGraph {
  std::shared_ptr<torch::jit::Graph> graph;
  torch::jit::Value* observer = nullptr;  // the last input
};

enum class Inline : uint8_t { modules, everything };

/// Called where a submodule has returned, with the insertion point of the graph there.
using OnReturn =
    std::function<void(const ScriptGraph& graph, const std::string& path, at::ArrayRef<torch::jit::Value*> results)>;

/// Throws InputError when there is no such method with a graph.
ScriptGraph inline_calls(const torch::jit::Module& module, const std::string& method, Inline what,
                         const OnReturn& on_return = {});

/// At the insertion point: reports `values` as `point` when the graph runs.
void insert_observer(const ScriptGraph& graph, int64_t point, at::ArrayRef<torch::jit::Value*> values);

/// Path of the submodule whose code the operation stands in.
std::string path_of(torch::jit::Node& node);

/// Whether values of the type may hold tensors.
bool holds_tensors(const c10::Type& type);
/// Operators, and calls that could not be inlined; not what only moves values about.
bool is_operation(const torch::jit::Node& node);
/// "aten::log"; of a call that could not be inlined the method.
std::string operation_name(const torch::jit::Node& node);
/// The line of the model's code; the file is empty where the model does not say.
Source source_of(const torch::jit::Node& node);

/// The operation as one that may have produced something bad.
Producer described(torch::jit::Node& node);

/// A graph as something to call, any number of threads at once.
class ScriptFunction {
 public:
  using Kwargs = std::unordered_map<std::string, c10::IValue>;
  ScriptFunction(const torch::jit::Module& module, const std::string& method, ScriptGraph graph);
  c10::IValue operator()(std::vector<c10::IValue> inputs, const Kwargs& kwargs,
                         c10::intrusive_ptr<GraphObserver> observer) const;

 private:
  torch::jit::Module module_;
  std::string method_;
  std::shared_ptr<torch::jit::Function> function_;
};

/// Calls `visit` for every tensor in the value: itself, in tuples, lists and dictionaries.
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

/// Dim 0 of the first tensor that has one. Throws InputError, on behalf of `operation`, where there is none.
int64_t count_samples(at::ArrayRef<c10::IValue> inputs, const char* operation);

}  // namespace triage::diagnose
