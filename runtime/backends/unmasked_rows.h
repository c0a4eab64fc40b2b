#pragma once
#include <triage/backend.h>
#include <triage/error.h>

#include <memory>
#include <string>
#include <vector>

/// Gradients that may get values of masked rows: how that is told, and the error where it must not be
/// (docs/training.md).
namespace triage {

/// The reason, with its script line.
std::string with_place(const UnmaskedRows& why);

/// The reason where a graph break leaves a call, and so its gradients, to the script.
UnmaskedRows unmasked_by_break(const std::string& what, const Source& where);
/// What the log says where `eager` runs the graph in place of `backend`.
std::string left_to_eager_text(const std::string& graph, const std::string& backend, const UnmaskedRows& why);

class MaskedRowsRequired final : public GraphError {
 public:
  using GraphError::GraphError;
};
/// Throws it. `what` computes the gradients: "graph `f`".
[[noreturn]] void refuse_unmasked_rows(const std::string& what, const UnmaskedRows& why);

/// `eager` in place of `backend`, which cannot have the graph; the log says so once, when a call has gradients.
std::unique_ptr<Executable> left_to_eager(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                          const std::string& backend, UnmaskedRows why);

}  // namespace triage
