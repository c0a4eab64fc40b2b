#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/error.h>
#include <triage/export.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "runtime/capture/hidden_results.h"
#include "runtime/capture/recording/branch_guard.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/tensors/variables.h"
#include "runtime/compat/autocast.h"
#include "runtime/export/shapes.h"
#include "runtime/given/host_call.h"
#include "runtime/graph/passes/clean.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/random/sequence.h"
#include "runtime/typing/first_state.h"

/// A function can tell whether two of its arguments are one tensor, and no operator shows that it did. So a program is
/// recorded with its inputs the same in every way that their types allow.
namespace triage::exporting {
namespace {

using capture::Recorder;
using graph::Graph;

/// Of each input, the first that is the same tensor.
using Sameness = std::vector<size_t>;

struct RecordedGraph {
  capture::Recorder::CaptureResult result;
  std::optional<Sameness> held_to;  // what the graph holds for; nothing where it holds for all
};

/// Four inputs of one type can be the same in so many ways besides being four. With more of them the graph is held to
/// what the inputs are.
constexpr size_t kMostSamenesses = 14;

/// Whether some call of the program may pass one tensor for both.
bool can_be_one(at::ArrayRef<at::Tensor> inputs, const ExportOptions& options, size_t i, size_t j) {
  const at::Tensor &a = inputs[i], &b = inputs[j];
  if (a.scalar_type() != b.scalar_type() || a.device() != b.device() || a.dim() != b.dim()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim)
    if (a.size(dim) != b.size(dim) && symbol_of(options, i, dim).empty() && symbol_of(options, j, dim).empty())
      return false;
  return true;
}

/// All ways in which inputs can be the same; ends early, with one too many, where there are more than anybody wants.
std::vector<Sameness> samenesses(at::ArrayRef<at::Tensor> inputs, const ExportOptions& options) {
  std::vector<Sameness> found(1);  // for the inputs before `next`: there are no fewer for all of them
  for (size_t next = 0; next < inputs.size(); ++next) {
    std::vector<Sameness> longer;
    for (const Sameness& same : found) {
      std::vector<bool> joins(next + 1, false);  // inputs that are the first of their kind, and may be this one, too
      for (size_t i = 0; i < next; ++i)
        joins[same[i]] = (same[i] == i || joins[same[i]]) && can_be_one(inputs, options, i, next);
      joins[next] = true;
      for (size_t first = 0; first <= next && longer.size() <= kMostSamenesses + 1; ++first) {
        if (!joins[first]) continue;
        longer.push_back(same);
        longer.back().push_back(first);
      }
    }
    found = std::move(longer);
    if (found.size() > kMostSamenesses + 1) break;
  }
  return found;
}

/// The text of what a graph computes, whatever the sizes of its examples were.
std::string computation(const Graph& recorded, const Sameness& same) {
  Graph graph = recorded.clone();
  graph::Replacements replacements;
  for (size_t i = 0; i < same.size(); ++i)
    if (same[i] != i) replacements[graph.inputs()[i].value] = graph.inputs()[same[i]].value;
  graph::replace_uses(graph, replacements);
  graph::clean(graph);
  for (const auto& input : graph.inputs()) graph.edit(input.value).is_flags = false;
  for (auto& node : graph.nodes())
    for (graph::Value* result : node->results) graph.edit(result).meta.reset();
  return graph::print(graph);
}

/// Whether the graph that was recorded with all inputs apart computes what the function does when they are not.
bool holds_for(const Graph& apart, const Sameness& same, const std::function<Graph(const Sameness&)>& graph_of) {
  try {
    return computation(apart, same) == computation(graph_of(same), same);
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

Sameness sameness_of(at::ArrayRef<at::Tensor> inputs) {
  Sameness same;
  for (const at::Tensor& input : inputs) same.push_back(capture::number_among(inputs, input));
  return same;
}

/// `record` runs the function on inputs that are the same as told, and throws what it throws. The first run is for what
/// `inputs` are, and its errors are passed on; an error of another one tells that the function then does something
/// else. Those draw no random numbers that anybody sees.
RecordedGraph record_for_all_samenesses(at::ArrayRef<at::Tensor> inputs, const ExportOptions& options,
                                        const std::function<Recorder::CaptureResult(const Sameness&)>& record) {
  const Sameness given = sameness_of(inputs);
  RecordedGraph own{record(given), std::nullopt};
  const std::vector<Sameness> all = samenesses(inputs, options);
  if (all.size() == 1) return own;
  if (all.size() > kMostSamenesses + 1) {
    own.held_to = given;
    return own;
  }
  const random::Replay unseen(true);
  Sameness all_apart(inputs.size());
  std::iota(all_apart.begin(), all_apart.end(), size_t{0});
  const auto graph_of = [&](const Sameness& same) {
    return same == given ? own.result.graph.clone() : std::move(record(same).graph);
  };
  std::optional<Recorder::CaptureResult> apart;
  try {
    if (given != all_apart) apart = record(all_apart);
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception&) {
    own.held_to = given;
    return own;
  }
  const Graph& general = apart ? apart->graph : own.result.graph;
  for (const Sameness& same : all) {
    if (same == all_apart || holds_for(general, same, graph_of)) continue;
    own.held_to = given;
    return own;
  }
  return apart ? RecordedGraph{std::move(*apart), std::nullopt} : std::move(own);
}

}  // namespace
}  // namespace triage::exporting

namespace triage {
namespace {

using capture::Recorder;
using exporting::Sameness;
using exporting::symbol_of;

/// A size that the script read holds for this size only; where it was to be dynamic, that is an error.
void check_sizes(const Recorder::CaptureResult& captured, const ExportOptions& options) {
  const auto& inputs = captured.graph.inputs();
  const auto name = [&](size_t input) { return inputs[input].value->name; };
  for (const auto& size : captured.sizes)
    if (const std::string symbol = symbol_of(options, size.input, size.dim); !symbol.empty())
      throw InputError(fmt::format(
          "export: dimension {} of input '{}' is declared dynamic ('{}'), but the graph holds only for size "
          "{}: the script compares this size, loops over it or uses it as a key. Use sizes in tensor "
          "operations only, or do not declare this dimension dynamic",
          size.dim, name(size.input), symbol, size.size));
  for (const auto& same : captured.same_sizes) {
    const std::string a = symbol_of(options, same.input, same.dim), b = symbol_of(options, same.other, same.other_dim);
    if (a != b)
      throw InputError(
          fmt::format("export: dimension {} of input '{}' and dimension {} of input '{}' must have the same size; give "
                      "both the same name in dynamic_shapes, or no name",
                      same.dim, name(same.input), same.other_dim, name(same.other)));
  }
}

struct CaptureArguments {
  const std::string& name;
  const std::vector<std::string>& input_names;
  at::ArrayRef<at::Tensor> inputs, params;
  std::vector<std::string> output_names;
  std::vector<std::string> notes = {};  // on the inputs
};

using Function = std::function<std::vector<at::Tensor>(at::ArrayRef<at::Tensor>)>;

/// What was said of the sizes that vary: which are one, and the ranges they lie in. It decides comparisons of them.
void tell_sizes(Recorder& recorder, const std::vector<at::Tensor>& inputs, const ExportOptions& options) {
  std::map<std::string, const DynamicDim*> first;
  for (const DynamicDim& dynamic : options.dynamic_dims) {
    if (dynamic.input >= inputs.size() || dynamic.dim < 0 || dynamic.dim >= inputs[dynamic.input].dim()) continue;
    const auto [known, fresh] = first.emplace(dynamic.symbol, &dynamic);
    if (!fresh)
      recorder.sizes().rely_on(
          {{inputs[known->second->input], known->second->dim, inputs[dynamic.input], dynamic.dim}});
    const auto bounds = options.bounds.find(dynamic.symbol);
    if (bounds == options.bounds.end()) continue;
    const auto [min, max] = bounds->second;
    recorder.sizes().numbers.table.add_size(
        fmt::format("s{}_{}", dynamic.input, dynamic.dim),
        {static_cast<symbols::Number>(min), std::min(static_cast<symbols::Number>(max), symbols::kLargestSize)});
  }
}

/// One run of `fn`, recorded. Inputs that are one tensor by `same` are one to `fn`, and apart in the graph.
Recorder::CaptureResult record(const CaptureArguments& given, const Sameness& same, const ExportOptions& options,
                               const Function& fn) {
  const capture::OutsideBranches outside;
  Recorder recorder(given.name, /*strict=*/true);
  recorder.sizes().numbers.keep_items = true;
  std::vector<at::Tensor> traced;
  const auto add = [&](const at::Tensor& tensor, graph::InputKind kind) {
    const size_t i = traced.size();
    traced.push_back(recorder.add_input(i < given.input_names.size() ? given.input_names[i] : "x" + std::to_string(i),
                                        kind, tensor));
  };
  for (const auto& tensor : given.inputs) add(tensor, graph::InputKind::tensor);
  for (const auto& tensor : given.params) {
    if (!capture::is_wrapped_number(tensor))
      throw InputError(fmt::format(
          "export: param '{}' is a list or a tensor, and a program takes numbers as params; make it an input "
          "of the policy",
          given.input_names.at(traced.size())));
    add(tensor, graph::InputKind::param);
  }
  for (size_t i = 0; i < given.inputs.size(); ++i)  // a size that does not vary is a plain number
    for (int64_t dim = 0; dim < given.inputs[i].dim(); ++dim)
      if (symbol_of(options, i, dim).empty()) recorder.sizes().read_size(traced[i], dim);
  tell_sizes(recorder, traced, options);
  for (size_t i = 0; i < same.size(); ++i) traced[i] = traced[same[i]];
  std::vector<at::Tensor> results;
  try {
    results = fn(traced);
  } catch (const GraphBreakError&) {
    throw;
  } catch (const std::exception&) {
    if (recorder.broken()) throw recorder.broken()->error();  // the script turned the break into another error
    throw;
  }
  if (compat::autocast_state())
    throw InputError("export: the function returns with autocast on; end the autocast scope in the function");
  recorder.check_caught_errors();
  if (recorder.broken()) throw recorder.broken()->error();
  if (recorder.has_protected_calls())
    throw InputError(
        "export: the function calls tensor operations inside pcall; a program has no script that could handle their "
        "errors. Call them outside of pcall");
  Recorder::CaptureResult result = recorder.finish(results, given.output_names);
  if (const graph::Node* call = given::find_host_call(result.graph))
    throw InputError(
        fmt::format("export: {}:{} calls `{}`, a function or module of the host, which no file can hold; call it "
                    "before or after the "
                    "program",
                    call->source.file, call->source.line, given::callee_name(*call->operands.at(1).constant())));
  return result;
}

std::vector<c10::IValue> defaults_of(at::ArrayRef<at::Tensor> params) {
  std::vector<c10::IValue> defaults;
  for (const auto& tensor : params) {
    const c10::Scalar value = tensor.item();
    defaults.push_back(value.isBoolean()         ? c10::IValue(value.toBool())
                       : value.isFloatingPoint() ? c10::IValue(value.toDouble())
                                                 : c10::IValue(value.toLong()));
  }
  return defaults;
}

/// Who runs the program may ask for gradients of whatever can have them.
graph::Values differentiable(const graph::Graph& graph) {
  graph::Values values;
  for (const auto& node : graph.nodes())
    for (const graph::Value* result : node->results)
      if (!result->meta || at::isFloatingType(result->meta->dtype) || at::isComplexType(result->meta->dtype))
        values.insert(result);
  return values;
}

ExportedProgram capture_program(const CaptureArguments& given, ExportOptions options, const Function& fn) {
  if (compat::autocast_state())
    throw InputError(
        "export: autocast is on, and a program cannot save this mode; export outside of the autocast scope");
  for (size_t i = 0; i < given.inputs.size(); ++i) {
    if (!given.inputs[i].defined()) throw InputError(fmt::format("export: input {} is an undefined tensor", i));
    if (given.inputs[i].layout() != at::kStrided)
      throw InputError(fmt::format(
          "export: input {} is {}; a program takes dense tensors. Pass x:to_dense() to the export and to the program",
          i, c10::str(given.inputs[i].layout())));
  }
  exporting::RecordedGraph recorded = exporting::record_for_all_samenesses(
      given.inputs, options, [&](const Sameness& same) { return record(given, same, options, fn); });
  Recorder::CaptureResult& captured = recorded.result;
  if (recorded.held_to) options.same_inputs = *recorded.held_to;
  graph::clean(captured.graph, differentiable(captured.graph));
  check_sizes(captured, options);
  std::vector<std::string> notes = given.notes;
  notes.insert(notes.end(), captured.notes.begin(), captured.notes.end());
  return ExportedProgram(std::move(captured.graph), std::move(options), defaults_of(given.params), std::move(notes));
}

/// What a policy keeps between calls is, for a program, inputs behind its own and outputs behind its own.
struct StateInputs {
  std::vector<at::Tensor> with_inputs;  // the inputs, then the state before the first call
  std::vector<std::string> notes;       // on each state
  ExportOptions options;                // its batch varies as that of the inputs does

  StateInputs(const Signature& signature, at::ArrayRef<at::Tensor> inputs, ExportOptions given)
      : with_inputs(inputs.vec()), options(std::move(given)) {
    const at::Tensor* const rows = batch_of(inputs);
    const std::string batch = rows ? symbol_of(options, rows - inputs.begin(), 0) : "";
    for (const StateSpec& spec : signature.state) {
      if (has_batch(spec) && !batch.empty()) options.dynamic_dims.push_back({with_inputs.size(), 0, batch});
      with_inputs.push_back(first_state(spec, rows_of(inputs), inputs.empty() ? c10::kCPU : inputs[0].device()));
      notes.push_back(fmt::format("{} is state: {} before the first call; the output {} is what the next call takes",
                                  spec.name, c10::str(spec.init), output_name(spec, signature)));
    }
  }

  static std::vector<std::string> output_names(const Signature& signature, size_t outputs) {
    std::vector<std::string> all = signature.outputs;
    if (signature.state.empty()) return all;
    while (all.size() + signature.state.size() < outputs) all.push_back(fmt::format("out{}", all.size()));
    for (const StateSpec& spec : signature.state) all.push_back(output_name(spec, signature));
    return all;
  }
  /// That of the state, if no output of the policy has it.
  static std::string output_name(const StateSpec& spec, const Signature& signature) {
    const auto is_taken = [&](const std::string& name) {
      return std::count(signature.outputs.begin(), signature.outputs.end(), name) != 0 ||
             std::any_of(signature.state.begin(), signature.state.end(),
                         [&](const StateSpec& other) { return other.name != spec.name && other.name == name; });
    };
    std::string name = spec.name;
    while (is_taken(name)) name = "next_" + name;
    return name;
  }
};

}  // namespace

ExportedProgram export_function(const std::string& name, const std::vector<std::string>& input_names,
                                at::ArrayRef<at::Tensor> inputs,
                                const std::function<std::vector<at::Tensor>(at::ArrayRef<at::Tensor>)>& fn,
                                const ExportOptions& options) {
  return capture_program({name, input_names, inputs, {}, {}}, options, fn);
}

ExportedProgram export_script(Script& script, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                              const ExportOptions& options) {
  std::vector<std::string> names = script.signature().inputs;
  if (names.size() != inputs.size())
    throw InputError(
        fmt::format("export: policy '{}' takes {} inputs, got {}", script.name(), names.size(), inputs.size()));
  const Signature& signature = script.signature();
  StateInputs state(signature, inputs, options);
  for (const StateSpec& spec : signature.state) names.push_back(spec.name);
  for (const Param& param : signature.params) names.push_back(param.name);
  CaptureArguments given{script.name(), names, state.with_inputs, params, signature.outputs, state.notes};
  const auto call = [&](at::ArrayRef<at::Tensor> traced) {
    const at::ArrayRef<at::Tensor> first = traced.slice(inputs.size(), signature.state.size());
    std::vector<at::Tensor> behind = traced.slice(state.with_inputs.size()).vec();  // params, then state
    behind.insert(behind.end(), first.begin(), first.end());
    std::vector<at::Tensor> outputs = script.call(traced.slice(0, inputs.size()), behind, std::nullopt);
    capture::drop_hidden(signature, outputs);  // a program has no Runtime that looks at them
    given.output_names = StateInputs::output_names(signature, outputs.size());
    return outputs;
  };
  return capture_program(given, state.options, call);
}

}  // namespace triage
