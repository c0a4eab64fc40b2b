#pragma once
#include <triage/backend.h>

#include <optional>
#include <string>

namespace triage {

/// Backends that fail on purpose, for tests of what handles failures: the interpreter, with a fault at every call of
/// one operator. `name` is the kind of fault, and behind a colon the operator (`relu` where none is named; with or
/// without namespace and overload):
///   faulty_compile:OP   cannot compile a graph with OP: throws GraphError
///   faulty_run:OP       compiles it; the run throws PolicyError when it comes to OP
///   faulty_result:OP    gives wrong values for the results of OP: 1 more than is right, for masks the opposite
/// `faulty_aot_compile:OP` and so on do so with the halves of the joint graph of forward and backward computation.
/// Nothing where the name is no such backend's. They are found by name, and listed by nobody.
std::optional<Backend> faulty_backend(const std::string& name);

/// How the names of those with a joint graph begin.
inline constexpr const char* kFaultyHalves = "faulty_aot_";

}  // namespace triage
