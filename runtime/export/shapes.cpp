#include "runtime/export/shapes.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "runtime/backends/deadline.h"
#include "runtime/graph/dynamic_shape.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/text/describe.h"
#include "runtime/random/sequence.h"

namespace triage::exporting {
namespace {

using graph::Graph;
using graph::Node;
using graph::Value;

// Three to find a law, and two at sizes where laws often end.
constexpr size_t kProbes = 5, kEnds = 2;
using Probes = std::array<int64_t, kProbes>;
/// Sizes in the probes, as far as they are known.
using Sizes = std::array<std::optional<int64_t>, kProbes>;

/// Different for each symbol and probe where the range lets them be; 0 and 1 at last.
Probes probes_of(size_t index, int64_t min, int64_t max) {
  static constexpr int64_t starts[kProbes] = {3, 4, 7, 0, 1};
  Probes probes{};
  for (size_t i = 0; i < kProbes; ++i) {
    const size_t shift = i < kProbes - kEnds ? index * (5 + 2 * i) : 0;
    probes[i] = std::clamp(starts[i] + static_cast<int64_t>(shift), min, max);
  }
  // At the end of a small range they would coincide.
  if (probes[0] == probes[1] && min < max) probes[0] = probes[1] == min ? min + 1 : probes[1] - 1;
  if (probes[1] == probes[2] && max - min >= 2) probes[2] = probes[0] - 1 >= min ? probes[0] - 1 : probes[0] + 2;
  return probes;
}

// Inputs together, in a run on synthetic values; and the symbols whose laws are tried.
constexpr int64_t kMostElements = int64_t{1} << 26;
constexpr size_t kMostSymbols = 64, kLongestSymbol = 64;

int64_t whole_end(symbols::Number number) {
  constexpr symbols::Number largest = 1e15L;
  return static_cast<int64_t>(std::clamp(number, -largest, largest));
}

/// Whether the sizes of what a call gives follow from values, which nobody can make up.
bool follows_values(const Node& node) {
  const auto synthetic = [](const Value* value) {
    return at::zeros({}, at::TensorOptions().dtype(value->meta ? value->meta->dtype : at::kFloat));
  };
  try {
    const std::vector<c10::IValue> arguments = graph::boxed_arguments(node, synthetic);
    return graph::gives_dynamic_shape(node.op, at::ArrayRef<const c10::IValue>(arguments.data(), arguments.size()));
  } catch (const std::exception&) {
    return false;
  }
}

/// One run of the graph on synthetic values, keeping the sizes of everything.
class Probe {
 public:
  Probe(const Graph& graph, std::function<std::vector<int64_t>(size_t)> sizes_of,
        std::function<std::optional<int64_t>(const Value*)> number_of)
      : graph_(graph), sizes_of_(std::move(sizes_of)), number_of_(std::move(number_of)) {}

  void run() {
    const at::NoGradGuard no_grad;
    random::Sequence aside;  // what is drawn here, nobody sees
    const random::DrawFrom draws(&aside);
    int64_t elements = 0;
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      elements = std::min(elements + c10::multiply_integers(sizes_of_(i)), kMostElements + 1);
    if (elements > kMostElements) return;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Value* value = graph_.inputs()[i].value;
      // Zeros are indices into anything, ones divide.
      const auto options = at::TensorOptions().dtype(value->meta->dtype).device(value->meta->device);
      const bool whole = at::isIntegralType(value->meta->dtype, true);
      tensors_[value] = whole ? at::zeros(sizes_of_(i), options) : at::ones(sizes_of_(i), options);
    }
    for (const auto& constant : graph_.constants()) tensors_[constant.value] = constant.tensor;
    for (const auto& node : graph_.nodes()) {
      if (deadline_passed()) return;
      run(*node);
    }
  }

  std::optional<std::vector<int64_t>> sizes(const Value* value) const {
    auto found = tensors_.find(value);
    return found == tensors_.end() || !found->second.defined() ? std::nullopt
                                                               : std::optional(found->second.sizes().vec());
  }

 private:
  struct Missing {};

  void run(const Node& node) {
    if (graph::is_assertion(node) || follows_values(node)) return;
    if (graph::item_of(node)) {
      if (const auto number = number_of_(node.results.front())) {
        tensors_[node.results.front()] = at::scalar_tensor(*number, at::TensorOptions(at::kLong));
        return;
      }
    }
    try {
      const std::vector<at::Tensor> results = graph::evaluate(node, [this](const Value* value) {
        auto found = tensors_.find(value);
        if (found == tensors_.end()) throw Missing();
        return found->second;
      });
      for (size_t i = 0; i < results.size() && i < node.results.size(); ++i) tensors_[node.results[i]] = results[i];
    } catch (const Missing&) {  // what it takes could not be made up
    } catch (const std::exception&) {
    }
  }

  const Graph& graph_;
  std::function<std::vector<int64_t>(size_t)> sizes_of_;
  std::function<std::optional<int64_t>(const Value*)> number_of_;
  std::unordered_map<const Value*, at::Tensor> tensors_;
};

struct ProbedSymbol {
  std::string name;
  Probes values;
};

std::string linear_text(int64_t scale, const std::string& symbol, int64_t offset) {
  std::string text = scale == 1 ? symbol : scale == -1 ? "-" + symbol : fmt::format("{}*{}", scale, symbol);
  if (offset > 0) text += fmt::format(" + {}", offset);
  if (offset < 0) text += fmt::format(" - {}", -offset);
  return text;
}

template <typename Law>
bool follows(const Sizes& sizes, const Law& law) {
  for (size_t i = 0; i < kProbes; ++i)
    if (sizes[i] && *sizes[i] != law(i)) return false;
  return true;
}

std::string linear_law(const Sizes& sizes, const ProbedSymbol& symbol) {
  const Probes& at = symbol.values;
  const int64_t step = at[1] - at[0], grown = *sizes[1] - *sizes[0];
  const bool three = step != 0 && at[2] != at[0] && at[2] != at[1];
  if (!three || grown == 0 || grown % step != 0) return "";
  const int64_t scale = grown / step, offset = *sizes[0] - scale * at[0];
  const bool holds = follows(sizes, [&](size_t i) { return scale * at[i] + offset; });
  return holds ? linear_text(scale, symbol.name, offset) : "";
}

/// The law that a size follows over the probes, of which the first three are known.
std::string law_of(const Sizes& sizes, at::ArrayRef<ProbedSymbol> symbols) {
  symbols = symbols.slice(0, std::min(symbols.size(), kMostSymbols));
  if (follows(sizes, [&](size_t) { return *sizes[0]; })) return std::to_string(*sizes[0]);
  for (const ProbedSymbol& symbol : symbols)
    if (follows(sizes, [&](size_t i) { return symbol.values[i]; })) return symbol.name;
  for (const ProbedSymbol& symbol : symbols)
    if (std::string law = linear_law(sizes, symbol); !law.empty()) return law;
  for (size_t a = 0; a < symbols.size(); ++a)
    for (size_t b = a; b < symbols.size(); ++b) {
      const Probes &x = symbols[a].values, &y = symbols[b].values;
      if (follows(sizes, [&](size_t i) { return x[i] * y[i]; })) return symbols[a].name + "*" + symbols[b].name;
      if (follows(sizes, [&](size_t i) { return x[i] + y[i]; })) return symbols[a].name + " + " + symbols[b].name;
    }
  return "?";
}

SizeBounds bounds_of(const ExportOptions& options, const std::string& symbol) {
  const auto found = options.bounds.find(symbol);
  return found == options.bounds.end() ? SizeBounds{} : found->second;
}

std::vector<std::string> dims_text(const std::array<std::unique_ptr<Probe>, kProbes>& probes, const Value* value,
                                   const std::vector<ProbedSymbol>& symbols) {
  const size_t rank = value->meta ? value->meta->sizes.size() : 0;
  std::vector<Sizes> sizes(rank);
  std::vector<std::string> dims(rank, "?");
  for (size_t i = 0; i < kProbes; ++i) {
    const auto known = probes[i]->sizes(value);
    if (!known && i >= kProbes - kEnds) continue;  // not all can be done with no samples
    if (!known || known->size() != rank) return dims;
    for (size_t dim = 0; dim < rank; ++dim) sizes[dim][i] = (*known)[dim];
  }
  for (size_t dim = 0; dim < rank; ++dim) dims[dim] = law_of(sizes[dim], symbols);
  return dims;
}

/// Every symbol with its values in the probes: sizes of inputs, then integers read from tensors.
std::vector<ProbedSymbol> probed_symbols(const ExportOptions& options, const symbols::SymbolTable& numbers) {
  std::vector<ProbedSymbol> named;
  std::set<std::string> seen;
  for (const DynamicDim& dynamic : options.dynamic_dims) {
    if (!seen.insert(dynamic.symbol).second) continue;
    const SizeBounds bounds = bounds_of(options, dynamic.symbol);
    named.push_back({dynamic.symbol, probes_of(named.size(), bounds.min, bounds.max)});
  }
  for (const symbols::Symbol& symbol : numbers.symbols())
    if (symbol.value && symbol.whole)
      named.push_back({symbol.name, probes_of(named.size(), whole_end(symbol.range.min), whole_end(symbol.range.max))});
  return named;
}

symbols::SymbolTable numbers_of(const Graph& graph, const ExportOptions& options,
                                const std::unordered_map<const Value*, std::vector<std::string>>& dims) {
  symbols::SymbolTable table([&](const Value* value, int64_t dim) -> std::string {
    const auto found = dims.find(value);
    if (found == dims.end()) return "?";
    const auto rank = static_cast<int64_t>(found->second.size());
    const int64_t wrapped = dim < 0 ? dim + rank : dim;
    return wrapped >= 0 && wrapped < rank ? found->second[static_cast<size_t>(wrapped)] : "?";
  });
  for (const DynamicDim& dynamic : options.dynamic_dims) {
    const SizeBounds bounds = bounds_of(options, dynamic.symbol);
    const bool open = bounds.max == std::numeric_limits<int64_t>::max();
    table.add_size(dynamic.symbol, {static_cast<symbols::Number>(bounds.min),
                                    open ? symbols::kLargestSize : static_cast<symbols::Number>(bounds.max)});
  }
  for (const auto& node : graph.nodes()) table.visit(*node);
  return table;
}

std::vector<std::string> fixed_dims(const Value& value) {
  std::vector<std::string> dims;
  for (const int64_t size : value.meta->sizes) dims.push_back(std::to_string(size));
  return dims;
}

}  // namespace

std::string symbol_of(const ExportOptions& options, size_t input, int64_t dim) {
  for (const DynamicDim& dynamic : options.dynamic_dims)
    if (dynamic.input == input && dynamic.dim == dim) return dynamic.symbol;
  return "";
}

std::vector<std::vector<std::string>> input_dims(const Graph& graph, const ExportOptions& options) {
  std::vector<std::vector<std::string>> dims;
  for (const auto& input : graph.inputs()) dims.push_back(fixed_dims(*input.value));
  for (auto dynamic = options.dynamic_dims.rbegin(); dynamic != options.dynamic_dims.rend();
       ++dynamic)  // the first counts
    dims[dynamic->input][static_cast<size_t>(dynamic->dim)] = dynamic->symbol;
  return dims;
}

Shapes shapes_of(const Graph& graph, const ExportOptions& options) {
  std::unordered_map<const Value*, std::vector<std::string>> dims;
  const symbols::SymbolTable first = numbers_of(graph, options, dims);
  const std::vector<ProbedSymbol> named = probed_symbols(options, first);
  std::unordered_map<std::string, const Probes*> values;
  for (const ProbedSymbol& symbol : named) values.emplace(symbol.name, &symbol.values);
  const auto values_at = [&](const std::string& name, size_t probe) -> std::optional<int64_t> {
    const auto known = values.find(name);
    return known == values.end() ? std::nullopt : std::optional((*known->second)[probe]);
  };
  const std::vector<std::vector<std::string>> inputs = input_dims(graph, options);
  std::array<std::unique_ptr<Probe>, kProbes> probes;
  for (size_t i = 0; i < kProbes; ++i) {
    probes[i] = std::make_unique<Probe>(
        graph,
        [&, i](size_t input) {
          std::vector<int64_t> sizes = graph.inputs()[input].value->meta->sizes;
          for (size_t dim = 0; dim < sizes.size(); ++dim)
            if (auto value = values_at(inputs[input][dim], i)) sizes[dim] = *value;
          return sizes;
        },
        [&, i](const Value* value) -> std::optional<int64_t> {
          const symbols::SymbolicExpression* number = first.find(value);
          return number && number->whole ? values_at(number->text, i) : std::nullopt;
        });
  }
  const bool varies = !named.empty() || std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                                    [](const auto& node) { return follows_values(*node); });
  if (varies)
    for (auto& probe : probes) probe->run();
  for (const auto& constant : graph.constants()) dims[constant.value] = fixed_dims(*constant.value);
  for (size_t i = 0; i < inputs.size(); ++i) dims[graph.inputs()[i].value] = inputs[i];
  for (const auto& node : graph.nodes())
    for (const Value* result : node->results)
      if (result->meta) dims[result] = varies ? dims_text(probes, result, named) : fixed_dims(*result);
  symbols::SymbolTable table = numbers_of(graph, options, dims);
  return {std::move(table), std::move(dims)};
}

namespace {

void check_same_inputs(const Graph& graph, const std::vector<size_t>& same) {
  const auto tensors = std::count_if(graph.inputs().begin(), graph.inputs().end(),
                                     [](const auto& input) { return input.kind == graph::InputKind::tensor; });
  bool fits = same.empty() || same.size() == static_cast<size_t>(tensors);
  for (size_t i = 0; fits && i < same.size(); ++i) fits = same[i] <= i && same[same[i]] == same[i];
  if (!fits)
    throw InputError(
        fmt::format("export: same_inputs must have {} entries, one per tensor input: the index of the first input that "
                    "is the same tensor",
                    tensors));
}

}  // namespace

void check_options(const Graph& graph, const ExportOptions& options) {
  check_same_inputs(graph, options.same_inputs);
  std::map<std::string, int64_t> sizes;
  for (const DynamicDim& dynamic : options.dynamic_dims) {
    if (dynamic.symbol.size() > kLongestSymbol)
      throw InputError(fmt::format("export: the name of a size has at most {} bytes, got {}", kLongestSymbol,
                                   dynamic.symbol.size()));
    if (!graph::is_identifier(dynamic.symbol))
      throw InputError(
          fmt::format("export: \"{}\" cannot name a size; write a letter, then letters and digits", dynamic.symbol));
    if (dynamic.symbol.size() > 1 && dynamic.symbol[0] == 'u' &&
        dynamic.symbol.find_first_not_of("0123456789", 1) == std::string::npos)
      throw InputError(fmt::format(
          "export: \"{}\" cannot name a size: such names are reserved for numbers that are read from tensors",
          dynamic.symbol));
    if (dynamic.input >= graph.inputs().size())
      throw InputError(fmt::format("export: a dynamic size is named for input {}, but there are {} inputs",
                                   dynamic.input, graph.inputs().size()));
    const Value* input = graph.inputs()[dynamic.input].value;
    const auto rank = static_cast<int64_t>(input->meta->sizes.size());
    if (dynamic.dim < 0 || dynamic.dim >= rank)
      throw InputError(fmt::format("export: input '{}' has {} dimensions, but dimension {} is declared dynamic",
                                   input->name, rank, dynamic.dim));
    const int64_t size = input->meta->sizes[static_cast<size_t>(dynamic.dim)];
    const auto [known, fresh] = sizes.emplace(dynamic.symbol, size);
    if (!fresh && known->second != size)
      throw InputError(
          fmt::format("export: dimension {} of input '{}' has size {}, but '{}' is {} in another dimension",
                      dynamic.dim, input->name, size, dynamic.symbol, known->second));
    const SizeBounds bounds = bounds_of(options, dynamic.symbol);
    if (bounds.min < 0 || bounds.min > bounds.max || size < bounds.min || size > bounds.max)
      throw InputError(fmt::format("export: '{}' must be in [{}, {}], but is {} in the example", dynamic.symbol,
                                   bounds.min, bounds.max, size));
  }
  for (const auto& [symbol, bounds] : options.bounds)
    if (!sizes.count(symbol))
      throw InputError(fmt::format("export: bounds are given for '{}', which names no size", symbol));
}

}  // namespace triage::exporting
