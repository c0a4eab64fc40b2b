#pragma once
#include <triage/runtime.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/python/forms.h"

/// Policies as the operator `triage::run_policy`, which finds them by their keys. Thread-safe.
namespace triage::python {

/// Throws InputError if a living policy of this process has the key. (A forked child inherits keys, and may take them
/// anew.)
void register_policy(const std::string& key, const Policy& policy);
void forget_policy(const std::string& key) noexcept;
/// Throws InputError that says how to load it, if there is none.
Policy find_policy(const std::string& key);
/// With what programs were told of its outputs; null: nothing.
std::pair<Policy, std::shared_ptr<const Promises>> find_with_promises(const std::string& key);
/// A program was told this.
void promise(const std::string& key, Promise promise);

}  // namespace triage::python
