#pragma once
#include <string>

namespace triage {

/// Every process that uses triage has a backend of this name: one that a text which goes to another process may name.
bool is_shipped_backend(const std::string& name);

/// Whether constants may be folded before a backend gets a graph. Backends of others, and those that fail on purpose,
/// get the calls on tensors that the script made, as torch.compile gives them.
bool folds_constants(const std::string& name);

/// Whether a backend makes a joint graph of forward and backward computation, and compiles its halves (compile_joint).
bool makes_joint_graph(const std::string& name);

}  // namespace triage
