#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/backend.h>

#include <fstream>
#include <iterator>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/export/state.h"
#include "runtime/files/disk.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/boundary.h"
#include "runtime/operators/untrusted.h"

namespace triage {
namespace {

using graph::Input;
using graph::InputKind;

void require_types(const graph::Graph& graph) {
  for (const Input& input : graph.inputs())
    if (!input.value->meta)
      throw GraphError(
          fmt::format("export: input {} of graph `{}` has no type; capture it, or write one such as %z: "
                      "\"f32[32, 512]\"",
                      graph::describe(*input.value), graph.name()));
}

at::Tensor param_tensor(const c10::IValue& value) {
  at::Tensor tensor = c10::scalar_to_tensor(value.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

std::string sizes_text(at::IntArrayRef sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

/// One tensor against the type of its input; sizes of symbols are collected in `known`.
class InputCheck {
 public:
  explicit InputCheck(const ExportedProgram::State& program) : program_(program) {}

  void check(const graph::Value& input, const at::Tensor& tensor) {
    const std::string wanted = graph::short_dtype(input.meta->dtype) + "[" +
                               fmt::format("{}", fmt::join(program_.input_dims.at(&input), ", ")) + "]";
    if (!tensor.defined()) throw InputError(start(input) + fmt::format("expected {}, got an undefined tensor", wanted));
    if (tensor.layout() != at::kStrided)
      throw InputError(start(input) + fmt::format("expected {}, a dense tensor, got a {} tensor; pass x:to_dense()",
                                                  wanted, c10::str(tensor.layout())));
    const bool fits = tensor.scalar_type() == input.meta->dtype &&
                      tensor.device().type() == input.meta->device.type() &&
                      tensor.sizes().size() == input.meta->sizes.size();
    if (!fits)
      throw InputError(start(input) + fmt::format("expected {}{}, got {}{} on {}", wanted,
                                                  input.meta->device.is_cpu() ? "" : " on " + input.meta->device.str(),
                                                  graph::short_dtype(tensor.scalar_type()), sizes_text(tensor.sizes()),
                                                  tensor.device().str()));
    for (size_t dim = 0; dim < input.meta->sizes.size(); ++dim) check_size(input, dim, tensor, wanted);
  }

 private:
  std::string start(const graph::Value& input) const {
    return fmt::format("exported program '{}', input '{}': ", program_.graph.name(), input.name);
  }

  void check_size(const graph::Value& input, size_t dim, const at::Tensor& tensor, const std::string& wanted) {
    const int64_t size = tensor.size(static_cast<int64_t>(dim));
    const std::string& symbol = program_.input_dims.at(&input)[dim];
    if (!graph::is_identifier(symbol)) {
      if (size == input.meta->sizes[dim]) return;
      throw InputError(start(input) +
                       fmt::format("expected {}, got {}; to allow other sizes, export with dynamic_shapes", wanted,
                                   sizes_text(tensor.sizes())));
    }
    const auto [known, fresh] = sizes_.emplace(symbol, size);
    if (!fresh && known->second != size)
      throw InputError(start(input) +
                       fmt::format("expected size {2} in dimension {0} ('{1}' is {2} in an earlier input), got {3}",
                                   dim, symbol, known->second, size));
    const auto bounds = program_.options.bounds.find(symbol);
    if (bounds != program_.options.bounds.end() && (size < bounds->second.min || size > bounds->second.max))
      throw InputError(start(input) +
                       fmt::format("{} = {} is not in [{}, {}]", symbol, size, bounds->second.min, bounds->second.max));
  }

  const ExportedProgram::State& program_;
  std::map<std::string, int64_t> sizes_;
};

/// Inputs of the program that are one tensor, or two, against what it was exported for.
void check_sameness(const ExportedProgram::State& program, at::ArrayRef<at::Tensor> inputs) {
  const std::vector<size_t>& same = program.options.same_inputs;
  const auto fail = [&](size_t a, size_t b, const char* what) {
    const auto& declared = program.graph.inputs();
    throw InputError(fmt::format("exported program '{}': inputs '{}' and '{}' {}", program.graph.name(),
                                 declared[a].value->name, declared[b].value->name, what));
  };
  for (size_t i = 0; i < same.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const bool one = inputs[i].is_same(inputs[j]);
      if (one && same[i] != same[j])
        fail(j, i,
             "are the same tensor, but the program was exported for two different tensors, and its results depend on "
             "that; pass a copy (x:clone()), or export with the same tensor for both");
      if (!one && same[i] == same[j])
        fail(j, i,
             "are different tensors, but the program was exported for one tensor as both inputs, and its results "
             "depend on that; pass the same tensor for both, or export with two");
    }
}

}  // namespace

ExportedProgram::State::State(graph::Graph graph_, ExportOptions options_, std::vector<c10::IValue> params_,
                              std::vector<std::string> notes_, Origin origin)
    : graph(std::move(graph_)), options(std::move(options_)), params(std::move(params_)), notes(std::move(notes_)) {
  graph::verify(graph);
  require_types(graph);
  size_t count = 0;
  for (const Input& input : graph.inputs()) {
    const bool param = input.kind == InputKind::param;
    if (param && !input.value->meta->sizes.empty())
      throw InputError(fmt::format("export: param '{}' must be a number, but its type has sizes", input.value->name));
    if (!param && count > 0)
      throw InputError(fmt::format("export: input '{}' follows a param; params must come last", input.value->name));
    count += param;
  }
  if (count != params.size())
    throw InputError(
        fmt::format("export: graph `{}` has {} params, got {} defaults", graph.name(), count, params.size()));
  for (size_t i = 0; i < count; ++i) {
    const graph::Value* value = graph.inputs()[graph.inputs().size() - count + i].value;
    const at::ScalarType given = param_tensor(params[i]).scalar_type();
    if (given != value->meta->dtype)
      throw InputError(fmt::format("export: the default of param '{}' is {}, but its type is {}", value->name,
                                   graph::dtype_name(given), graph::dtype_name(value->meta->dtype)));
  }
  exporting::check_options(graph, options);
  names = exporting::names_of(graph);
  const auto dims = exporting::input_dims(graph, options);
  for (size_t i = 0; i < dims.size(); ++i) input_dims[graph.inputs()[i].value] = dims[i];
  if (origin == Origin::capture) name_assertions();
  executable = compile_outputs_eager(graph, compile_eager, {/*inputs=*/true, /*variables=*/false});
}

namespace {

/// Of a program that is not trusted: nothing has called its operators with such arguments before. In a script that is
/// not trusted it takes no more than the script.
operators::Untrusted::Terms all_calls() {
  operators::Untrusted::Terms terms{.captured = false};
  if (const auto* around = operators::Untrusted::current()) terms.bytes = around->bytes;
  return terms;
}

}  // namespace

const exporting::Shapes& ExportedProgram::State::shapes() const {
  std::call_once(asked_, [this] {
    const auto terms = all_calls();
    const operators::Untrusted scope(options.by_contract ? &terms : operators::Untrusted::current());
    const Deadline end(Deadline::in(Limits().seconds));
    shapes_ = std::make_unique<const exporting::Shapes>(exporting::shapes_of(graph, options));
  });
  return *shapes_;
}

void ExportedProgram::State::name_assertions() {
  constexpr std::string_view start = "Runtime assertion failed", before = " on node '";
  for (auto& node : graph.nodes()) {
    if (!graph::is_assertion(*node) || node->operands.size() < 2) continue;
    const graph::Value* condition = node->operands[0].value();
    const c10::IValue* message = node->operands[1].constant();
    if (!condition || !message || !message->isString()) continue;
    std::string text = message->toStringRef();
    const size_t from = text.find(before);
    const size_t to = from == std::string::npos ? from : text.find('\'', from + before.size());
    if (to == std::string::npos) continue;
    const symbols::SymbolicExpression* truth = shapes().table.find(condition);
    const std::string told = from > start.size() ? text.substr(start.size(), from - start.size()) : "";
    node->operands[1] = c10::IValue(std::string(start) + (truth ? " for expression " + truth->text : told) +
                                    std::string(before) + names.at(condition) + text.substr(to));
  }
}

ExportedProgram::ExportedProgram(graph::Graph graph, ExportOptions options, std::vector<c10::IValue> params,
                                 std::vector<std::string> notes)
    : state_(std::make_shared<State>(std::move(graph), std::move(options), std::move(params), std::move(notes),
                                     State::Origin::capture)) {}

ExportedProgram::ExportedProgram(std::shared_ptr<const State> state) : state_(std::move(state)) {}

std::vector<at::Tensor> ExportedProgram::run(at::ArrayRef<at::Tensor> inputs,
                                             std::optional<std::chrono::steady_clock::time_point> deadline) const {
  const Deadline end(deadline);
  const auto& declared = state_->graph.inputs();
  const size_t tensors = declared.size() - state_->params.size();
  if (inputs.size() < tensors || inputs.size() > declared.size())
    throw InputError(fmt::format(
        "exported program '{}' takes {} input{}{}, got {}", state_->graph.name(), tensors, tensors == 1 ? "" : "s",
        state_->params.empty() ? "" : fmt::format(" and up to {} params", state_->params.size()), inputs.size()));
  std::vector<at::Tensor> all(inputs.begin(), inputs.end());
  for (size_t i = all.size(); i < declared.size(); ++i) all.push_back(param_tensor(state_->params[i - tensors]));
  InputCheck check(*state_);
  for (size_t i = 0; i < declared.size(); ++i) check.check(*declared[i].value, all[i]);
  check_sameness(*state_, all);
  std::vector<at::Tensor> outputs;
  const auto terms = all_calls();
  const operators::Untrusted scope(state_->options.by_contract ? &terms : operators::Untrusted::current());
  state_->executable->run(all, outputs, {Deadline::current()});
  return outputs;
}

std::string ExportedProgram::text() const { return exporting::print(*state_); }
const graph::Graph& ExportedProgram::graph() const { return state_->graph; }
const ExportOptions& ExportedProgram::options() const { return state_->options; }

ExportedProgram ExportedProgram::run_decompositions() const {
  return ExportedProgram(graph::decompose(state_->graph), state_->options, state_->params, state_->notes);
}

void ExportedProgram::verify() const {
  graph::verify(state_->graph);
  exporting::check_options(state_->graph, state_->options);
}

void ExportedProgram::save(const std::string& path) const {
  messages::errors_only([&] {
    const std::string text = exporting::to_text(state_->graph, state_->options, state_->params, state_->notes);
    files::write_file(path, text);
  });
}

ExportedProgram ExportedProgram::load(const std::string& path, bool trusted) {
  return messages::errors_only([&] {
    const auto fail = [&](const std::string& why) -> ExportedProgram {
      throw FileError(fmt::format("cannot load \"{}\" as an exported program: {}", path, why));
    };
    const files::InputFile file(path);
    try {
      exporting::check_kind(file.head(64));
      if (file.size() > exporting::kLargestFile)
        return fail(fmt::format("it has {} bytes; the limit is {}", file.size(), exporting::kLargestFile));
      std::string text(file.size(), '\0');
      file.read(0, text.data(), text.size());
      return ExportedProgram(exporting::from_text(text, trusted));
    } catch (const FileError&) {
      throw;
    } catch (const c10::Error& error) {
      return fail(error.what_without_backtrace());
    } catch (const std::bad_alloc&) {
      return fail("there is not enough memory for it");
    } catch (const std::exception& error) {
      return fail(error.what());
    }
  });
}

void ExportedProgram::save_torchscript(const std::string& path) const {
  messages::errors_only([&] {
    std::string archive;
    try {
      const graph::Graph in_aten =
          graph::decompose(state_->graph, graph::Numbers::as_they_are, graph::Choices::as_they_are);
      archive = exporting::to_torchscript(in_aten, state_->options, state_->params);
    } catch (const c10::Error& error) {
      const std::string text = error.what_without_backtrace();
      throw InputError(fmt::format(
          "exported program '{}' cannot be written as TorchScript: {}", state_->graph.name(),
          text.find("INTERNAL ASSERT") == std::string::npos
              ? text.substr(0, text.find('\n'))
              : "one of its calls has an argument that does not match the operator's schema; export it again"));
    }
    files::write_file(path, archive);
  });
}

}  // namespace triage
