#pragma once
#include "inputs.h"

#include <functional>
#include <string>
#include <vector>

/// The table of programs, the ways of running one, and the C++ code that must say the same.
namespace triage::parity {

struct Program {
  std::string name;    // "T05 push where"
  std::string source;  // a policy
  bool breaks;         // one graph cannot hold it
};

/// Those of programs.txt, in its order.
const std::vector<Program>& programs();
const Program& program(const std::string& name);

/// A way of running a program. Each gives what the plain script gives, bit for bit. A new backend needs no line here:
/// every registered one is a mode.
struct Mode {
  std::string name;
  bool needs_graph;  // makes no sense for a program that one graph cannot hold
  bool exact;  // bit for bit; else floats of sums and of exp and its kind within the bounds of docs/performance.md
  /// `given` are the inputs; `warm_up` are inputs of another batch size, run before where the mode keeps something.
  std::function<Tensors(const Program&, const Tensors& given, const Tensors& warm_up)> run;
};
std::vector<Mode> modes();

/// The script without a recorder: what all modes are compared with.
Tensors run_script(const Program& program, const Tensors& given);
std::vector<std::string> input_names(const Program& program);

/// C++ hosts' form of programs, by the same names.
struct Twin {
  std::string name;
  std::function<Tensors(const Tensors& given)> run;
};
const std::vector<Twin>& twins();

}  // namespace triage::parity
