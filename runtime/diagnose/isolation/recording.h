#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <torch/csrc/jit/api/module.h>
#include <triage/error.h>
#include <triage/graph.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// A computation operator by operator, with the values between them: two recordings, of a batch and of the same batch
/// with a bad sample, show which operator carries the difference from one sample to others.
namespace triage::diagnose {

struct Value {
  at::Tensor tensor;
  bool is_flags = false;
  const void* held_by = nullptr;  // of record_calls: the TensorImpl, whose address is no other's while it records
};

struct RecordedStep {
  std::string op;               // "aten::mean.dim"; of a model "aten::mean"
  std::string text;             // of a graph: as it is printed
  std::string location;         // of a model: the submodule
  Source source;                // its line; the file is empty if unknown
  std::vector<size_t> reads;    // indices of values
  std::vector<size_t> results;  // likewise; empty where it raised
  bool is_view = false;         // it only shows what it read in another form, or a part of it
};
bool is_view(const c10::FunctionSchema& schema);

struct Recording {
  std::vector<Value> values;
  std::vector<RecordedStep> steps;
  std::vector<std::optional<size_t>> outputs;  // their values; nothing where an output is none of them
  std::string failure;                         // what the computation raised; empty: nothing
  bool raised_by_next = false;                 // by the operator behind the last step, as far as one can tell
  bool complete = true;                        // false: there were more bytes than it keeps, and the rest is missing
};

/// The nodes of a captured graph, one by one. `inputs` in the order of the graph's, params included.
Recording record(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs);

/// The operators that `call` calls on this thread. `line`: of the script, where it is now. One at a time.
Recording record_calls(const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& call,
                       const std::vector<at::Tensor>& inputs, std::function<Source()> line);

/// The operators of a TorchScript model's method, with everything inlined.
Recording record(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs, const std::string& method);

/// Tensors of a result in their order, and what each is called: "output", "output.0", "output.logits".
std::vector<std::pair<std::string, at::Tensor>> named_tensors(const c10::IValue& value, const std::string& name);

/// How many steps two recordings have in common, from the first on.
size_t common_steps(const Recording& a, const Recording& b);

/// The first step on the way to `output` (none given: on any way) whose result differs outside of sample `row`, though
/// what it read differs in that sample only. Of a computation that raised: the step that raised, or that let it be
/// known.
std::optional<size_t> first_crossing(const Recording& clean, const Recording& poisoned, int64_t samples, int64_t row,
                                     std::optional<size_t> output);

}  // namespace triage::diagnose
