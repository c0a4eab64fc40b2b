#pragma once
#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// A graph with its inputs and the backend to run it, as a Lua program that `triage exec` runs: one call of
/// `triage.run_graph`. Debug folders and the minifier write such programs; the minifier reads them as well.
namespace triage::graph {

/// How to make an input again.
struct ProgramInput {
  enum class Fill : uint8_t { ones, zeros, arange, seed, values };  // from the simplest on; arange: 0, 1, 2, ...

  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
  bool requires_grad = false;
  bool is_number = false;  // a param: a 0-dim tensor that takes part in type promotion as a number does
  Fill fill = Fill::seed;
  uint64_t seed = 0;
  at::Tensor values;  // for Fill::values, of these sizes; on the CPU

  /// For Fill::seed, floats of a normal distribution; integers and booleans are 0 or 1, so that they can be indices.
  at::Tensor make() const;
  /// Why there is no such tensor; nothing where there is.
  std::optional<std::string> wrong_layout() const;
  /// Text of a table constructor. Values too many to be printed go to the file `values_file`.
  std::string text(const std::string& values_file) const;
  bool needs_file() const;
};

enum class ProgramCheck : uint8_t {
  errors,   // the program fails where the backend does
  numbers,  // ... or where its results are further from those of float64 than `eager` is (judge.h)
};

struct GraphProgram {
  Graph graph;
  std::vector<ProgramInput> inputs;
  std::string backend = "eager";
  bool backward = false;
  bool strict = false;  // a backend that falls back to another one fails (Executable::never_fall_back)
  ProgramCheck check = ProgramCheck::errors;
  uint64_t seed = 0;    // of random operators
  double isolated = 0;  // seconds for a child process in which the program runs, since it may crash or hang; 0: none
  int64_t memory_mib = 4096;  // of that process
  std::string preamble;       // Lua that registers the backend
  std::string comment;        // what the program shows; may be several lines

  GraphProgram clone() const;
};

/// The program for `graph`, called with tensors like `examples`. Constants that cannot be printed become inputs. With
/// `keep_values` the inputs have the values of `examples`, else random numbers: programs that only show shapes and
/// types are smaller, and hold none of the user's data.
GraphProgram program_of(const Graph& graph, const std::vector<at::Tensor>& examples, const std::string& backend,
                        bool keep_values);

/// The program as Lua, with a header of versions and machine. It refers to `values_file` (a .pt file beside the
/// program) where values are too many to be printed.
std::string text(const GraphProgram& program, const std::string& values_file = "");
/// Writes the program to `path`, and values that do not fit into it to `path` with `.pt` in place of `.lua`. Throws
/// FileError.
void save(const GraphProgram& program, const std::string& path);

}  // namespace triage::graph
