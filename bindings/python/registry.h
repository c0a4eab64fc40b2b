#pragma once
#include <triage/runtime.h>

#include <string>
#include <vector>

/// Policies as the operator `triage::run_policy`, which finds them by their keys. Thread-safe.
namespace triage::python {

/// Throws InputError if a living policy of this process has the key. (A forked child inherits keys, and may take them anew.)
void register_policy(const std::string& key, const Policy& policy);
void forget_policy(const std::string& key) noexcept;
/// Throws InputError that says how to load it, if there is none.
Policy find_policy(const std::string& key);

/// Whether Python code sees each operator that is called: a TorchDispatchMode is on, or an input is no plain tensor. A policy is
/// then called as the one operator that it is for Python, `triage::run_policy`: its inner operators take what Python cannot pass
/// on (numbers as tensors).
bool is_seen_by_python(at::TensorList inputs);
std::vector<at::Tensor> call_as_operator(const std::string& key, at::TensorList inputs);

}  // namespace triage::python
