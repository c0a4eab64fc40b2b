#include "runtime/backends/graph_program.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <triage/files.h>
#include <triage/version.h>

#include <filesystem>
#include <sstream>

#include "runtime/files/disk.h"
#include "runtime/graph/copy.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/tensor_text.h"
#include "runtime/messages/printable.h"

namespace triage::graph {
namespace {

using Fill = ProgramInput::Fill;

/// Elements of memory behind a tensor of these sizes and strides.
int64_t extent(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t last = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 0) return 0;
    last += (sizes[dim] - 1) * strides[dim];
  }
  return last + 1;
}

at::Tensor random_elements(int64_t count, at::ScalarType dtype, uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  if (at::isFloatingType(dtype)) return at::randn({count}, generator, at::TensorOptions(at::kDouble)).to(dtype);
  if (at::isComplexType(dtype)) return at::randn({count}, generator, at::TensorOptions(at::kComplexDouble)).to(dtype);
  return at::randint(2, {count}, generator, at::TensorOptions(at::kLong)).to(dtype);
}

std::string list_text(at::IntArrayRef numbers) { return fmt::format("{{{}}}", fmt::join(numbers, ", ")); }

/// A Lua string that holds `text` as it is: long brackets of a level that does not end inside.
std::string long_string(const std::string& text) {
  std::string level;
  while (text.find("]" + level + "]") != std::string::npos) level += '=';
  return fmt::format("[{0}[\n{1}]{0}]", level, text);
}

/// In one line, for names and short texts.
std::string quoted(const std::string& text) { return string_literal(text); }

std::string header(const GraphProgram& program) {
  utsname machine{};
  ::uname(&machine);
  std::string text =
      fmt::format("-- Run this with `triage exec`.\n-- triage {}, LibTorch {}, {} {} {}, {} threads, backend {}\n",
                  TRIAGE_VERSION, TORCH_VERSION, machine.sysname, machine.release, machine.machine,
                  at::get_num_threads(), messages::one_line(program.backend));
  std::istringstream comment(program.comment);
  for (std::string line; std::getline(comment, line);)
    text += "-- " + messages::one_line(line) + "\n";  // Lua ends a comment at \r as well
  return text;
}

/// Values of a constant, or of an example, that text can hold exactly.
ProgramInput input_like(const at::Tensor& example, bool keep_values, uint64_t seed) {
  ProgramInput input;
  input.sizes = example.sizes().vec();
  input.strides = example.strides().vec();
  input.dtype = example.scalar_type();
  input.device = example.device();
  input.requires_grad = example.requires_grad() && at::GradMode::is_enabled();
  input.is_number = example.unsafeGetTensorImpl()->is_wrapped_number();
  input.seed = seed;
  if (keep_values || input.is_number) {
    input.fill = Fill::values;
    input.values = example.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous().clone();
  }
  return input;
}

bool stays_constant(const Constant& constant) {
  return is_printable(constant.tensor) && !constant.tensor.requires_grad();
}

}  // namespace

at::Tensor ProgramInput::make() const {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(dtype);
  const int64_t count = extent(sizes, strides);
  at::Tensor memory;
  if (fill == Fill::values) {
    memory = at::zeros({count}, options);
    const at::Tensor places = at::arange(count, at::kLong).as_strided(sizes, strides);
    if (count > 0) memory.put_(places.flatten(), values.to(dtype).flatten());
  } else if (fill == Fill::seed) {
    memory = random_elements(count, dtype, seed);
  } else if (fill == Fill::arange) {
    memory = at::arange(count, at::kLong).to(dtype);
  } else {
    memory = fill == Fill::ones ? at::ones({count}, options) : at::zeros({count}, options);
  }
  at::Tensor made = memory.to(device).as_strided(sizes, strides);
  if (is_number) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (requires_grad) made.requires_grad_(true);
  return made;
}

std::optional<std::string> ProgramInput::wrong_layout() const {
  constexpr double most_bytes = 16e9;
  if (sizes.size() != strides.size())
    return fmt::format("it has {} sizes and {} strides", sizes.size(), strides.size());
  double last = 1;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] < 0 || strides[dim] < 0) return "sizes and strides must not be negative";
    last += static_cast<double>(sizes[dim]) * static_cast<double>(strides[dim]);
  }
  if (last * static_cast<double>(c10::elementSize(dtype)) > most_bytes)
    return fmt::format("a tensor of {:.3g} elements is too large for a program", last);
  if (is_number && !sizes.empty()) return "a number has the shape {}";
  return std::nullopt;
}

bool ProgramInput::needs_file() const { return fill == Fill::values && !is_printable(values); }

std::string ProgramInput::text(const std::string& values_file) const {
  std::string text = fmt::format("{{shape = {}, stride = {}, dtype = \"{}\", device = \"{}\", requires_grad = {}",
                                 list_text(sizes), list_text(strides), dtype_name(dtype), device.str(), requires_grad);
  if (is_number) text += ", number = true";
  if (fill == Fill::seed) text += fmt::format(", seed = {}", seed);
  if (fill == Fill::zeros) text += ", fill = 0";
  if (fill == Fill::ones) text += ", fill = 1";
  if (fill == Fill::arange) text += ", fill = \"arange\"";
  if (fill == Fill::values)
    text += needs_file() ? fmt::format(", values_from = {}", quoted(values_file))
                         : fmt::format(", values = \"{}\"", values_text(values));
  return text + "}";
}

GraphProgram GraphProgram::clone() const {
  return {graph.clone(), inputs, backend, backward, strict, check, seed, isolated, memory_mib, preamble, comment};
}

GraphProgram program_of(const Graph& graph, const std::vector<at::Tensor>& examples, const std::string& backend,
                        bool keep_values) {
  GraphProgram program;
  program.backend = backend;
  program.graph = Graph(graph.name());
  program.graph.set_recorded_types(graph.has_recorded_types());
  Copies copies;
  const auto add = [&](const Value* value, InputKind kind, const at::Tensor& example) {
    copy_input(program.graph, {value, kind}, copies);
    program.inputs.push_back(input_like(example, keep_values, program.inputs.size() + 1));
    if (value->is_flags && !keep_values) program.inputs.back().fill = Fill::zeros;  // random bits are no flags
    program.backward |= program.inputs.back().requires_grad;
  };
  const auto add_constant_as_input = [&](const Constant& constant) {
    TensorMeta meta{constant.tensor.scalar_type(), constant.tensor.sizes().vec(), constant.tensor.device()};
    std::string name = constant.value->name.empty() ? "constant" : constant.value->name;
    while (graph.has_name(name) && name != constant.value->name) name += "_";
    while (program.graph.has_name(name)) name += "_";
    Value* input = program.graph.add_input(name, InputKind::tensor, meta);
    program.graph.edit(input).is_flags = constant.value->is_flags;
    copies[constant.value] = input;
    program.inputs.push_back(input_like(constant.tensor, keep_values, program.inputs.size() + 1));
    program.backward |= program.inputs.back().requires_grad;
  };
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    add(graph.inputs()[i].value, graph.inputs()[i].kind, examples.at(i));
  for (const auto& constant : graph.constants())
    if (!stays_constant(constant)) add_constant_as_input(constant);
  for (const auto& constant : graph.constants())
    if (stays_constant(constant)) copy_constant(program.graph, constant, copies);
  for (const auto& node : graph.nodes()) copy_node(program.graph, *node, copies);
  std::vector<Value*> outputs;
  for (const Value* output : graph.outputs()) outputs.push_back(copies.at(output));
  program.graph.set_outputs(std::move(outputs), graph.output_names());
  return program;
}

std::string text(const GraphProgram& program, const std::string& values_file) {
  std::string text = header(program);
  if (!program.preamble.empty()) text += program.preamble + (program.preamble.back() == '\n' ? "" : "\n");
  text += fmt::format("triage.run_graph {{\n  backend = {},\n", quoted(program.backend));
  text += fmt::format("  backward = {},\n", program.backward);
  if (program.strict) text += "  fail_on_backend_error = true,\n";
  if (program.check == ProgramCheck::numbers) text += "  check = \"numbers\",\n";
  if (program.isolated > 0)
    text += fmt::format("  isolated = {:g},  -- seconds for a process of its own\n  memory_mib = {},\n",
                        program.isolated, program.memory_mib);
  text += fmt::format("  seed = {},\n  inputs = {{\n", program.seed);
  for (size_t i = 0; i < program.inputs.size(); ++i)
    text += fmt::format("    {},  -- {}\n", program.inputs[i].text(values_file),
                        messages::one_line(describe(*program.graph.inputs()[i].value)));
  return text + fmt::format("  }},\n  graph = {},\n}}\n", long_string(print(program.graph)));
}

void save(const GraphProgram& program, const std::string& path) {
  const std::string values_file = std::filesystem::path(path).replace_extension(".pt").string();
  c10::impl::GenericDict values(c10::StringType::get(), c10::AnyType::get());
  for (size_t i = 0; i < program.inputs.size(); ++i)
    if (program.inputs[i].needs_file()) values.insert(program.graph.inputs()[i].value->name, program.inputs[i].values);
  if (!values.empty()) save_files({{values_file, values}});
  const std::string lua = text(program, std::filesystem::path(values_file).filename().string());
  files::write_file(path, lua);
}

}  // namespace triage::graph
