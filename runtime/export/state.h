#pragma once
#include <triage/backend.h>
#include <triage/export.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/export/names.h"
#include "runtime/export/shapes.h"

namespace triage {

struct ExportedProgram::State {
  enum class Origin : uint8_t { capture, file };
  State(graph::Graph graph_, ExportOptions options_, std::vector<c10::IValue> params_, std::vector<std::string> notes_,
        Origin origin);
  /// Found out when somebody asks: that runs the graph, and loading a program shall run nothing of it.
  const exporting::Shapes& shapes() const;

  graph::Graph graph;
  ExportOptions options;
  std::vector<c10::IValue> params;
  std::vector<std::string> notes;
  exporting::Names names;
  std::unordered_map<const graph::Value*, std::vector<std::string>> input_dims;
  std::unique_ptr<Executable> executable;

 private:
  /// Assertions then tell of nodes and numbers as the program is printed. Those of a file do so already.
  void name_assertions();
  mutable std::once_flag asked_;
  mutable std::unique_ptr<const exporting::Shapes> shapes_;
};

namespace exporting {

/// The text of ExportedProgram::text().
std::string print(const ExportedProgram::State& program);
/// More is not read, nor are more symbols of sizes.
inline constexpr uint64_t kLargestFile = uint64_t{4} << 30;
inline constexpr size_t kMostSymbolicDims = 4096;

/// Throws GraphError where a file that begins so is no exported program, or one of another format.
void check_kind(std::string_view beginning);
/// The content of a file, and back. Throws GraphError or std::exception of the JSON library.
std::string to_text(const graph::Graph& graph, const ExportOptions& options, const std::vector<c10::IValue>& params,
                    const std::vector<std::string>& notes);
std::shared_ptr<ExportedProgram::State> from_text(const std::string& text, bool trusted);
/// A TorchScript archive.
std::string to_torchscript(const graph::Graph& graph, const ExportOptions& options,
                           const std::vector<c10::IValue>& params);

}  // namespace exporting
}  // namespace triage
