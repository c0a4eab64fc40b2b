#pragma once
#include <triage/export.h>
#include <triage/graph.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/symbols/table.h"

/// Sizes as they are printed: a number where every call has the same, else a symbol or an expression of one.
namespace triage::exporting {

struct Shapes {
  symbols::SymbolTable table;  // of the numbers in the graph
  std::unordered_map<const graph::Value*, std::vector<std::string>> dims;
};

/// Symbols of inputs and numbers are known; sizes of results are found by running the graph, on synthetic values, with
/// the symbols at several values each, 0 and 1 among them, and comparing. A size that follows no simple law is printed
/// as `?`, and so are all where the inputs are too large to be made up.
Shapes shapes_of(const graph::Graph& graph, const ExportOptions& options);

/// Of each input, its sizes: symbols and numbers. Nothing is run for that.
std::vector<std::vector<std::string>> input_dims(const graph::Graph& graph, const ExportOptions& options);

/// The symbol of a dimension of an input; empty where its size is fixed.
std::string symbol_of(const ExportOptions& options, size_t input, int64_t dim);

/// Checks what `options` name against the inputs of the graph; throws InputError.
void check_options(const graph::Graph& graph, const ExportOptions& options);

}  // namespace triage::exporting
