#include <ATen/ATen.h>
#include <triage/export.h>

#include <chrono>
#include <optional>

#include "runtime/files/checksum.h"
#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"

namespace triage::fuzz {
namespace {

constexpr const char* label = "checksum ";

/// Tensors as the program declares them; nothing where they would be large.
std::optional<std::vector<at::Tensor>> inputs_of(const ExportedProgram& program) {
  std::vector<at::Tensor> inputs;
  for (const auto& input : program.graph().inputs()) {
    if (input.kind != graph::InputKind::tensor) continue;
    if (!input.value->meta) return std::nullopt;
    double elements = 1;
    for (const int64_t size : input.value->meta->sizes) elements *= static_cast<double>(size);
    if (elements > 1e5) return std::nullopt;
    inputs.push_back(at::ones(input.value->meta->sizes, input.value->meta->dtype));
  }
  return inputs;
}

std::string saved(const ExportedProgram& program) {
  const TemporaryFolder folder;
  program.save(folder / "seed.program");
  const std::string text = read_bytes(folder / "seed.program");
  return text.substr(0, text.rfind(label));
}

}  // namespace

void read_program(std::string_view text) {
  const MemoryFile file(std::string(text) + files::checksum_line(label, files::checksum(text)));
  const ExportedProgram program = ExportedProgram::load(file.path());
  program.text();
  if (const auto inputs = inputs_of(program))
    program.run(*inputs, std::chrono::steady_clock::now() + std::chrono::seconds(1));
}

std::vector<std::string> program_seeds() {
  const auto save = [](const std::vector<at::Tensor>& inputs, const auto& fn, const ExportOptions& options) {
    return saved(export_function("seed", {"x", "y"}, inputs, fn, options));
  };
  ExportOptions dynamic;
  dynamic.dynamic_dims = {{0, 0, "rows"}};
  dynamic.bounds["rows"] = {0, 1000};
  const at::Tensor table = at::arange(1200, at::kFloat).reshape({40, 30}).contiguous();
  using Tensors = at::ArrayRef<at::Tensor>;
  return {save(
              {at::ones({3, 40}), at::ones({30})},
              [&](Tensors in) { return std::vector<at::Tensor>{at::add(in[0].matmul(table), in[1]).relu()}; }, dynamic),
          save({at::ones({2, 5}), at::zeros({2, 5}, at::kLong)},
               [&](Tensors in) {
                 return std::vector<at::Tensor>{at::gather(in[0], 1, in[1]).sum(1), in[0].softmax(1)};
               },
               {})};
}

}  // namespace triage::fuzz
