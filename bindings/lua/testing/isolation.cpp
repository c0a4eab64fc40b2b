#include "bindings/lua/testing/isolation.h"

#include <ATen/ATen.h>
#include <triage/typing.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "bindings/lua/engine/policies/lua_script.h"
#include "runtime/policy/params/param_values.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/random/sequence.h"

namespace triage::lua {
namespace {

/// A tensor as large as one sample of another, or as its last dims, stands beside every sample.
bool is_one_sample(const at::Tensor& tensor, const std::vector<at::Tensor>& all) {
  return std::any_of(all.begin(), all.end(), [&](const at::Tensor& other) {
    return other.dim() > tensor.dim() &&
           other.sizes().slice(static_cast<size_t>(other.dim() - tensor.dim())) == tensor.sizes();
  });
}

/// What the declared types call the first dim; empty where an input has no type.
std::vector<std::string> first_dims(const Signature& signature) {
  std::vector<std::string> names;
  for (const auto& type : signature.input_types) {
    if (!type) return {};
    names.push_back(type->flags || type->dims.empty() || type->dims[0].kind == Dim::Kind::rest ? ""
                                                                                               : type->dims[0].text());
  }
  return names.size() == signature.inputs.size() ? names : std::vector<std::string>();
}

/// A name is the number of samples where it begins a type and stands behind in none: a fixed size is a size of all
/// samples, and `D` of
/// {"D"} beside {"N", "D"} is one of their dims.
bool names_samples(const std::vector<std::optional<TensorSpec>>& types, size_t of) {
  if (!types[of] || types[of]->flags || types[of]->dims.empty() || types[of]->dims[0].kind != Dim::Kind::name)
    return false;
  return std::none_of(types.begin(), types.end(), [&](const std::optional<TensorSpec>& type) {
    return type && type->dims.size() > 1 &&
           std::find(type->dims.begin() + 1, type->dims.end(), types[of]->dims[0]) != type->dims.end();
  });
}

}  // namespace

std::vector<diagnose::IsolationInput> isolation_inputs(const Signature& signature,
                                                       const std::vector<at::Tensor>& tensors,
                                                       const std::vector<std::string>& shared) {
  const std::vector<std::string> declared = first_dims(signature);
  std::vector<diagnose::IsolationInput> inputs;
  std::vector<size_t> candidates;  // for the input that says how many samples there are
  for (size_t i = 0; i < tensors.size(); ++i) {
    diagnose::IsolationInput input{signature.inputs[i], tensors[i], false, false};
    input.is_flags = i < signature.input_types.size() && signature.input_types[i] && signature.input_types[i]->flags;
    const bool is_shared = std::find(shared.begin(), shared.end(), input.name) != shared.end();
    if (tensors[i].dim() > 0 && !is_shared) candidates.push_back(i);
    inputs.push_back(std::move(input));
  }
  if (candidates.empty()) return inputs;
  const auto first_where = [&](auto has, size_t otherwise) {
    const auto found = std::find_if(candidates.begin(), candidates.end(), has);
    return found == candidates.end() ? otherwise : *found;
  };
  size_t first = first_where([&](size_t i) { return !is_one_sample(tensors[i], tensors); }, candidates.front());
  if (!declared.empty()) first = first_where([&](size_t i) { return names_samples(signature.input_types, i); }, first);
  const std::string dim = declared.empty() ? std::string() : declared[first];
  for (const size_t i : candidates) {
    const bool fits = dim.empty() || inputs[i].is_flags ? !is_one_sample(tensors[i], tensors) : declared[i] == dim;
    inputs[i].has_samples = tensors[i].size(0) == tensors[first].size(0) && fits;
  }
  return inputs;
}

struct PolicySubject::LoadedPolicy {
  Runtime runtime;
  Policy policy;
  std::shared_ptr<const graph::Graph> graph;  // of the inputs that are checked, where it is the only one
};

PolicySubject::PolicySubject(PolicyUnderCheck policy) : checked_(std::move(policy)) { restart(); }
PolicySubject::~PolicySubject() = default;

void PolicySubject::restart() {
  Runtime runtime(checked_.runtime);
  if (checked_.give) checked_.give(runtime);
  const ScriptOptions& script = checked_.script;
  Policy policy = script.read_file ? runtime.load(script.path) : runtime.load_source(checked_.source, script.path);
  const Signature signature = policy.signature();
  for (size_t i = 0; i < signature.params.size() && i < checked_.params.size(); ++i)
    policy.set_param(signature.params[i].name, policy::as_set(checked_.params[i]));
  loaded_ = std::make_unique<LoadedPolicy>(LoadedPolicy{std::move(runtime), std::move(policy), nullptr});
}

bool PolicySubject::has_state() const { return !loaded_->policy.signature().state.empty(); }

diagnose::Tensors PolicySubject::call(const diagnose::Tensors& inputs) {
  loaded_->policy.reset_state();
  return call_next(inputs);
}

diagnose::Tensors PolicySubject::call_next(const diagnose::Tensors& inputs) {
  loaded_->policy.manual_seed(checked_.seed);
  diagnose::Tensors outputs = loaded_->policy.run(inputs);
  if (!loaded_->graph) {
    const auto graphs = loaded_->policy.graphs();
    if (graphs.size() == 1 && loaded_->policy.segments().empty()) loaded_->graph = graphs.front().graph;
  }
  return outputs;
}

CodeNames PolicySubject::codes() { return loaded_->policy.signature().codes; }

std::vector<std::string> PolicySubject::output_names() { return loaded_->policy.signature().outputs; }
std::vector<bool> PolicySubject::flags_outputs() { return loaded_->policy.flags_outputs(); }

std::vector<bool> PolicySubject::flags_inputs() {
  std::vector<bool> flags;
  for (const CapturedGraph& captured : loaded_->policy.graphs()) {
    flags.resize(loaded_->policy.signature().inputs.size());
    for (size_t i = 0; i < flags.size() && i < captured.graph->inputs().size(); ++i)
      flags[i] = flags[i] || captured.graph->inputs()[i].value->is_flags;
  }
  return flags;
}

namespace {

/// Calls `add` for each number that stands in code, not in a comment.
template <class Add>
void each_number(const std::string& text, const Add& add) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "--") == 0) {
      const bool is_long = text.compare(i, 4, "--[[") == 0;
      i = std::min(text.size(), is_long ? text.find("]]", i) : text.find('\n', i));
      continue;
    }
    if (!std::isdigit(static_cast<unsigned char>(text[i])) || (i > 0 && is_word(text[i - 1]))) continue;
    char* end = nullptr;
    add(std::strtod(text.c_str() + i, &end));
    i = static_cast<size_t>(end - text.c_str());
  }
}

/// Calls `add` for each number that a node of the graph takes: what the script computed before is one of them.
template <class Add>
void each_number(const graph::Graph& graph, const Add& add) {
  for (const auto& node : graph.nodes())
    for (const graph::Operand& operand : node->operands)
      if (const c10::IValue* constant = operand.constant(); constant && constant->isScalar())
        add(constant->toScalar().toDouble());
  for (const graph::Constant& constant : graph.constants())
    if (constant.tensor.numel() == 1 && !constant.tensor.is_complex()) add(constant.tensor.item<double>());
}

}  // namespace

/// Of the files of code that the policy reads while it is loaded.
std::vector<std::string> PolicySubject::texts_of_modules() const {
  std::vector<std::string> texts;
  if (!checked_.script.read_file) return texts;
  ScriptOptions options = checked_.script;
  options.limits = checked_.runtime.limits;
  options.print = [](const std::string&) {};
  options.read_file = [&](const std::string& name) {
    auto text = checked_.script.read_file(name);
    if (text && name.ends_with(".lua")) texts.push_back(*text);
    return text;
  };
  const LuaScript script(checked_.source, options);
  return texts;
}

/// Those of declarations first, then those of graphs, of the code, and of the modules that it reads.
std::vector<double> PolicySubject::numbers() const {
  constexpr size_t most = 48;
  std::vector<double> numbers;
  const auto add = [&](double number) {
    const bool is_known = std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    if (number != 0 && std::abs(number) != 1 && std::isfinite(number) && !is_known && numbers.size() < most)
      numbers.push_back(number);
  };
  for (const auto& range : output_ranges())
    for (const auto& bound : {range ? range->min : std::nullopt, range ? range->max : std::nullopt})
      if (bound) add(bound->toDouble());
  for (const at::Tensor& param : checked_.params)
    if (param.numel() > 0 && param.numel() <= 4 && !param.is_complex())
      for (int64_t i = 0; i < param.numel(); ++i) add(param.reshape({-1})[i].item<double>());
  for (const CapturedGraph& captured : loaded_->policy.graphs()) each_number(*captured.graph, add);
  each_number(checked_.source, add);
  for (const std::string& text : texts_of_modules()) each_number(text, add);
  return numbers;
}

AccumulationConfig PolicySubject::accumulation() const {
  return checked_.accumulation.value_or(get_config().accumulation);
}

const Policy& PolicySubject::policy() const { return loaded_->policy; }
bool PolicySubject::is_one_graph() const { return loaded_->graph != nullptr; }

diagnose::Recording PolicySubject::record(const diagnose::Tensors& inputs) {
  random::Sequence same_numbers(checked_.seed);
  const random::DrawFrom scope(&same_numbers);
  const std::vector<at::Tensor> values = policy::with_first_state(loaded_->policy.signature(), inputs, checked_.params);
  if (loaded_->policy.graphs().size() > 1) loaded_->graph = nullptr;  // it may not be the one of these inputs
  if (loaded_->graph && loaded_->graph->inputs().size() == inputs.size() + values.size()) {
    diagnose::Tensors all = inputs;
    all.insert(all.end(), values.begin(), values.end());
    return diagnose::record(*loaded_->graph, all);
  }
  loaded_->graph = nullptr;
  ScriptOptions options = checked_.script;
  options.limits = checked_.runtime.limits;
  options.print = [](const std::string&) {};  // it printed in the calls that are compared
  LuaScript script(checked_.source, options);
  return diagnose::record_calls(
      [&](const diagnose::Tensors& given) { return policy::call_alone(script, given, checked_.params); }, inputs,
      [&] { return script.current_line(); });
}

}  // namespace triage::lua
