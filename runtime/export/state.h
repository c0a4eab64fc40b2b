#pragma once
#include <triage/backend.h>
#include <triage/export.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/export/names.h"
#include "runtime/export/shapes.h"

namespace triage {

struct ExportedProgram::State {
  State(graph::Graph graph_, ExportOptions options_, std::vector<c10::IValue> params_, std::vector<std::string> notes_);

  graph::Graph graph;
  ExportOptions options;
  std::vector<c10::IValue> params;
  std::vector<std::string> notes;
  exporting::Names names;
  exporting::Shapes shapes;
  std::unique_ptr<Executable> executable;
};

namespace exporting {

/// The text of ExportedProgram::text().
std::string print(const ExportedProgram::State& program);
/// The content of a file, and back. Throws GraphError or std::exception of the JSON library.
std::string to_text(const graph::Graph& graph, const ExportOptions& options, const std::vector<c10::IValue>& params,
                    const std::vector<std::string>& notes);
ExportedProgram from_text(const std::string& text, bool trusted);
/// A TorchScript archive.
std::string to_torchscript(const graph::Graph& graph, const ExportOptions& options,
                           const std::vector<c10::IValue>& params);

}  // namespace exporting
}  // namespace triage
