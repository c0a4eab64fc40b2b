#pragma once
#include <functional>
#include <vector>

#include "runtime/diagnose/program_run.h"

/// The steps of the minifier: each takes a program and makes smaller ones of it.
namespace triage::diagnose {

/// Notes in `program.graph` the types that its values have in a run with `eager`, and returns each value as an input
/// that would stand in its place, in the order of nodes and results. Runs in this process: only for programs that
/// `eager` was seen to run. Without values, but seeds, where that fails, or for other devices than the CPU.
std::vector<std::vector<ProgramInput>> record_values(GraphProgram& program);

/// The nodes that `keep` says. What they need of others becomes inputs, what others or the outputs need of them,
/// outputs.
GraphProgram part_of(const GraphProgram& program, const std::vector<std::vector<ProgramInput>>& recorded,
                     const std::vector<bool>& keep);

/// With some of its outputs only, without nodes and inputs that they do not need.
GraphProgram with_outputs(const GraphProgram& program, const std::vector<size_t>& outputs);
/// Input `from` is input `to`, too.
GraphProgram with_merged_inputs(const GraphProgram& program, size_t from, size_t to);
/// Every dimension of inputs and constants that has size `from` has size `to`; with `in_arguments`, integers in lists
/// that operators are given as well.
GraphProgram with_size(const GraphProgram& program, int64_t from, int64_t to, bool in_arguments);

/// Whether the candidate fails the same.
using Fails = std::function<bool(const GraphProgram&)>;
/// The smallest set of `count` items with which `fails` holds: delta debugging. It holds with all.
std::vector<size_t> delta_debug(size_t count, const std::function<bool(const std::vector<size_t>&)>& fails);

}  // namespace triage::diagnose
